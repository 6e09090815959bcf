"""What some eigenpairs will take before they are asked for: blocks, products, memory.

What speaks against eigenpairs that seem to have converged.

Some eigenpairs of a large symmetric operator, from products alone.

The largest eigenvalue of an operator from a given number of products: quick, with a residual, without a proof."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any, SupportsIndex, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import InvalidInput, checked_count, checked_number, checked_seed, require, require_name, sentence
from hessmap.linalg import LinearOperator, ParallelLanczos, ScaledProduct, ShardedOperator
from hessmap.measurement.eigenpair_iteration import (
    ENDS,
    LOOSE,
    EigenpairIteration,
    End,
    Reference,
    RitzPairs,
    WantedPairs,
    num_stored,
)
from hessmap.measurement.mixed_precision import Attempt, Precision, attempt, chosen_precision, with_rounding
from hessmap.measurement.operators_in import (
    ASYMMETRY_TOLERANCE,
    Matrix,
    announce_products,
    asymmetry_tolerance,
    float_array,
    is_narrow,
    measured_product,
    reachable_tolerance,
)
from hessmap.measurement.probes import ProbedOperator
from hessmap.measurement.sharded import sharded_eigenpairs
from hessmap.progress import shown_work
from hessmap.records import EigenpairsMeasurement, Provenance, SharpnessMeasurement, provenance

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


_ROUNDING_IN_FLOAT64 = 1e-12  # of the norm


def with_true_residuals(wanted: WantedPairs, pairs: RitzPairs) -> tuple[RitzPairs, float]:
    """The pairs with the residuals of one more product with each vector, and the norm of a random combination."""
    vectors = pairs.vectors()
    misfits = pairs.process.product(vectors) - vectors * pairs.values.to(vectors.device)
    residuals = misfits.norm(dim=0).cpu().double()
    is_met = wanted.are_met(pairs.values, residuals, pairs.norm)
    check = float((misfits @ pairs.random_signs(1).to(misfits)).norm()) if len(residuals) else 0.0
    return replace(pairs, residuals=residuals, converged=pairs.converged and is_met), check


def disagreement(pairs: RitzPairs) -> float:
    """||A V c - V L c|| for random signs c, by one product: about the root of the sum of squared residuals, if those
    that the recurrence claims are true."""
    if not len(pairs.values):
        return 0.0
    signs = pairs.random_signs(1)
    mixed = pairs.vectors(torch.cat([signs, pairs.values[:, None] * signs], 1))
    return float((pairs.process.product(mixed[:, :1]) - mixed[:, 1:]).norm())


def change_of_operator(matrix: object, pairs: RitzPairs, product: ScaledProduct) -> float:
    """How far the operator is another one than at the beginning, by one product; 0 where nothing has converged."""
    return product.change(_rounding(matrix) * pairs.norm) if pairs.converged else 0.0


def doubts_of(matrix: object, wanted: WantedPairs, pairs: RitzPairs, change: float, check: float) -> list[str]:
    """Products that change from call to call, residuals that a product made for them does not show, values whose last
    digits are above the tolerance, and a test for missed values that did not end."""
    if not pairs.converged:
        is_undecided = bool(pairs.num_probes) and wanted.are_met(pairs.values, pairs.residuals, pairs.norm)
        return ["not converged: the products did not rule out an eigenvalue beyond these"] if is_undecided else []
    found = []
    if change > max(wanted.tolerance, asymmetry_tolerance(matrix)):
        found.append(f"not converged: the first product, made once more, differs by {change:.2g} of its size")
    slack = max(wanted.tolerance, _rounding(matrix))
    allowed = float(pairs.residuals.sum()) + len(pairs.values) ** 0.5 * slack * pairs.norm
    if check > allowed:
        apart = check / (pairs.norm or 1.0)
        found.append(f"not converged: a product with the vectors found shows residuals of {apart:.2g} of the norm")
    if pairs.norm and not pairs.process.product.scale * pairs.norm * wanted.tolerance:
        found.append("not converged: numbers so close to zero have fewer digits than the tolerance asks for")
    return found


def _rounding(matrix: object) -> float:
    """Of the recurrence, relative to the norm."""
    slack = asymmetry_tolerance(matrix)
    return slack if slack > ASYMMETRY_TOLERANCE else _ROUNDING_IN_FLOAT64


_TOLERANCE, _SHARPNESS_TOLERANCE = 1e-8, 1e-6


@shown_work("eigenpairs")
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
    vectors never sees more than b copies of a repeated eigenvalue: so once all pairs have converged a random vector and
    its images are added, until a value beyond the last wanted one appears, and the iteration goes on with it, or one
    that lies beyond it by more than the tolerance would have been overlooked with a probability of at most 1e-3 (see
    ``missed_eigenvalues``). Only then is the result ``converged``. Residuals are those of the recurrence, right to
    1e-12 of the norm. Where one more product with the vectors, or the first one made once more, shows another operator
    than that of the iteration, the result is not ``converged``, and its notes say why.

    The default tolerance is 1e-8, and 1e-5 for an operator in float32, whose products are no better than 1e-6 of the
    norm: the recurrence then promises more than is true, so residuals are those of one more product with each vector,
    and ``converged`` holds only if these meet the tolerance. From a tolerance of 1e-4 on, the vectors of such an
    operator are kept in float32 as well, new ones are cleared of earlier ones only where they are seen to have lost
    their orthogonality to them (they keep half of the digits, which such a tolerance does not see), and two products
    with random mixtures of the vectors found tell how far the recurrence is off, which is added to its residuals;
    products with each of them follow where these then miss the tolerance.

    ``precision``: where the operator offers products in float32 (the Hessian of a problem does) and the tolerance is at
    least 1e-5, the iteration can use these. "mixed" then makes one product in float64 with each vector found, for
    values that are right to the square of the residuals and for true residuals; "single" makes three in all, adds what
    they show of rounding to the residuals, and values are right to these. If they miss the tolerance, the iteration
    goes on in float64: what is promised is the same. "auto" is for sizes from 10,000 on: "single" at tolerances from
    1e-3 on, whose square is no better, "mixed" below; "float64" in all other cases.

    ``start`` holds approximate eigenvectors as columns; more than ``block_size`` of them are mixed. ``max_basis``
    bounds the vectors that are stored and ``max_products`` the work; when that is used up the pairs are returned as
    they are, with ``converged`` False.

    >>> found = top_eigenpairs(np.diag([3.0, 3.0, 1.0, 0.0, -5.0]), 2)
    >>> found.eigenvalues.round(12), found.converged
    (array([3., 3.]), True)
    """
    if isinstance(matrix, ShardedOperator):
        return sharded_eigenpairs(
            matrix, count, which=which, tolerance=tolerance, max_basis=max_basis, max_products=max_products, seed=seed
        )
    product = measured_product(matrix)
    product.keeps_first = True
    product.device = matrix.device if isinstance(matrix, LinearOperator) else product.device
    size = product.size
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else tolerance
    wanted = _wanted_pairs(which, count, accuracy, relative_to, size)
    width = default_block(matrix, size, wanted.count)
    width = width if block_size is None else checked_count("block_size", block_size, None)
    require(1 <= width <= size, f"block_size must lie between 1 and the size {size}", f"got {width}")
    total = wanted.total(size)
    capacity = default_basis(size, total, width) if max_basis is None else checked_count("max_basis", max_basis, None)
    least = min(size, total + 2 * width)
    require(capacity >= least, f"max_basis must be at least {least}", f"got {capacity}")
    most = 20 * size + 1000 if max_products is None else checked_count("max_products", max_products, 1)
    require_name("precision", precision, get_args(Precision))
    stored = _stored_precision(matrix)
    if is_narrow(matrix) and wanted.tolerance >= LOOSE:
        stored = product.dtype = torch.float32
    plan = EigenpairIteration(size, wanted, width, capacity, most, checked_seed(seed), stored)
    rows = None if start is None else _start_rows(start, size)
    announce_products(matrix, product, min(most, expected_products(size, total, width)))
    tried = attempt(matrix, product, plan, rows, chosen_precision(precision, matrix, plan))
    if tried.is_final and tried.pairs is not None:
        return _measurement(matrix, plan, tried.pairs, product.num_products, tried)
    left = replace(plan, max_products=plan.max_products - tried.num_single_products - product.num_products)
    pairs = left.run(product, rows if tried.start is None else tried.start)
    change = change_of_operator(matrix, pairs, product)
    if is_narrow(matrix):
        pairs, check = _verified_pairs(wanted, pairs)
    else:
        check = disagreement(pairs)
    return _measurement(matrix, plan, pairs, product.num_products, replace(tried, check=check), change)


