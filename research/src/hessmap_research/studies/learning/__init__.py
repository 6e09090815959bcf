"""Learning coefficients: exact, from curvature alone, and estimated."""
