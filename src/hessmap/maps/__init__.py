"""What a user asks of a model: the map of its curvature, a track along its training, a comparison, its function."""
