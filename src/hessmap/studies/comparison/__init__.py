"""Two maps of curvature compared; records alone are read, so that no torch is needed."""

from hessmap.studies.comparison.maps import compare_maps

__all__ = ["compare_maps"]
