"""What some eigenpairs will take before they are asked for: blocks, products, memory."""

from __future__ import annotations

import torch

from hessmap.curvature.operator import LinearOperator
from hessmap.measurement.eigenpair_iteration import num_stored
from hessmap.measurement.matrices import Matrix

# Products of Lanczos with restarts: at the start, per eigenpair, per vector of a block. The plane through the medians
# of benchmarks/lanczos_products.py (loss Hessians of four networks, untrained and trained, to 1e-8); single operators
# took between 0.6 and 1.6 times as many.
_PRODUCTS_AT_START, _PRODUCTS_PER_PAIR, _PRODUCTS_PER_VECTOR = 13.1, 4.25, 15.6


def default_block(matrix: Matrix, size: int, count: int) -> int:
    """Narrow blocks need fewer products; wide ones pay where many vectors cost little more than one."""
    widest = matrix.block_size if isinstance(matrix, LinearOperator) else 16
    return min(size, widest, max(4, count))


def expected_products(size: int, count: int, block_size: int) -> int:
    """How many products the eigenpairs will take to 1e-8, about."""
    expected = _PRODUCTS_AT_START + _PRODUCTS_PER_PAIR * count + _PRODUCTS_PER_VECTOR * block_size
    return min(size, round(expected))


def default_basis(size: int, count: int, block_size: int) -> int:
    """How many vectors are stored before a restart, by default."""
    return min(size, 2 * count + max(8 * block_size, 32))


def basis_bytes(size: int, count: int, block_size: int, precision: torch.dtype = torch.float64) -> int:
    """The memory of the vectors that ``top_eigenpairs`` stores by default."""
    return size * precision.itemsize * num_stored(size, default_basis(size, count, block_size))


def eigenpairs_bytes(size: int, count: int, block_size: int, precision: torch.dtype = torch.float64) -> int:
    """The memory that ``top_eigenpairs`` takes with its default basis: basis, returned vectors, some blocks."""
    return basis_bytes(size, count, block_size, precision) + 8 * size * (count + 6 * block_size)
