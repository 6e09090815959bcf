"""Figures of results: each function takes a record and returns a matplotlib Figure, without global state.

What is registered here is what ``record.plot()`` draws.
"""

from hessmap.errors import require_extra

require_extra("matplotlib", "plots")

from hessmap.results import (
    BottleneckView,
    ClassRegions,
    CurvatureEstimates,
    CurvatureMap,
    CurvatureTrack,
    DensityEstimate,
    MapComparison,
    NetworkCurvature,
    Spectrum,
)
from hessmap.results.pictures import register_pictures
from hessmap.views.plots.functions import class_regions_figure, representations_figure
from hessmap.views.plots.layers import comparison_figure, layers_figure, network_layers_figure
from hessmap.views.plots.spectrum import density_figure, eigenvalues_figure, network_spectrum_figure, spectrum_figure
from hessmap.views.plots.style import save_figure, write_figure
from hessmap.views.plots.track import track_figure

__all__ = [
    "class_regions_figure",
    "comparison_figure",
    "density_figure",
    "eigenvalues_figure",
    "layers_figure",
    "representations_figure",
    "save_figure",
    "spectrum_figure",
    "track_figure",
    "write_figure",
]

register_pictures(CurvatureMap, spectrum=spectrum_figure, layers=layers_figure)
register_pictures(NetworkCurvature, spectrum=network_spectrum_figure, layers=network_layers_figure)
register_pictures(MapComparison, layers=comparison_figure)
register_pictures(CurvatureTrack, steps=track_figure)
register_pictures(Spectrum, eigenvalues=eigenvalues_figure)
register_pictures(DensityEstimate, density=density_figure)
register_pictures(CurvatureEstimates, density=lambda found: density_figure(found.density))
register_pictures(BottleneckView, layers=representations_figure)
register_pictures(ClassRegions, regions=class_regions_figure)
