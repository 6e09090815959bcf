"""Any operator or matrix in, a record out; never a network."""

from hessmap.measurement.dense_spectrum import auto_spectrum, choose_method, spectrum
from hessmap.measurement.density import density_estimate
from hessmap.measurement.diagonal import diagonal_estimate
from hessmap.measurement.eigenpair_iteration import verified_single
from hessmap.measurement.eigenpair_plan import EigenpairPlan, basis_bytes, budget_of, default_block, eigenpairs_bytes
from hessmap.measurement.eigenpairs import largest_ritz_value, planned_eigenpairs, sharpness, top_eigenpairs
from hessmap.measurement.linear_systems import krylov_solve, solve
from hessmap.measurement.operators_in import EPS, Floats, Matrix, float_array, reachable_tolerance, rounding_unit
from hessmap.measurement.overlap import gradient_overlap, overlap_curve, subspace_overlap
from hessmap.measurement.probes import SKETCH, ProbedOperator, form_errors, probe_plan
from hessmap.measurement.rank import RELATIVE_TOLERANCE, numerical_rank
from hessmap.measurement.spectral_sums import (
    effective_dimension,
    effective_dimension_estimate,
    log_determinant_estimate,
    negative_share,
    rank_estimate,
    reconstruction_error,
)
from hessmap.measurement.trace import BlockTraces, block_traces, frobenius_norm_estimate, trace_estimate
from hessmap.measurement.wanted_pairs import Reference

__all__ = [
    "EPS",
    "RELATIVE_TOLERANCE",
    "SKETCH",
    "BlockTraces",
    "EigenpairPlan",
    "Floats",
    "Matrix",
    "ProbedOperator",
    "Reference",
    "auto_spectrum",
    "basis_bytes",
    "block_traces",
    "budget_of",
    "choose_method",
    "default_block",
    "density_estimate",
    "diagonal_estimate",
    "effective_dimension",
    "effective_dimension_estimate",
    "eigenpairs_bytes",
    "float_array",
    "form_errors",
    "frobenius_norm_estimate",
    "gradient_overlap",
    "krylov_solve",
    "largest_ritz_value",
    "log_determinant_estimate",
    "negative_share",
    "numerical_rank",
    "overlap_curve",
    "planned_eigenpairs",
    "probe_plan",
    "rank_estimate",
    "reachable_tolerance",
    "reconstruction_error",
    "rounding_unit",
    "sharpness",
    "solve",
    "spectrum",
    "subspace_overlap",
    "top_eigenpairs",
    "trace_estimate",
    "verified_single",
]
