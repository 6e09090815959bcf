"""Curvature along a training: measured by a tracker that a training loop calls, or from saved checkpoints."""

from hessmap.maps.track.point import DEFAULT_QUANTITIES, QUANTITIES, Quantity, TrackSettings
from hessmap.maps.track.tracker import Tracker, logged_values, tensorboard_log, track_checkpoints

__all__ = [
    "DEFAULT_QUANTITIES",
    "QUANTITIES",
    "Quantity",
    "TrackSettings",
    "Tracker",
    "logged_values",
    "tensorboard_log",
    "track_checkpoints",
]
