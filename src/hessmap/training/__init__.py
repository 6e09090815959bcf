"""A plain trainer: batches of gradients, stationary points, and checkpoints that go on to the same bits."""

from hessmap.training.checkpoints import load_checkpoint, save_checkpoint
from hessmap.training.losses import LOSSES
from hessmap.training.objective import Evaluation, Moment, TrainingDiverged
from hessmap.training.trainer import train
from hessmap.training.training_state import OPTIMISERS

__all__ = [
    "LOSSES",
    "OPTIMISERS",
    "Evaluation",
    "Moment",
    "TrainingDiverged",
    "load_checkpoint",
    "save_checkpoint",
    "train",
]
