"""Maps of curvature compared, and the points of a track; records alone are read, so that no torch is needed."""

from hessmap.maps.comparison.maps import compare_maps
from hessmap.maps.comparison.track import track_summary

__all__ = ["compare_maps", "track_summary"]
