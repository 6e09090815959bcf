"""A network as a function of its inputs: Jacobians, exact Jacobians, what leaves every layer."""

from hessmap.functions.exact_jacobians import ExactFunction, exact_function
from hessmap.functions.jacobians import JacobianGram, input_jacobians, jacobian_chunks
from hessmap.functions.network_function import NetworkFunction, function_off_kinks, plain_layers
from hessmap.functions.representations import Representation, affine_layers, is_chain, representations

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
