"""Top eigenpairs of a layer Hessian, restricted to the directions it acts on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import prod
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import checked_count, checked_number, checked_seed, require, require_name
from hessmap.layers.hessian import CompressedHessian, LayerHessian
from hessmap.measurement import (
    Reference,
    eigenpairs_bytes,
    reachable_tolerance,
    rounding_unit,
    top_eigenpairs,
)
from hessmap.records import EigenpairsMeasurement

Bases = tuple[Tensor, Tensor]
# benchmarks/layer_eigenpairs.py counts the products and times them.
BLOCK_SIZE = 8  # wider blocks need more products, narrower ones leave the matrix products too thin
SINGLE_TOLERANCE = 1e-6  # from which on products in float32 are good enough
_RANGE = 1e25  # of the trace; float32 ends at 3e38
_AT_ONCE = 4  # vectors
_MOST_OF_THEM = 0.95  # of the size; above it a copy in fewer directions costs more than it saves


def layer_eigenpairs(
    hessian: LayerHessian,
    count: int,
    *,
    tolerance: float | None = None,
    relative_to: Reference = "norm",
    block_size: int = BLOCK_SIZE,
    seed: int = 0,
) -> EigenpairsMeasurement:
    """Compute the largest eigenpairs of a layer Hessian by ``top_eigenpairs``.

    Args:
        hessian: Layer Hessian, from ``layer_hessian``.
        count: Number of eigenpairs.
        tolerance: Bound on the residuals. Defaults to 1e-8, or 1e-5 for a Hessian in float32 or on an accelerator.
        relative_to: "norm" (of the operator) or "eigenvalue": what the tolerance is relative to. Defaults to "norm".
        block_size: Vectors per Lanczos block. Defaults to 8.
        seed: Seed of the start block. Defaults to 0.

    Returns:
        EigenpairsMeasurement: eigenvalues (descending), eigenvectors, residuals, ``converged``.

    Raises:
        InvalidInput: If ``count`` exceeds the size of the layer or the number of samples.

    Notes:
        Outputs and inputs that the Hessian never acts on (dead units, inputs that are always zero or linearly
        dependent) are left out. At a tolerance of 1e-6 or more products are in float32, whose rounding is below it.
        ``residual_check`` is computed with the whole Hessian in float64; if it is too large, the iteration is repeated
        without these shortcuts.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> found = layer_eigenpairs(hm.layer_hessian(problem, "0"), 2)
        >>> found.eigenvectors.shape, found.converged
        ((12, 2), True)
    """
    require_layer_hessian(hessian)
    samples, size = hessian.num_samples, hessian.size
    count = checked_count("count", count, None)
    tolerance = reachable_tolerance(hessian, 1e-8) if tolerance is None else checked_number("tolerance", tolerance)
    require_name("relative_to", relative_to, get_args(Reference))
    seed = checked_seed(seed)
    require(1 <= count <= size, f"count must be between 1 and the size {size} of the layer", f"got {count}")
    remedy = "Use more samples or fewer eigenpairs"
    must = "top eigenpairs of a layer need at least as many samples as eigenpairs"
    require(count <= samples, must, f"there are {samples} samples and count is {count}", remedy)
    width = min(size, checked_count("block_size", block_size))
    solve = partial(top_eigenpairs, count=count, relative_to=relative_to, block_size=width, seed=seed)
    bases = _active_directions(hessian)
    if _size_along(hessian, bases) >= max(count, width):
        if relative_to == "norm" and _iteration_precision(hessian, tolerance) == torch.float32:
            # Its products are float32 as they are: precision "float64" takes them so.
            narrow = _restricted_hessian(hessian, bases, torch.float32)
            found = _with_check(hessian, solve(narrow, tolerance=tolerance, precision="float64"), bases)
            if found.converged and (found.residuals <= tolerance * found.norm).all():
                return found
        found = solve(_restricted_hessian(hessian, bases, torch.float64), tolerance=tolerance)
        found = _with_check(hessian, found, bases)
        if found.residual_check <= 3 * count**0.5 * max(tolerance, 1e-13) * found.norm:
            return found
    return solve(hessian, tolerance=tolerance)


def require_layer_hessian(given: object) -> None:
    must, remedy = "a measurement of a layer needs its Hessian", "Use layer_hessian(problem, name)"
    require(isinstance(given, LayerHessian), must, f"got {type(given).__name__}", remedy)


def layer_eigenpairs_bytes(
    hessian: LayerHessian, count: int, *, tolerance: float = 1e-8, block_size: int = BLOCK_SIZE
) -> int:
    """Predict the memory of ``layer_eigenpairs``, beyond the Hessian itself (``hessian.plan.stored_bytes``).

    Args:
        hessian: Layer Hessian, from ``layer_hessian``.
        count: Number of eigenpairs.
        tolerance: Bound on the residuals. Defaults to 1e-8.
        block_size: Vectors per Lanczos block. Defaults to 8.

    Returns:
        Bytes of the larger of its two steps: the iteration, and the expansion of the eigenvectors to all directions.
    """
    require_layer_hessian(hessian)
    count, tolerance = checked_count("count", count), checked_number("tolerance", tolerance)
    bases = _active_directions(hessian)
    size, width = _size_along(hessian, bases), min(hessian.size, checked_count("block_size", block_size))
    precision = _iteration_precision(hessian, tolerance)
    copy = hessian.stored_bytes if bases is None else hessian.compressed_bytes(*_shape(bases))
    copy = copy * precision.itemsize // 8 if bases is not None or precision == torch.float32 else 0
    last = 0 if bases is None else 8 * count * (size + hessian.size)
    return copy + max(eigenpairs_bytes(size, count, width, precision), last)


def _iteration_precision(hessian: LayerHessian, tolerance: float) -> torch.dtype:
    return _range_precision(hessian) if tolerance >= SINGLE_TOLERANCE else torch.float64


def _range_precision(hessian: LayerHessian) -> torch.dtype:
    """float32 unless squares of the Hessian's rows might leave its range."""
    is_in_range = 1 / _RANGE < abs(hessian.trace) < _RANGE
    return torch.float32 if is_in_range else torch.float64


