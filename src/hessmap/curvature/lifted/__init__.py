"""The exact dense Hessian from derivatives in the space of layer outputs."""

from hessmap.curvature.lifted.engine import DenseHessian, dense_hessian
from hessmap.curvature.lifted.network import lifted_network

__all__ = ["DenseHessian", "dense_hessian", "lifted_network"]
