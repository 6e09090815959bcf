"""The rank of a function that a network represents: costs, bounds, kernel regression, balance."""

from hessmap.theory.functions.identity_layers import DeepenedNetwork, cost_constant, deepened_network
from hessmap.theory.functions.kernel_ridge import (
    KernelRidge,
    kernel_ridge,
    kernel_ridge_jacobian_rank,
    printed_kernel_ridge_jacobian_rank,
)
from hessmap.theory.functions.layers import Layer, squared_norm
from hessmap.theory.functions.linear_cost import (
    balance_defect_prediction,
    balanced_factors,
    linear_representation_cost,
    schatten_quasi_norm,
)
from hessmap.theory.functions.norm_split import NormSplit, norm_split
from hessmap.theory.functions.piecewise_linear_examples import (
    cross_map,
    cross_map_jacobian,
    leaky_relu,
    printed_cross_map,
    relu_from_leaky,
)
from hessmap.theory.functions.piecewise_linear_networks import leaky_network, piecewise_linear_network
from hessmap.theory.functions.rank_one_interpolation import (
    RankOneBound,
    rank_one_constant,
    rank_one_lower_bound,
    rank_one_network,
)
from hessmap.theory.functions.recovery_depths import RecoveryDepths, recovery_depths
from hessmap.theory.functions.shortest_path import PathLength, diameter, shortest_path

__all__ = [
    "DeepenedNetwork",
    "KernelRidge",
    "Layer",
    "NormSplit",
    "PathLength",
    "RankOneBound",
    "RecoveryDepths",
    "balance_defect_prediction",
    "balanced_factors",
    "cost_constant",
    "cross_map",
    "cross_map_jacobian",
    "deepened_network",
    "diameter",
    "kernel_ridge",
    "kernel_ridge_jacobian_rank",
    "leaky_network",
    "leaky_relu",
    "linear_representation_cost",
    "norm_split",
    "piecewise_linear_network",
    "printed_cross_map",
    "printed_kernel_ridge_jacobian_rank",
    "rank_one_constant",
    "rank_one_lower_bound",
    "rank_one_network",
    "recovery_depths",
    "relu_from_leaky",
    "schatten_quasi_norm",
    "shortest_path",
    "squared_norm",
]
