"""The exact dense Hessian from derivatives in the space of layer outputs."""

from hessmap.curvature.lifted.engine import DenseHessian, dense_hessian, require_symmetric_matrix
from hessmap.curvature.lifted.network import lifted_network

__all__ = ["DenseHessian", "dense_hessian", "lifted_network", "require_symmetric_matrix"]
