"""Deep linear networks in closed form: a second way to their Hessians, and their spectrum without the kernel."""

from hessmap_research.deep_linear.convolutional import DeepLinearConvolution, DeepLinearConvolutionHessian
from hessmap_research.deep_linear.network import DeepLinear
from hessmap_research.deep_linear.of_problem import deep_linear_convolution_of, deep_linear_of
from hessmap_research.deep_linear.operators import DeepLinearHessian
from hessmap_research.deep_linear.reduction import (
    LayerKernel,
    Reduction,
    explicit_kernel,
    kernel_residual,
    reduce_deep_linear,
)

__all__ = [
    "DeepLinear",
    "DeepLinearConvolution",
    "DeepLinearConvolutionHessian",
    "DeepLinearHessian",
    "LayerKernel",
    "Reduction",
    "deep_linear_convolution_of",
    "deep_linear_of",
    "explicit_kernel",
    "kernel_residual",
    "reduce_deep_linear",
]
