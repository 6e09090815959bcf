"""Curvature along a training: measured by a tracker that a training loop calls, or from saved checkpoints."""

from hessmap.maps.track.checkpoints import track_checkpoints
from hessmap.maps.track.point import QUANTITIES, Quantity, TrackSettings
from hessmap.maps.track.tracker import Tracker

__all__ = ["QUANTITIES", "Quantity", "TrackSettings", "Tracker", "track_checkpoints"]
