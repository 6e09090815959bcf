"""The map of a network's curvature: what does the curvature of this model look like, and does theory say so?"""

from hessmap.maps.curvature_map.curvature_map import curvature_map
from hessmap.maps.curvature_map.dense import linear_counterpart
from hessmap.maps.curvature_map.plan import MapPlan

map = curvature_map  # the public name: hessmap.map(model, data, loss)

__all__ = ["MapPlan", "curvature_map", "linear_counterpart", "map"]