@shown_work("sharpness")
def sharpness(
    matrix: Matrix, *, tolerance: float | None = None, max_products: int | None = None, seed: int = 0
) -> SharpnessMeasurement:
    """The largest (signed) eigenvalue; gradient descent with a step above 2 / sharpness diverges along its vector
    (Cohen et al. 2021, "Gradient descent on neural networks typically occurs at the edge of stability").

    The default tolerance is 1e-6, and 1e-5 for an operator in float32.

    >>> round(sharpness(np.diag([4.0, 1.0, -9.0])).largest_stable_step, 12)
    0.5
    """
    if tolerance is None and not isinstance(matrix, ShardedOperator):
        tolerance = reachable_tolerance(matrix, _SHARPNESS_TOLERANCE)
    found = top_eigenpairs(matrix, 1, tolerance=tolerance, max_products=max_products, seed=seed)
    value = float(found.eigenvalues[0])
    return SharpnessMeasurement(
        value=value,
        residual=float(found.residuals[0]),
        converged=found.converged,
        largest_stable_step=2 / value if value > 0 else inf,
        num_products=found.num_products,
        size=found.size,
        seed=found.seed,
        provenance=found.provenance,
    )


def _wanted_pairs(which: End, count: SupportsIndex, tolerance: float, relative_to: Reference, size: int) -> WantedPairs:
    require_name("which", which, ENDS)
    require_name("relative_to", relative_to, get_args(Reference))
    number, accuracy = checked_count("count", count, None), checked_number("tolerance", tolerance)
    must = f"count must lie between 1 and the size {size} of the operator"
    require(1 <= number <= size, must, f"got {number}")
    must = "tolerance must lie between 1e-15 and 1, relative to the norm or the eigenvalue"
    require(1e-15 <= accuracy < 1, must, f"got {accuracy}")
    return WantedPairs(which, number, accuracy, relative_to)


