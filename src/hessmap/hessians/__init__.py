"""The Hessian of the loss, its Gauss-Newton and functional part and Fisher matrices as operators; dense Hessians."""

from hessmap.hessians.diagonal import LayerGraph, exact_diagonal, layer_graph
from hessmap.hessians.jacobian import SampleGradients, jacobian_rows, output_jacobian, sample_gradients, tangent_kernel
from hessmap.hessians.operators import (
    Hessian,
    distributed,
    empirical_fisher,
    fisher,
    functional_hessian,
    loss_hessian,
    outer_product_hessian,
)
from hessmap.hessians.sharded import ShardedHessian, sharded_hessian

ggn = outer_product_hessian  # the field's short name of the same operator

__all__ = [
    "Hessian",
    "LayerGraph",
    "SampleGradients",
    "ShardedHessian",
    "distributed",
    "empirical_fisher",
    "exact_diagonal",
    "fisher",
    "functional_hessian",
    "ggn",
    "jacobian_rows",
    "layer_graph",
    "loss_hessian",
    "outer_product_hessian",
    "output_jacobian",
    "sample_gradients",
    "sharded_hessian",
    "tangent_kernel",
]
