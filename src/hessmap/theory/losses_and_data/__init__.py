"""What a rank formula needs to know of the loss and of the data."""
