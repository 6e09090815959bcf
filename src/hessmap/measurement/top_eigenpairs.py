"""Some eigenpairs of a large symmetric operator, from products alone."""

from __future__ import annotations

from dataclasses import replace
from operator import index
from typing import Any, SupportsIndex, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.curvature.operator import LinearOperator
from hessmap.errors import InvalidInput, require, sentence, unknown_name
from hessmap.measurement.krylov_basis import KrylovBasis, Product
from hessmap.measurement.lanczos import Lanczos, RitzPairs, num_held
from hessmap.measurement.matrices import Matrix, float_array, is_narrow, reachable_tolerance
from hessmap.measurement.mixed_precision import Attempt, Precision, attempt, chosen_precision
from hessmap.measurement.wanted_pairs import End, Reference, WantedPairs
from hessmap.results import EigenpairsMeasurement, Provenance, provenance

_TOLERANCE = 1e-8


def top_eigenpairs(
    matrix: Matrix,
    count: SupportsIndex,
    *,
    which: End = "largest",
    tolerance: float | None = None,
    relative_to: Reference = "norm",
    start: Tensor | NDArray[Any] | None = None,
    block_size: int | None = None,
    max_basis: int | None = None,
    max_products: int | None = None,
    precision: Precision = "auto",
    seed: int = 0,
) -> EigenpairsMeasurement:
    """The ``count`` largest (smallest, both ends: as many from each, largest in magnitude) eigenpairs.

    Block Lanczos with full re-orthogonalisation and thick restarts (Wu & Simon 2000). A pair has converged when
    ||A v - lambda v|| <= tolerance * ||A|| (or * |lambda|, with ``relative_to="eigenvalue"``). A Krylov space of b
    vectors never sees more than b copies of a repeated eigenvalue: so once all pairs have converged a random block and
    its images join the basis, and only if no value appears beyond the last wanted one is the result ``converged``;
    else the iteration goes on with what was found. Residuals are those of the recurrence, right to 1e-12 of the norm.

    The default tolerance is 1e-8, and 1e-5 for an operator in float32, whose products are no better than 1e-6 of the
    norm: the recurrence then promises more than is true, so residuals are those of one more product with each vector,
    and ``converged`` holds only if these meet the tolerance.

    ``precision``: where the operator offers products in float32 (the Hessian of a problem does) and the tolerance is at
    least 1e-5, the iteration can use these. "mixed" then makes one product in float64 with each vector found, for
    values that are right to the square of the residuals and for true residuals; "single" makes three in all, adds what
    they show of rounding to the residuals, and values are right to these. If they miss the tolerance, the iteration
    goes on in float64: what is promised is the same. "auto" is for sizes from 10,000 on: "single" at tolerances from
    1e-3 on, whose square is no better, "mixed" below; "float64" in all other cases.

    ``start`` holds approximate eigenvectors as columns; more than ``block_size`` of them are mixed. ``max_basis``
    bounds the vectors that are held and ``max_products`` the work; when that is used up the pairs are returned as they
    are, with ``converged`` False.

    >>> found = top_eigenpairs(np.diag([3.0, 3.0, 1.0, 0.0, -5.0]), 2)
    >>> found.eigenvalues.round(12), found.converged
    (array([3., 3.]), True)
    """
    product, size = _product_of(matrix)
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else tolerance
    wanted = WantedPairs(which, index(count), accuracy, relative_to)
    wanted.check(size)
    width = block_size or default_block(matrix, size, wanted.count)
    require(1 <= width <= size, f"block_size must lie between 1 and the size {size}", f"got {width}")
    held = wanted.total(size)
    capacity = max_basis or default_basis(size, held, width)
    require(
        capacity >= min(size, held + 2 * width), f"max_basis must be at least {held + 2 * width}", f"got {capacity}"
    )
    if precision not in get_args(Precision):
        raise unknown_name("precision", precision, get_args(Precision))
    plan = Lanczos(size, wanted, width, capacity, max_products or 20 * size + 1000, seed, _held_precision(matrix))
    rows = None if start is None else _start_rows(start, size)
    tried = attempt(matrix, product, plan, rows, chosen_precision(precision, matrix, plan))
    if tried.is_final and tried.basis and tried.pairs:
        return _measurement(tried.basis, plan, tried.pairs, matrix, tried, tried.check)
    left = replace(plan, max_products=plan.max_products - tried.num_products)
    basis, pairs = left.run(product, rows if tried.start is None else tried.start)
    if is_narrow(matrix):
        pairs = _with_true_residuals(basis, wanted, pairs)
    check = _disagreement(basis, pairs)
    spent = replace(tried, num_products=tried.num_products + basis.num_products)
    return _measurement(basis, plan, pairs, matrix, spent, check)


