"""Figures of results: each function takes a record and returns a matplotlib Figure, without global state.

What is registered here is what ``record.plot()`` draws.
"""

from hessmap.errors import require_extra

require_extra("matplotlib", "plots")

from hessmap.records import (
    BottleneckView,
    ClassRegions,
    CompressionPlan,
    CurvatureMap,
    CurvatureProjection,
    CurvatureTrack,
    DensityCurve,
    DensityEstimate,
    EigenpairsMeasurement,
    KroneckerError,
    LearningCoefficientEstimate,
    LossPlane,
    MapComparison,
    NetworkCurvature,
    PruningPlan,
    Spectrum,
    StepReport,
    WholeCurvature,
    register_pictures,
)
from hessmap.views.plots.applications import (
    class_regions_figure,
    compression_bits_figure,
    compression_costs_figure,
    gauge_figure,
    loss_plane_figure,
    projection_figure,
    pruning_costs_figure,
    representations_figure,
    step_figure,
)
from hessmap.views.plots.layers import comparison_figure, kronecker_error_figure, layers_figure, network_layers_figure
from hessmap.views.plots.spectrum import (
    density_figure,
    eigenvalues_figure,
    map_density_figure,
    network_density_figure,
    network_spectrum_figure,
    spectrum_figure,
)
from hessmap.views.plots.style import save_figure, write_figure
from hessmap.views.plots.track import chains_figure, track_figure

__all__ = [
    "chains_figure",
    "class_regions_figure",
    "comparison_figure",
    "compression_bits_figure",
    "compression_costs_figure",
    "density_figure",
    "eigenvalues_figure",
    "gauge_figure",
    "kronecker_error_figure",
    "layers_figure",
    "loss_plane_figure",
    "map_density_figure",
    "network_density_figure",
    "projection_figure",
    "pruning_costs_figure",
    "representations_figure",
    "save_figure",
    "spectrum_figure",
    "step_figure",
    "track_figure",
    "write_figure",
]


def _as_spectrum(found: EigenpairsMeasurement) -> Spectrum:
    """Some eigenvalues as a spectrum that is not complete; their residuals bound their errors."""
    error = float(found.residuals.max(initial=0.0))
    return Spectrum(
        found.eigenvalues,
        "lanczos",
        found.converged,
        found.residuals,
        found.norm,
        size=found.size,
        eigenvalue_error=error,
    )


register_pictures(CurvatureMap, spectrum=spectrum_figure, layers=layers_figure, density=map_density_figure)
register_pictures(
    NetworkCurvature,
    spectrum=network_spectrum_figure,
    layers=network_layers_figure,
    density=network_density_figure,
)
register_pictures(MapComparison, layers=comparison_figure)
register_pictures(CurvatureTrack, steps=track_figure)
register_pictures(StepReport, step=step_figure)
register_pictures(Spectrum, eigenvalues=eigenvalues_figure)
register_pictures(EigenpairsMeasurement, eigenvalues=lambda found: eigenvalues_figure(_as_spectrum(found)))
register_pictures(DensityEstimate, density=density_figure)
register_pictures(DensityCurve, density=density_figure)
register_pictures(WholeCurvature, density=lambda found: density_figure(found.density, known=found.eigenvalues))
register_pictures(BottleneckView, layers=representations_figure)
register_pictures("hessmap.certificates.certificate.Certificate", gauge=gauge_figure)
register_pictures(KroneckerError, layers=kronecker_error_figure)
register_pictures(ClassRegions, regions=class_regions_figure)
register_pictures(LearningCoefficientEstimate, chains=chains_figure)
register_pictures(CompressionPlan, costs=compression_costs_figure, bits=compression_bits_figure)
register_pictures(PruningPlan, costs=pruning_costs_figure)
register_pictures(LossPlane, loss=loss_plane_figure)
register_pictures(CurvatureProjection, mass=projection_figure)
