"""Figures of results: each function takes a record and returns a matplotlib Figure, without global state."""

from hessmap.views.plots.class_regions import class_regions_figure
from hessmap.views.plots.comparison import comparison_figure
from hessmap.views.plots.layers import layers_figure
from hessmap.views.plots.representations import representations_figure
from hessmap.views.plots.spectrum import spectrum_figure
from hessmap.views.plots.style import save_figure, write_figure
from hessmap.views.plots.track import track_figure

__all__ = [
    "class_regions_figure",
    "comparison_figure",
    "layers_figure",
    "representations_figure",
    "save_figure",
    "spectrum_figure",
    "track_figure",
    "write_figure",
]
