"""One layer at a time: eigenpairs, eigenspaces, and what the two factors explain of them."""

from hessmap.measurement.layers.eigenpairs import layer_eigenpairs, layer_eigenpairs_bytes
from hessmap.measurement.layers.kronecker_comparison import BestKronecker, best_kronecker_product, decoupling
from hessmap.measurement.layers.spectra import autocorrelation, class_outliers
from hessmap.measurement.overlap import overlap_curve, overlap_of_models

__all__ = [
    "BestKronecker",
    "autocorrelation",
    "best_kronecker_product",
    "class_outliers",
    "decoupling",
    "layer_eigenpairs",
    "layer_eigenpairs_bytes",
    "overlap_curve",
    "overlap_of_models",
]
