"""The explorer: everything that hessmap knows, in a browser on the same machine."""