def default_block(matrix: Matrix, size: int, count: int) -> int:
    """Narrow blocks need fewer products; wide ones pay where many vectors cost little more than one."""
    widest = matrix.block_size if isinstance(matrix, LinearOperator) else 16
    return min(size, widest, max(4, count))


def default_basis(size: int, count: int, block_size: int) -> int:
    """How many vectors are held before a restart, unless it is said."""
    return min(size, 2 * count + max(8 * block_size, 32))


def eigenpairs_bytes(size: int, count: int, block_size: int, precision: torch.dtype = torch.float64) -> int:
    """The memory that ``top_eigenpairs`` takes with its default basis: basis, returned vectors, some blocks."""
    held = num_held(size, default_basis(size, count, block_size))
    return size * (precision.itemsize * held + 8 * (count + 6 * block_size))


def _held_precision(matrix: object) -> torch.dtype:
    """float32 where products round their vectors to it anyway."""
    held: torch.dtype = getattr(matrix, "precision", torch.float64)
    return held


def _with_true_residuals(basis: KrylovBasis, wanted: WantedPairs, pairs: RitzPairs) -> RitzPairs:
    vectors = basis.combined(pairs.vectors)
    images = basis.product(vectors) / (basis.unit or 1.0)
    basis.num_products += vectors.shape[1]
    residuals = (images - vectors * pairs.values).norm(dim=0)
    is_met = bool(wanted.limits(pairs.values, residuals, basis.norm).all())
    return replace(pairs, residuals=residuals, converged=pairs.converged and is_met)


def _measurement(
    basis: KrylovBasis, plan: Lanczos, pairs: RitzPairs, matrix: object, spent: Attempt, check: float
) -> EigenpairsMeasurement:
    order = pairs.values.argsort(descending=True, stable=True)
    unit, wanted = basis.unit or 1.0, plan.wanted
    vectors = basis.combined(pairs.vectors[:, order])
    if basis.precision != torch.float64:
        _orthonormalise(vectors)
    origin: Provenance = getattr(matrix, "provenance", None) or provenance(seed=plan.seed)
    if spent.num_single_products:
        note = f"{spent.num_single_products} of {spent.num_products} products were made in float32"
        origin = replace(origin, notes=(*origin.notes, note))
    return EigenpairsMeasurement(
        eigenvalues=(unit * pairs.values[order]).numpy(),
        residuals=(unit * pairs.residuals[order]).numpy(),
        converged=pairs.converged,
        which=wanted.which,
        tolerance=wanted.tolerance,
        relative_to=wanted.relative_to,
        norm=unit * basis.norm,
        num_products=spent.num_products,
        num_probes=pairs.num_probes,
        num_restarts=pairs.num_restarts,
        residual_check=unit * check,
        size=basis.size,
        seed=plan.seed,
        eigenvectors=vectors.numpy(),
        provenance=origin,
        num_single_products=spent.num_single_products,
    )


def _orthonormalise(vectors: Tensor) -> None:
    """A step of Newton and Schulz, in place: what is orthonormal to e before is to e^2 after."""
    step = 1.5 * torch.eye(vectors.shape[1], dtype=vectors.dtype) - (vectors.T @ vectors) / 2
    for start in range(0, len(vectors), 4096):
        piece = vectors[start : start + 4096]
        piece.copy_(piece @ step)


def _disagreement(basis: KrylovBasis, pairs: RitzPairs) -> float:
    """||A V c - V L c|| for random signs c, by one product: about the root of the sum of squared residuals, if those
    that the recurrence claims are true."""
    if not len(pairs.values):
        return 0.0
    signs = torch.randint(0, 2, (len(pairs.values), 1), generator=basis.generator).double() * 2 - 1
    mixed = basis.combined(torch.cat([pairs.vectors @ signs, pairs.vectors @ (pairs.values[:, None] * signs)], 1))
    image = basis.product(mixed[:, :1]) / (basis.unit or 1.0)
    basis.num_products += 1
    return float((image - mixed[:, 1:]).norm())


def _product_of(matrix: Matrix) -> tuple[Product, int]:
    if isinstance(matrix, LinearOperator):
        rows, columns = matrix.shape
        require(rows == columns, "eigenpairs need a square operator", f"got shape {matrix.shape}")
        return matrix.matmat, rows
    array = torch.from_numpy(float_array(matrix))
    is_square = array.ndim == 2 and array.shape[0] == array.shape[1]
    require(is_square, "eigenpairs need a square matrix", f"got shape {tuple(array.shape)}")
    return array.__matmul__, len(array)


def _start_rows(start: Tensor | NDArray[Any], size: int) -> Tensor:
    array = float_array(start, "start")
    if array.ndim != 2 or len(array) != size:
        must = f"start must hold vectors with {size} entries as columns"
        raise InvalidInput(sentence(must, f"got shape {array.shape}"))
    return torch.from_numpy(np.ascontiguousarray(array.T))
