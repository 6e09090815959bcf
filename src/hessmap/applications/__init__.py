"""What curvature is used for: optimiser steps, influence, Laplace posteriors, compression, merging, loss planes, costs.

One application is one file; each takes a Problem and any curvature operator, and returns a record.
"""

from hessmap.applications.compression import compression_plan, quantise, quantised_parameters
from hessmap.applications.pruning import pruning_plan

__all__ = ["compression_plan", "pruning_plan", "quantise", "quantised_parameters"]