def _stored_precision(matrix: object) -> torch.dtype:
    """float32 where products round their vectors to it anyway."""
    stored: torch.dtype = getattr(matrix, "precision", torch.float64)
    return stored


def _verified_pairs(wanted: WantedPairs, pairs: RitzPairs) -> tuple[RitzPairs, float]:
    """Pairs of an operator in float32 with residuals that can be believed, and the norm of a random combination."""
    if pairs.process.precision != torch.float64 and len(pairs.values):
        found, check = with_rounding(pairs, pairs.process.product)
        if not pairs.converged or wanted.are_met(found.values, found.residuals, found.norm):
            return found, check
    return with_true_residuals(wanted, pairs)


def _measurement(
    matrix: object, plan: EigenpairIteration, pairs: RitzPairs, num_products: int, tried: Attempt, change: float = 0.0
) -> EigenpairsMeasurement:
    doubts = doubts_of(matrix, plan.wanted, pairs, change, tried.check)
    order = pairs.values.argsort(descending=True, stable=True)
    process, wanted = pairs.process, plan.wanted
    unit = process.product.scale
    vectors = process.combine(pairs.coordinates[:, order]).cpu()
    residuals = pairs.residuals[order]
    if process.precision != torch.float64:
        residuals = residuals + _orthonormalise(vectors, pairs.values[order])
    is_met = process.precision == torch.float64 or wanted.are_met(pairs.values[order], residuals, pairs.norm)
    origin: Provenance = getattr(matrix, "provenance", None) or provenance(seed=plan.seed)
    if tried.num_single_products:
        num_products += tried.num_single_products
        note = f"{tried.num_single_products} of {num_products} products were made in float32"
        origin = replace(origin, notes=(*origin.notes, note))
    origin = replace(origin, notes=(*origin.notes, *doubts)) if doubts else origin
    return EigenpairsMeasurement(
        eigenvalues=(unit * pairs.values[order]).numpy(),
        residuals=(unit * residuals).numpy(),
        converged=pairs.converged and is_met and not doubts,
        which=wanted.which,
        tolerance=wanted.tolerance,
        relative_to=wanted.relative_to,
        norm=unit * pairs.norm,
        num_products=num_products,
        num_probes=pairs.num_probes,
        num_restarts=pairs.num_restarts,
        residual_check=unit * tried.check,
        size=process.size,
        seed=plan.seed,
        eigenvectors=vectors.numpy(),
        provenance=origin,
        num_single_products=tried.num_single_products,
    )


