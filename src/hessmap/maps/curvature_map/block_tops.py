"""The largest eigenvalue of every diagonal block of an operator, from a few products for each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.measurement import EPS, Floats, Matrix, ProbedOperator

LEAST_STEPS = 3  # that every block makes: a small residual before may be that of a start near another eigenvector
_NOISE = 0.1  # beside the start, so that no direction is left out
_TOGETHER = 2**28  # bytes of vectors that are multiplied at once


@dataclass(frozen=True, eq=False)
class BlockTops:
    """For every block: the largest Ritz value, which is never above the largest eigenvalue of the block by more than
    rounding, how far an eigenvalue is from it at most, and whether that is within the tolerance."""

    values: Floats
    residuals: Floats
    converged: NDArray[np.bool_]
    num_products: int


def block_tops(
    matrix: Matrix,
    block_of: Tensor,
    *,
    start: Tensor | None = None,
    max_products: int,
    max_steps: int = 16,
    tolerance: float = 1e-2,
    seed: int = 0,
) -> BlockTops:
    """Lanczos in all blocks at once, one step after the other, as far as the products go.

    Blocks share no entries, so one vector of the full size holds the current vector of every block, and a step of all
    of them takes one product each: the vector within the block, zero elsewhere. Blocks that have converged make no more
    products, and when there are too few products left for all others the step is left out.

    Args:
        matrix: The whole symmetric operator.
        block_of: The number of the block of each row, from 0 on.
        start: A vector whose part in a block is near to the block's top eigenvector, such as that of the whole
            operator; random numbers are added to it.
        max_products: Products of all blocks together; ``LEAST_STEPS`` steps of every block are made in any case.
        max_steps: Steps of one block at most; as many vectors of the full size are stored.
        tolerance: The residual relative to the value at which a block has converged.
        seed: Of the random numbers.

    Returns:
        BlockTops: values and residuals in the order of the blocks.

    >>> found = block_tops(np.diag([3.0, 1.0, -2.0]), torch.tensor([0, 0, 1]), max_products=6)
    >>> found.values.round(12).tolist(), found.converged.tolist()
    ([3.0, -2.0], [True, True])
    """
    operator = ProbedOperator(matrix, seed)
    sizes = torch.bincount(block_of)
    num_blocks = len(sizes)
    noise = _unit(operator.normals(1)[:, 0], block_of, num_blocks)
    vector = noise if start is None else _unit(start.to(torch.float64), block_of, num_blocks) + _NOISE * noise
    vector = _unit(vector, block_of, num_blocks)
    basis: list[Tensor] = []
    projections = torch.zeros(num_blocks, max_steps, max_steps, dtype=torch.float64)
    values, residuals = torch.zeros(2, num_blocks, dtype=torch.float64)
    is_done = sizes == 0
    for step in range(max_steps):
        active = torch.nonzero(~is_done)[:, 0]
        if not len(active) or (step >= LEAST_STEPS and operator.num_products + len(active) > max_products):
            break
        basis.append(vector)
        rest = _block_images(operator, vector, block_of, active)
        for _ in range(2):  # the second time for what rounding left
            for place, earlier in enumerate(basis):
                shares = _sums(earlier * rest, block_of, num_blocks)
                rest -= shares[block_of] * earlier
                projections[:, place, step] += shares
        lengths = _sums(rest.square(), block_of, num_blocks).sqrt()
        found, vectors = torch.linalg.eigh(projections[:, : step + 1, : step + 1], UPLO="U")
        values[active] = found[active, -1]
        residuals[active] = (lengths * vectors[:, -1, -1].abs())[active]
        has_ended = (sizes == step + 1) | (lengths <= sizes * EPS * found.abs().amax(1))
        is_close = (residuals <= tolerance * values.abs()) & (step + 1 >= LEAST_STEPS)
        is_done |= has_ended | is_close
        vector = torch.where(is_done | (lengths == 0), 0.0, 1 / lengths)[block_of] * rest
    scale = operator.scale
    return BlockTops(scale * values.numpy(), scale * residuals.numpy(), is_done.numpy(), operator.num_products)


def _block_images(operator: ProbedOperator, vector: Tensor, block_of: Tensor, active: Tensor) -> Tensor:
    """The product of every active block with its part of the vector; zero in the others."""
    images = torch.zeros_like(vector)
    for some in torch.split(active, max(1, min(16, _TOGETHER // (8 * max(1, len(vector)))))):
        columns = vector[:, None] * (block_of[:, None] == some)
        images += (operator.product(columns) * (block_of[:, None] == some)).sum(1)
    return images


def _unit(vector: Tensor, block_of: Tensor, num_blocks: int) -> Tensor:
    """Every part over its own norm; zeros where it has none."""
    lengths = _sums(vector.square(), block_of, num_blocks).sqrt()
    return vector / torch.where(lengths > 0, lengths, 1.0)[block_of]


def _sums(entries: Tensor, block_of: Tensor, num_blocks: int) -> Tensor:
    return torch.zeros(num_blocks, dtype=entries.dtype).index_add_(0, block_of, entries)
