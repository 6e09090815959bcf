"""Formulas for the Hessian of one layer: output factors from weights, wide limits, overlap of models."""

from hessmap.theory.layers.full_hessian import FullEigenpairs, full_eigenpairs, printed_full_eigenpairs
from hessmap.theory.layers.output_subspace import (
    activity_weighted_product,
    logit_subspace,
    output_factor_from_weights,
    row_space_without_ones,
    weight_product,
)
from hessmap.theory.layers.overlap_peak import FactorSpectra, growth_end, linear_growth, predicted_overlap
from hessmap.theory.layers.wide_limit import (
    activity,
    limit_subspace,
    mean_squared_activity_limit,
    output_factor_limit,
    printed_output_factor_limit,
    printed_subspace_overlap_limit,
)

__all__ = [
    "FactorSpectra",
    "FullEigenpairs",
    "activity",
    "activity_weighted_product",
    "full_eigenpairs",
    "growth_end",
    "limit_subspace",
    "linear_growth",
    "logit_subspace",
    "mean_squared_activity_limit",
    "output_factor_from_weights",
    "output_factor_limit",
    "predicted_overlap",
    "printed_full_eigenpairs",
    "printed_output_factor_limit",
    "printed_subspace_overlap_limit",
    "row_space_without_ones",
    "weight_product",
]
