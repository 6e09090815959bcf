"""Some eigenpairs of a large symmetric operator, from products alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from operator import index
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.curvature.operator import LinearOperator
from hessmap.errors import InvalidInput, require, sentence
from hessmap.measurement.krylov_basis import KrylovBasis, Product
from hessmap.measurement.matrices import Matrix, float_array, is_narrow, reachable_tolerance
from hessmap.measurement.wanted_pairs import End, Reference, WantedPairs
from hessmap.results import EigenpairsMeasurement, provenance

_TOLERANCE = 1e-8
_PROBE_WIDTH, _PROBE_STEPS, _MIN_PROBE_STEPS = 4, 12, 6
_ENOUGH_PROBES = 3  # that ran out of room before they had an answer, and showed nothing


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
    generator = torch.Generator().manual_seed(seed)
    block = _start_block(start, size, width, generator)
    basis = KrylovBasis(product, size, _store(size, capacity), generator)
    basis.start(block, width)
    state = _iterate(basis, wanted, capacity, width, max_products or 20 * size + 1000)
    if is_narrow(matrix):
        state = _with_true_residuals(basis, wanted, state)
    return _measurement(basis, wanted, state, matrix, seed)


def default_block(matrix: Matrix, size: int, count: int) -> int:
    """Narrow blocks need fewer products; wide ones pay where many vectors cost little more than one."""
    widest = matrix.block_size if isinstance(matrix, LinearOperator) else 16
    return min(size, widest, max(4, count))


def default_basis(size: int, count: int, block_size: int) -> int:
    """How many vectors are held before a restart, unless it is said."""
    return min(size, 2 * count + max(8 * block_size, 32))


def eigenpairs_bytes(size: int, count: int, block_size: int) -> int:
    """The memory that ``top_eigenpairs`` takes with its default basis: basis, returned vectors, some blocks."""
    store = _store(size, default_basis(size, count, block_size))
    return 8 * size * (store + count + 6 * block_size)


def _store(size: int, capacity: int) -> int:
    return min(size, capacity + _PROBE_WIDTH * _PROBE_STEPS)


@dataclass(frozen=True)
class _State:
    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: bool
    num_probes: int
    num_restarts: int


def _iterate(basis: KrylovBasis, wanted: WantedPairs, capacity: int, width: int, max_products: int) -> _State:
    num_probes = num_restarts = undecided = 0
    while True:
        if len(basis.block):
            basis.expand()
        while 0 < len(basis.block) <= wanted.total(basis.size) - basis.dimension and basis.num_products < max_products:
            basis.expand()  # too few vectors to hold what is wanted
        values, vectors, residuals = basis.ritz()
        chosen = wanted.chosen(values)
        complete = basis.dimension == basis.size or not len(basis.block)
        settled = len(chosen) == wanted.total(basis.size)
        settled = settled and bool(wanted.limits(values[chosen], residuals[chosen], basis.norm).all())
        state = _State(values[chosen], vectors[:, chosen], residuals[chosen], complete, num_probes, num_restarts)
        if complete:
            return state
        if settled:
            slack = max(10 * wanted.tolerance, 1e-12) * basis.norm
            probe_width = _PROBE_WIDTH if num_probes else min(_PROBE_WIDTH, max(2, width))
            probe = basis.probe(probe_width, _MIN_PROBE_STEPS, partial(wanted.is_clear, state.values, slack))
            num_probes += 1
            undecided += probe.verdict is None
            if probe.verdict or undecided == _ENOUGH_PROBES:
                return replace(state, converged=True, num_probes=num_probes)
            basis.join(probe.coordinates[wanted.chosen(probe.values, extra=width)], width)
        if basis.num_products >= max_products:
            return state
        if basis.dimension + len(basis.block) > capacity:
            extra = max(width, (capacity - len(chosen)) // 3)
            kept = wanted.chosen(values, max(0, min(extra, capacity - len(chosen) - len(basis.block) - width)))
            basis.restart(values[kept], vectors[:, kept])
            num_restarts += 1


def _with_true_residuals(basis: KrylovBasis, wanted: WantedPairs, state: _State) -> _State:
    vectors = basis.combined(state.vectors)
    images = basis.product(vectors) / (basis.unit or 1.0)
    basis.num_products += vectors.shape[1]
    residuals = (images - vectors * state.values).norm(dim=0)
    is_met = bool(wanted.limits(state.values, residuals, basis.norm).all())
    return replace(state, residuals=residuals, converged=state.converged and is_met)


def _measurement(
    basis: KrylovBasis, wanted: WantedPairs, state: _State, matrix: object, seed: int
) -> EigenpairsMeasurement:
    order = state.values.argsort(descending=True, stable=True)
    unit = basis.unit or 1.0
    eigenvectors = basis.combined(state.vectors[:, order])
    eigenvalues = state.values[order]
    check = _disagreement(basis, eigenvalues, eigenvectors)
    return EigenpairsMeasurement(
        eigenvalues=(unit * eigenvalues).numpy(),
        residuals=(unit * state.residuals[order]).numpy(),
        converged=state.converged,
        which=wanted.which,
        tolerance=wanted.tolerance,
        relative_to=wanted.relative_to,
        norm=unit * basis.norm,
        num_products=basis.num_products,
        num_probes=state.num_probes,
        num_restarts=state.num_restarts,
        residual_check=unit * check,
        size=basis.size,
        seed=seed,
        eigenvectors=eigenvectors.numpy(),
        provenance=getattr(matrix, "provenance", None) or provenance(seed=seed),
    )


def _disagreement(basis: KrylovBasis, values: Tensor, vectors: Tensor) -> float:
    """||A V c - V L c|| for random signs c, by one product: about the root of the sum of squared residuals, if those
    that the recurrence claims are true."""
    if not len(values):
        return 0.0
    signs = torch.randint(0, 2, (len(values), 1), generator=basis.generator).double() * 2 - 1
    mixed = vectors @ signs
    image = basis.product(mixed) / (basis.unit or 1.0)
    basis.num_products += 1
    return float((image - vectors @ (values[:, None] * signs)).norm())


def _product_of(matrix: Matrix) -> tuple[Product, int]:
    if isinstance(matrix, LinearOperator):
        rows, columns = matrix.shape
        require(rows == columns, "eigenpairs need a square operator", f"got shape {matrix.shape}")
        return matrix.matmat, rows
    array = torch.from_numpy(float_array(matrix))
    is_square = array.ndim == 2 and array.shape[0] == array.shape[1]
    require(is_square, "eigenpairs need a square matrix", f"got shape {tuple(array.shape)}")
    return array.__matmul__, len(array)


def _start_block(start: Tensor | NDArray[Any] | None, size: int, width: int, generator: torch.Generator) -> Tensor:
    """The given directions as rows; random mixtures of them if they are more than a block."""
    if start is None:
        return torch.empty(0, size, dtype=torch.float64)
    array = float_array(start, "start")
    if array.ndim != 2 or len(array) != size:
        must = f"start must hold vectors with {size} entries as columns"
        raise InvalidInput(sentence(must, f"got shape {array.shape}"))
    rows = torch.from_numpy(np.ascontiguousarray(array.T))
    if len(rows) <= width:
        return rows
    return torch.randn(width, len(rows), generator=generator, dtype=torch.float64) @ rows
