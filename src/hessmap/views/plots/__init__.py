"""Figures of results: each function takes a record and returns a matplotlib Figure, without global state."""

from hessmap.views.plots.comparison import comparison_figure
from hessmap.views.plots.layers import layers_figure
from hessmap.views.plots.spectrum import spectrum_figure
from hessmap.views.plots.style import save_figure, write_figure

__all__ = ["comparison_figure", "layers_figure", "save_figure", "spectrum_figure", "write_figure"]
