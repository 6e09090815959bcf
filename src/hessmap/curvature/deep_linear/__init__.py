"""Deep linear networks in closed form: a second road to their Hessians, and their spectrum without the kernel."""

from hessmap.curvature.deep_linear.convolutional import DeepLinearConvolution, DeepLinearConvolutionHessian
from hessmap.curvature.deep_linear.convolutional_of_problem import deep_linear_convolution_of
from hessmap.curvature.deep_linear.from_problem import deep_linear_of
from hessmap.curvature.deep_linear.kernel import LayerKernel, explicit_kernel, kernel_residual
from hessmap.curvature.deep_linear.network import DeepLinear
from hessmap.curvature.deep_linear.operators import DeepLinearHessian
from hessmap.curvature.deep_linear.reduction import Reduction, reduce_deep_linear

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
