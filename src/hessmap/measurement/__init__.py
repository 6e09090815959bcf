"""Any operator or matrix in, a record out; never a network."""

from hessmap.measurement.dense_spectrum import spectrum
from hessmap.measurement.density_estimate import density_estimate
from hessmap.measurement.diagonal_estimate import diagonal_estimate
from hessmap.measurement.krylov_solve import krylov_solve
from hessmap.measurement.method_choice import auto_spectrum, choose_method
from hessmap.measurement.numerical_rank import numerical_rank
from hessmap.measurement.overlap import gradient_overlap, subspace_overlap
from hessmap.measurement.shifted_solve import solve
from hessmap.measurement.spectral_sum_estimates import (
    effective_dimension_estimate,
    log_determinant_estimate,
    rank_estimate,
)
from hessmap.measurement.spectral_sums import effective_dimension, reconstruction_error
from hessmap.measurement.top_eigenpairs import sharpness, top_eigenpairs
from hessmap.measurement.trace_estimate import frobenius_norm_estimate, trace_estimate

__all__ = [
    "auto_spectrum",
    "choose_method",
    "density_estimate",
    "diagonal_estimate",
    "effective_dimension",
    "effective_dimension_estimate",
    "frobenius_norm_estimate",
    "gradient_overlap",
    "krylov_solve",
    "log_determinant_estimate",
    "numerical_rank",
    "rank_estimate",
    "reconstruction_error",
    "sharpness",
    "solve",
    "spectrum",
    "subspace_overlap",
    "top_eigenpairs",
    "trace_estimate",
]
