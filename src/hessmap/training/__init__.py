"""A plain trainer: batches of gradients, stationary points, and checkpoints that go on to the same bits."""

from hessmap.training.checkpoints import load_checkpoint, save_checkpoint
from hessmap.training.gradient_flow import FlowFailed, gradient_flow
from hessmap.training.losses import LOSSES
from hessmap.training.objective import Evaluation, Moment, TrainingDiverged
from hessmap.training.stationary import train_to_stationary_point
from hessmap.training.trainer import train
from hessmap.training.training_state import OPTIMISERS
from hessmap.training.zoo import zoo_network

__all__ = [
    "LOSSES",
    "OPTIMISERS",
    "Evaluation",
    "FlowFailed",
    "Moment",
    "TrainingDiverged",
    "gradient_flow",
    "load_checkpoint",
    "save_checkpoint",
    "train",
    "train_to_stationary_point",
    "zoo_network",
]
