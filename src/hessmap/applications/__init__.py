"""What curvature is used for: optimiser steps, influence, Laplace posteriors, compression, merging, loss planes, costs.

One application is one file; each takes a Problem and any curvature operator, and returns a record.
"""

from hessmap.applications.compression import compression_plan, quantise, quantised_parameters
from hessmap.applications.influence import (
    DatamodellingScore,
    InfluenceScores,
    RetrainingEffects,
    influence,
    linear_datamodelling_score,
    retraining_effects,
)
from hessmap.applications.pruning import pruning_plan

__all__ = [
    "DatamodellingScore",
    "InfluenceScores",
    "RetrainingEffects",
    "compression_plan",
    "influence",
    "linear_datamodelling_score",
    "pruning_plan",
    "quantise",
    "quantised_parameters",
    "retraining_effects",
]
