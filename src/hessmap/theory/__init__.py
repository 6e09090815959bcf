"""Formulas: integers in, records out. One theorem a function, one setting a file; nothing here is measured."""

from hessmap.theory import (
    convolutional,
    critical_points,
    deep_convolutional,
    deficient_products,
    fully_connected,
    linear,
    linear_with_bias,
    locally_connected,
    pac_bayes,
    partial_bias,
    piecewise_linear,
    plateaus,
    printed_convolutional_formulas,
    printed_formulas,
    sample_bounds,
    symmetry_bounds,
    tangent_kernel,
)
from hessmap.theory.hessian_ranks import HessianRanks, linear_hessian_ranks, linear_hessian_ranks_with_bias
from hessmap.theory.losses import LOSSES, effective_output_dim
from hessmap.theory.prediction import RankQuestion, predict_ranks, rank_rule

__all__ = [
    "LOSSES",
    "HessianRanks",
    "RankQuestion",
    "convolutional",
    "critical_points",
    "deep_convolutional",
    "deficient_products",
    "effective_output_dim",
    "fully_connected",
    "linear",
    "linear_hessian_ranks",
    "linear_hessian_ranks_with_bias",
    "linear_with_bias",
    "locally_connected",
    "pac_bayes",
    "partial_bias",
    "piecewise_linear",
    "plateaus",
    "predict_ranks",
    "printed_convolutional_formulas",
    "printed_formulas",
    "rank_rule",
    "sample_bounds",
    "symmetry_bounds",
    "tangent_kernel",
]
