"""A network as a function of its inputs: Jacobians, exact Jacobians, what leaves every layer."""

from hessmap.functions.jacobians import ExactFunction, JacobianGram, exact_function, input_jacobians, jacobian_chunks
from hessmap.functions.network_function import (
    NetworkFunction,
    Representation,
    affine_layers,
    function_off_kinks,
    is_chain,
    plain_layers,
    representations,
)

__all__ = [
    "ExactFunction",
    "JacobianGram",
    "NetworkFunction",
    "Representation",
    "affine_layers",
    "exact_function",
    "function_off_kinks",
    "input_jacobians",
    "is_chain",
    "jacobian_chunks",
    "plain_layers",
    "representations",
]
