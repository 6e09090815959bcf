"""Studies of fully connected networks."""
