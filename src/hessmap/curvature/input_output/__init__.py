"""A network as a function of its inputs: Jacobians, exact Jacobians, what leaves every layer."""

from hessmap.curvature.input_output.exact_jacobians import ExactFunction, exact_function
from hessmap.curvature.input_output.jacobians import input_jacobians, jacobian_chunks
from hessmap.curvature.input_output.network_function import NetworkFunction
from hessmap.curvature.input_output.point_jacobian import JacobianGram
from hessmap.curvature.input_output.representations import Representation, affine_layers, is_chain, representations

__all__ = [
    "ExactFunction",
    "JacobianGram",
    "NetworkFunction",
    "Representation",
    "affine_layers",
    "exact_function",
    "input_jacobians",
    "is_chain",
    "jacobian_chunks",
    "representations",
]
