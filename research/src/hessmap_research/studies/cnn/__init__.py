"""Studies of convolutional and locally connected networks."""