def _orthonormalise(vectors: Tensor, values: Tensor) -> Tensor:
    """A step of Newton and Schulz, in place: what is orthonormal to e before is to e^2 after. How much it adds to the
    residuals of eigenvectors of these values, at most: a part of another one counts by the distance of their values."""
    step = 1.5 * torch.eye(vectors.shape[1], dtype=vectors.dtype) - (vectors.T @ vectors) / 2
    for start in range(0, len(vectors), 4096):
        piece = vectors[start : start + 4096]
        piece.copy_(piece @ step)
    mixed: Tensor = (step * (values[:, None] - values)).norm(dim=0)
    return mixed


def _start_rows(start: Tensor | NDArray[Any], size: int) -> Tensor:
    array = float_array(start, "start")
    if array.ndim != 2 or len(array) != size:
        must = f"start must hold vectors with {size} entries as columns"
        raise InvalidInput(sentence(must, f"got shape {array.shape}"))
    return torch.from_numpy(np.array(array.T, order="C"))


_EACH = 4  # steps between two looks at the residual


def largest_ritz_value(
    matrix: Matrix, max_products: int = 24, *, tolerance: float = 1e-2, seed: int = 0
) -> SharpnessMeasurement:
    """The largest Ritz value of a Krylov space, which is never above the largest eigenvalue.

    An eigenvalue lies within ``residual`` of it, as a last product, with its vector, shows; ``converged`` says whether
    that is at most ``tolerance`` of its magnitude. Unlike ``sharpness`` it makes no random restart that would show a
    larger one which the start missed.

    >>> import numpy as np
    >>> round(largest_ritz_value(np.diag([4.0, 1.0, -9.0])).value, 12)
    4.0
    """
    operator = ProbedOperator(matrix, seed)
    max_products = checked_count("max_products", max_products, 1)
    most = min(operator.size, max(1, max_products - 1))
    tolerance = checked_number("tolerance", tolerance)
    process = ParallelLanczos(operator.product, operator.normals(1).T, most, "semi")
    value = residual = 0.0
    vector = torch.zeros(operator.size, 1, dtype=torch.float64)
    while process.dimension < most and process.width:
        process.expand()
        if process.dimension % _EACH == 0 or process.dimension == most or not process.width:
            values, vectors = torch.linalg.eigh(process.projection[0])
            coupling = process.coupling[0] @ vectors[:, -1] if process.width else vectors.new_zeros(1)
            value, residual = float(values[-1]), float(coupling.norm())
            vector = process.basis[0].T @ vectors[:, -1:]
            if residual <= tolerance * abs(value):
                break
    if max_products > 1:
        residual = float((operator.product(vector) - value * vector).norm())
    value, residual = operator.scale * value, operator.scale * residual
    is_close = residual <= tolerance * abs(value) and (tolerance * abs(value) > 0 or value == 0)
    return SharpnessMeasurement(
        value=value,
        residual=residual,
        converged=is_close,
        largest_stable_step=2 / value if value > 0 else float("inf"),
        num_products=operator.num_products,
        size=operator.size,
        seed=operator.seed,
        provenance=operator.provenance,
    )
