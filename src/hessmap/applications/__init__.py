"""What curvature is used for: optimiser steps, influence, Laplace posteriors, compression, merging, loss planes, costs.

One application is one file; each takes a Problem and any curvature operator, and returns a record.
"""

from hessmap.applications.compression import compression_plan, quantise, quantised_parameters
from hessmap.applications.curvatures import cost_plan
from hessmap.applications.influence import (
    DatamodellingScore,
    InfluenceScores,
    RetrainingEffects,
    influence,
    linear_datamodelling_score,
    retraining_effects,
)
from hessmap.applications.laplace import (
    HeldOutChoice,
    LaplacePosterior,
    LaplacePrediction,
    MarginalLikelihood,
    laplace,
)
from hessmap.applications.loss_plane import filter_normalised_directions, loss_plane
from hessmap.applications.merging import EwcPenalty, ewc_penalty, merge
from hessmap.applications.optimiser_step import PreconditionedHessian, Preconditioner
from hessmap.applications.pruning import curvature_projection, pruning_plan
from hessmap.applications.step_report import STEP_QUANTITIES, StepName, step_report

__all__ = [
    "STEP_QUANTITIES",
    "DatamodellingScore",
    "EwcPenalty",
    "HeldOutChoice",
    "InfluenceScores",
    "LaplacePosterior",
    "LaplacePrediction",
    "MarginalLikelihood",
    "PreconditionedHessian",
    "Preconditioner",
    "RetrainingEffects",
    "StepName",
    "compression_plan",
    "cost_plan",
    "curvature_projection",
    "ewc_penalty",
    "filter_normalised_directions",
    "influence",
    "laplace",
    "linear_datamodelling_score",
    "loss_plane",
    "merge",
    "pruning_plan",
    "quantise",
    "quantised_parameters",
    "retraining_effects",
    "step_report",
]
