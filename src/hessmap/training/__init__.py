"""A plain trainer: mini-batch gradients, stationary points, and checkpoints that resume bit for bit."""

from hessmap.training.checkpoints import check_same_settings, content_of, load_checkpoint, save_checkpoint
from hessmap.training.modes import evaluation_mode
from hessmap.training.objective import (
    Evaluation,
    ProgressUpdate,
    TrainingDiverged,
    fitting_targets,
    loss_name,
    per_sample,
)
from hessmap.training.trainer import OPTIMISERS, train

__all__ = [
    "OPTIMISERS",
    "Evaluation",
    "ProgressUpdate",
    "TrainingDiverged",
    "check_same_settings",
    "content_of",
    "evaluation_mode",
    "fitting_targets",
    "load_checkpoint",
    "loss_name",
    "per_sample",
    "save_checkpoint",
    "train",
]
