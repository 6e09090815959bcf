"""Maps of curvature compared, and the points of a track; records alone are read, so that no torch is needed."""

from hessmap.studies.comparison.maps import compare_maps
from hessmap.studies.comparison.track import track_verdicts

__all__ = ["compare_maps", "track_verdicts"]
