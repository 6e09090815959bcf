"""The Lanczos process, by which spectral norms, eigenpairs, Gauss rules and solutions of linear systems are found.

It sees a product with vectors, never a network.
"""

from hessmap.curvature.lanczos.block import BlockLanczos
from hessmap.curvature.lanczos.orthogonalisation import inner_matrix, orthonormal_columns
from hessmap.curvature.lanczos.parallel import ParallelLanczos, spectral_norm
from hessmap.curvature.lanczos.scaled_product import Product, ScaledProduct

__all__ = [
    "BlockLanczos",
    "ParallelLanczos",
    "Product",
    "ScaledProduct",
    "inner_matrix",
    "orthonormal_columns",
    "spectral_norm",
]
