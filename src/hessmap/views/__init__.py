"""Tables, figures and the command line: they read results and compute nothing."""
