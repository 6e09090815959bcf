"""What curvature is used for: optimiser steps, influence, Laplace posteriors, compression, merging, loss planes, costs.

One application is one file; each takes a Problem and any curvature operator, and returns a record.
"""

__all__: list[str] = []
