"""Records as tables for a terminal."""

from hessmap.views.tables.applications import (
    certificate_view,
    compression_view,
    plane_view,
    step_summary,
    step_table,
    step_view,
    verification_view,
)
from hessmap.views.tables.comparison import comparison_view, stored_tracks_view, track_view
from hessmap.views.tables.function import coefficient_view, estimate_view, function_verdict, function_view
from hessmap.views.tables.map import (
    data_view,
    layers_table,
    map_view,
    network_view,
    prediction_view,
    ranks_table,
    stored_maps_view,
    summary_view,
)

__all__ = [
    "certificate_view",
    "coefficient_view",
    "comparison_view",
    "compression_view",
    "data_view",
    "estimate_view",
    "function_verdict",
    "function_view",
    "layers_table",
    "map_view",
    "network_view",
    "plane_view",
    "prediction_view",
    "ranks_table",
    "step_summary",
    "step_table",
    "step_view",
    "stored_maps_view",
    "stored_tracks_view",
    "summary_view",
    "track_view",
    "verification_view",
]