def _restricted_hessian(
    hessian: LayerHessian, bases: Bases | None, precision: torch.dtype
) -> LayerHessian | CompressedHessian:
    if bases is not None:
        return hessian.compressed(*bases, precision)
    return hessian if precision == torch.float64 else hessian.in_single_precision()


def _shape(bases: Bases) -> tuple[int, int]:
    return bases[0].shape[1], bases[1].shape[1]


def _size_along(hessian: LayerHessian, bases: Bases | None) -> int:
    return hessian.size if bases is None else prod(_shape(bases))


def _active_directions(hessian: LayerHessian) -> Bases | None:
    """Orthonormal columns that span the outputs and inputs that the Hessian acts on; None if those are nearly all of
    them.

    Terms of both signs are added as positive: their traces may cancel.
    """
    identities = [torch.eye(size, dtype=torch.float64) for size in hessian.weight_shape]
    shares = (
        hessian.contract_inputs(identities[1], without_signs=True),
        hessian.contract_outputs(identities[0], without_signs=True),
    )
    bases = _range(shares[0], rounding_unit(hessian)), _range(shares[1], rounding_unit(hessian))
    is_smaller = prod(_shape(bases)) <= _MOST_OF_THEM * hessian.size
    # Unfolded patches may take more than the images they come from.
    return bases if is_smaller and hessian.compressed_bytes(*_shape(bases)) <= hessian.stored_bytes else None


def _range(matrix: Tensor, eps: float) -> Tensor:
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    kept = values.abs() > len(values) * eps * values.abs().max()
    active: Tensor = vectors[:, kept] if kept.any() else vectors[:, :1]
    return active


def _with_check(hessian: LayerHessian, found: EigenpairsMeasurement, bases: Bases | None) -> EigenpairsMeasurement:
    """Eigenpairs of the whole Hessian, checked by one float64 product with a random mixture of them.

    An excess over the claimed residuals is rounding of cheaper products; it is distributed in proportion to the
    eigenvalues.
    """
    vectors = torch.from_numpy(found.eigenvectors)
    vectors = vectors if bases is None else _in_all_directions(vectors, *bases)
    count = len(found.eigenvalues)
    signs = np.random.default_rng(found.seed).choice((-1.0, 1.0), size=count)
    mixed = vectors @ torch.from_numpy(np.stack([signs, signs * found.eigenvalues], 1))
    check = float((hessian @ mixed[:, 0] - mixed[:, 1]).norm())
    beyond = max(0.0, check**2 - float(np.square(found.residuals).sum()))
    squares = np.square(found.eigenvalues)
    shares = squares / squares.sum() if squares.sum() > 0 else np.full(count, 1 / count)
    return replace(
        found,
        eigenvectors=vectors.numpy(),
        residuals=np.sqrt(np.square(found.residuals) + beyond * shares),
        size=hessian.size,
        residual_check=check,
        num_products=found.num_products + 1,
        provenance=hessian.provenance,
    )


def _in_all_directions(vectors: Tensor, outputs: Tensor, inputs: Tensor) -> Tensor:
    """(U (x) V) y for columns y, a few at a time."""
    spread = torch.empty(vectors.shape[1], len(outputs) * len(inputs), dtype=torch.float64)
    for start in range(0, len(spread), _AT_ONCE):
        matrices = vectors.T[start : start + _AT_ONCE].reshape(-1, outputs.shape[1], inputs.shape[1])
        spread[start : start + _AT_ONCE] = (outputs @ matrices @ inputs.T).flatten(1)
    return spread.T
