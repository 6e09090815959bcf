"""Studies of the rank of the function that a trained network represents."""
