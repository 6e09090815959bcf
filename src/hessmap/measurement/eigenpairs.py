"""Some eigenpairs of a large symmetric operator from products alone, the checks that can revoke their convergence, and
the largest eigenvalue with few vectors or few products."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, SupportsIndex, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import (
    InvalidInput,
    TooLarge,
    checked_count,
    checked_number,
    checked_seed,
    require,
    require_name,
    sentence,
    short_text,
)
from hessmap.linalg import (
    STREAMED,
    BlockLanczos,
    LinearOperator,
    ParallelLanczos,
    ScaledProduct,
    ShardedOperator,
    default_budget,
    readable_bytes,
    to_host,
)
from hessmap.measurement.eigenpair_iteration import (
    LOOSE_TOLERANCE,
    Attempt,
    EigenpairIteration,
    Precision,
    RitzPairs,
    attempt,
    chosen_precision,
    with_rounding,
)
from hessmap.measurement.eigenpair_plan import (
    EigenpairMethod,
    EigenpairPlan,
    VectorFormat,
    budget_of,
    default_block,
    eigenpair_plan,
)
from hessmap.measurement.few_vectors import FewVectorPairs, few_vector_pairs
from hessmap.measurement.operators_in import (
    ASYMMETRY_TOLERANCE,
    Floats,
    Matrix,
    asymmetry_tolerance,
    float_array,
    hint_num_products,
    is_low_precision,
    measured_product,
    reachable_tolerance,
)
from hessmap.measurement.probes import ProbedOperator
from hessmap.measurement.sharded import sharded_eigenpairs
from hessmap.measurement.wanted_pairs import ENDS, End, Reference, Selection
from hessmap.progress import set_progress_total, shown_work
from hessmap.records import EigenpairsMeasurement, Provenance, SharpnessMeasurement, provenance

_ROUNDING_IN_FLOAT64, _ROUNDING_IN_FLOAT32 = 1e-12, 1e-6  # of the norm
_UNDECIDED = "not converged: the products do not exclude a larger eigenvalue that was missed"


def _changed_note(change: float) -> str:
    return f"not converged: the first product, repeated, differs by {change:.2g} of its size"


def with_true_residuals(wanted: Selection, pairs: RitzPairs, together: int | None) -> tuple[RitzPairs, float]:
    """The pairs with the residuals of one more product with each vector, and the norm of a random combination."""
    total = len(pairs.values)
    signs, residuals, combined = pairs.random_signs(1)[:, 0], [], None
    for start in range(0, total, together or max(1, total)):
        places = slice(start, start + (together or total))
        vectors = pairs.process.combine(pairs.coordinates[:, places])
        misfits = pairs.process.product(vectors) - vectors * pairs.values[places].to(vectors)
        residuals.append(to_host(misfits.norm(dim=0)))
        mixed = misfits @ signs[places].to(misfits)
        combined = mixed if combined is None else combined.add_(mixed)
    found = torch.cat(residuals) if residuals else torch.zeros(0, dtype=torch.float64)
    is_met = wanted.are_converged(pairs.values, found, pairs.norm)
    check = 0.0 if combined is None else float(combined.norm())
    return replace(pairs, residuals=found, converged=pairs.converged and is_met), check


def disagreement(pairs: RitzPairs) -> float:
    """||A V c - V L c|| for random signs c, by one product: about the root of the sum of squared residuals, if those
    that the recurrence claims are true."""
    if not len(pairs.values):
        return 0.0
    signs = pairs.random_signs(1)
    mixed = pairs.vectors(torch.cat([signs, pairs.values[:, None] * signs], 1))
    return float((pairs.process.product(mixed[:, :1]) - mixed[:, 1:]).norm())


def checked_by_products(matrix: object, pairs: RitzPairs, product: ScaledProduct) -> tuple[float, float]:
    """``disagreement`` and ``change_of_operator``, by one product where both are rounding.

    With A V = V L + B C of the recurrence and the first product A q = p, A (V c + q) is V L c + B C c + p.
    """
    if pairs.converged and product.first is not None and len(pairs.values):
        process, signs = pairs.process, pairs.random_signs(1)
        vector, image = product.first
        length = float(vector.norm())
        mixed = pairs.vectors(torch.cat([signs, pairs.values[:, None] * signs], 1))
        claimed = process.block.T @ (process.coupling @ (pairs.coordinates @ signs)).to(process.block)
        found = product(mixed[:, :1] + vector / length) - mixed[:, 1:] - image / length
        if float((found - claimed).norm()) <= _rounding(matrix) * pairs.norm:
            return float(found.norm()), 0.0
    change = change_of_operator(matrix, pairs, product)
    return disagreement(pairs), change


def change_of_operator(matrix: object, pairs: RitzPairs, product: ScaledProduct) -> float:
    """How far the operator is another one than at the beginning, by one product; 0 where nothing has converged."""
    return product.change(_rounding(matrix) * pairs.norm) if pairs.converged else 0.0


def convergence_failures(matrix: object, wanted: Selection, pairs: RitzPairs, change: float, check: float) -> list[str]:
    """Products that change from call to call, residuals that a product made for them does not show, values whose last
    digits are above the tolerance, and a test for missed values that did not end."""
    if not pairs.converged:
        is_undecided = bool(pairs.num_probes) and wanted.are_converged(pairs.values, pairs.residuals, pairs.norm)
        return [_UNDECIDED] if is_undecided else []
    found = []
    if change > max(wanted.tolerance, asymmetry_tolerance(matrix)):
        found.append(_changed_note(change))
    slack = max(wanted.tolerance, _rounding(matrix))
    allowed = float(pairs.residuals.sum()) + len(pairs.values) ** 0.5 * slack * pairs.norm
    if check > allowed:
        apart = check / (pairs.norm or 1.0)
        found.append(f"not converged: a product with the vectors found shows residuals of {apart:.2g} of the norm")
    if pairs.norm and not pairs.process.product.scale * pairs.norm * wanted.tolerance:
        found.append(
            "not converged: the operator's norm is in the subnormal range, which has too few digits for the tolerance"
        )
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
    method: EigenpairMethod = "auto",
    memory_budget: float | None = None,
    seed: int = 0,
) -> EigenpairsMeasurement:
    """Compute a few extreme eigenpairs of a symmetric operator from products with vectors.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator (symmetry is checked with two random
            products).
        count: Number of eigenpairs; of each end for ``which="both_ends"``.
        which: "largest" (default), "smallest", "both_ends" or "magnitude".
        tolerance: Bound on ||A v - lambda v|| relative to ||A||. Defaults to 1e-8, or 1e-5 for an operator in float32
            and for the Hessian of a problem on an accelerator.
        relative_to: "norm" (default), or "eigenvalue": the tolerance is relative to each |lambda|.
        start: Approximate eigenvectors as columns; more than ``block_size`` of them are mixed. Default: random.
        block_size: Vectors of a Lanczos block. Default: 1, or more where the operator multiplies blocks more cheaply.
        max_basis: Most vectors that are stored before a restart. Default: as many as help and fit the budget.
        max_products: Most products. When they are used up, the pairs are returned with ``converged`` False. Default:
            20 times the size.
        precision: "float64", "mixed" (products in float32, then one in float64 with each vector), "single" (products
            in float32, then three in float64), or "auto" (default): by size and tolerance.
        method: "thick_restart" (a stored Lanczos basis), "offloaded_restart" (a basis in host memory, streamed to an
            accelerator in every step), "three_term" (two vectors beside the eigenvectors, at least twice the products),
            or "auto" (default): the first of these that fits the budget; "three_term" before "offloaded_restart" where
            it needs no more products.
        memory_budget: Bytes that may be held at once beside the operator. Default: the budget of the operator's
            problem, else a quarter of the free memory of the machine or half of that of an accelerator.
        seed: Seed of the random vectors. Defaults to 0.

    Returns:
        EigenpairsMeasurement: eigenvalues (descending), eigenvectors, residuals, ``converged``, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.
        TooLarge: If the eigenvectors and three more vectors do not fit the budget.

    Notes:
        Block Lanczos with full re-orthogonalisation and thick restarts (Wu & Simon 2000). A Krylov space of b vectors
        contains at most b copies of a repeated eigenvalue. So once all pairs have converged, a random vector and its
        images are added until a value beyond the last wanted one appears, and the iteration continues with it, or until
        one that is beyond it by more than the tolerance would have been missed with a probability of at most 1e-3, of
        all such tests of a call together. The test examines the operator beside the whole basis, converged or not, by
        its Schur complement (``eigenpair_iteration.beside_basis``, ``wanted_pairs``). Only then is the result
        ``converged``. Residuals are those of the recurrence, right to 1e-12 of the norm. One more product, with the
        first vector and a random combination of the vectors found, verifies them; where it contradicts the recurrence
        or the first product, the result is not ``converged``, and its notes state why.

        Products of an operator in float32 are right to about 1e-6 of the norm, so residuals are those of one more
        product with each vector. From a tolerance of 1e-4 on, its vectors are stored in float32 as well and
        re-orthogonalised only where they lost half of their digits, and two products with random mixtures of the
        vectors show how far the recurrence is off, which is added to its residuals; products with each vector follow
        where these then miss the tolerance.

        With ``precision`` "mixed" and "single" the iteration uses products in float32 where the operator offers them
        (the Hessian of a problem does) and the tolerance is at least 1e-5. If the float64 products at the end miss the
        tolerance, the iteration continues in float64. "auto" is for sizes from 10,000 on: "single" at tolerances from
        1e-3 on, "mixed" below; "float64" in all other cases and where memory is short. On accelerators, where float64
        is up to 64 times slower, "auto" is the same for all sizes.

    Example:
        >>> found = top_eigenpairs(np.diag([3.0, 3.0, 1.0, 0.0, -5.0]), 2)
        >>> found.eigenvalues.round(12), found.converged
        (array([3., 3.]), True)
    """
    if isinstance(matrix, ShardedOperator):
        return sharded_eigenpairs(
            matrix, count, which=which, tolerance=tolerance, max_basis=max_basis, max_products=max_products, seed=seed
        )
    product = measured_product(matrix)
    size = product.size
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else tolerance
    wanted = _wanted_pairs(which, count, accuracy, relative_to, size)
    width = default_block(matrix, size, wanted.count)
    width = width if block_size is None else checked_count("block_size", block_size, None)
    require(1 <= width <= size, f"block_size must be between 1 and the size {size}", f"got {width}")
    total = wanted.total(size)
    least = min(size, total + 2 * width)
    capacity = None if max_basis is None else checked_count("max_basis", max_basis, None)
    require(capacity is None or capacity >= least, f"max_basis must be at least {least}", f"got {capacity}")
    most = 20 * size + 1000 if max_products is None else checked_count("max_products", max_products, 1)
    require_name("precision", precision, get_args(Precision))
    seed = checked_seed(seed)
    options: dict[str, Any] = {"capacity": capacity, "method": method, "is_width_free": block_size is None}
    memory, stored = _planned(matrix, product, wanted, width, memory_budget, **options)
    rows = None if start is None else _start_rows(start, size)
    expected = min(most, memory.num_products)
    if memory.method == "three_term":
        must = "start= is supported by Lanczos with restarts only"
        require(rows is None, must, "the method is three_term", "Leave start out, or increase the memory_budget")
        set_progress_total(expected, readable_bytes(memory.num_bytes))
        return _few_vector_measurement(matrix, product, wanted, most, seed, memory)
    product.remembers_first = True
    product.starts_at_random, product.seed = rows is None, seed
    product.keeps_spare = rows is None and not memory.is_limited
    plan = EigenpairIteration(size, wanted, memory.width, memory.capacity, most, seed, stored, memory.num_probe_vectors)
    if memory.host_bytes:
        plan = replace(plan, home=torch.device("cpu"))
    if memory.is_limited:
        plan = replace(plan, together=1)
        precision = "float64" if precision == "auto" else precision
    hint_num_products(matrix, product, expected)
    set_progress_total(expected, readable_bytes(memory.num_bytes))
    tried = attempt(matrix, product, plan, rows, chosen_precision(precision, matrix, plan))
    if tried.is_final and tried.pairs is not None:
        return _measurement(matrix, plan, tried.pairs, product.num_products, tried)
    left = replace(plan, max_products=plan.max_products - tried.num_single_products - product.num_products)
    pairs = left.run(product, rows if tried.start is None else tried.start)
    if is_low_precision(matrix):
        change = change_of_operator(matrix, pairs, product)
        pairs, check = _verified_pairs(wanted, pairs, plan.together)
    else:
        check, change = checked_by_products(matrix, pairs, product)
    return _measurement(matrix, plan, pairs, product.num_products, replace(tried, check=check), change)


@shown_work("sharpness")
def sharpness(
    matrix: Matrix,
    *,
    tolerance: float | None = None,
    max_products: int | None = None,
    method: EigenpairMethod = "auto",
    eigenvector: bool = False,
    memory_budget: float | None = None,
    seed: int = 0,
) -> SharpnessMeasurement:
    """Compute the largest (signed) eigenvalue, which bounds the stable step of gradient descent.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator.
        tolerance: Bound on the residual relative to ||A||. Defaults to 1e-6, or 1e-5 for an operator in float32 and
            for the Hessian of a problem on an accelerator.
        max_products: Most products. Default: 20 times the size.
        method: "thick_restart" (a stored Lanczos basis), "offloaded_restart" (as for ``top_eigenpairs``), "three_term"
            (three to five vectors, for models with 10^8 parameters), or "auto" (default): "three_term" where a basis
            does not fit the budget.
        eigenvector: Whether the record has the eigenvector, for which "three_term" makes a second pass. Defaults to
            False.
        memory_budget: Bytes that may be held at once beside the operator. Default: as for ``top_eigenpairs``.
        seed: Seed of the random start. Defaults to 0.

    Returns:
        SharpnessMeasurement: value, residual, ``converged``, largest stable step, cost.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite.
        TooLarge: If three vectors (four where the operator does not return new memory) do not fit the budget.

    Notes:
        Gradient descent with a step above 2 / sharpness diverges along its eigenvector (Cohen et al. 2021, "Gradient
        descent on neural networks typically occurs at the edge of stability"). "three_term" has the residual of the
        recurrence; a larger eigenvalue was missed with a probability of at most 1e-3 (``few_vectors``).

    Example:
        >>> round(sharpness(np.diag([4.0, 1.0, -9.0])).largest_stable_step, 12)
        0.5
    """
    if isinstance(matrix, ShardedOperator):
        found = top_eigenpairs(matrix, 1, tolerance=tolerance, max_products=max_products, seed=seed)
        return _sharpness_record(found, None)
    is_asked = isinstance(eigenvector, bool | np.bool_)
    require(is_asked, "eigenvector must be True or False", f"got {short_text(eigenvector)}")
    accuracy = reachable_tolerance(matrix, _SHARPNESS_TOLERANCE) if tolerance is None else tolerance
    product = measured_product(matrix)
    wanted = _wanted_pairs("largest", 1, accuracy, "norm", product.size)
    width = default_block(matrix, product.size, 1)
    memory, _ = _planned(matrix, product, wanted, width, memory_budget, method=method, needs_vectors=eigenvector)
    if memory.method == "three_term":
        most = 20 * product.size + 1000 if max_products is None else checked_count("max_products", max_products, 1)
        set_progress_total(min(most, memory.num_products), readable_bytes(memory.num_bytes))
        found = _few_vector_measurement(
            matrix, product, wanted, most, checked_seed(seed), memory, needs_vectors=eigenvector
        )
    else:
        options: dict[str, Any] = {"max_products": max_products, "method": memory.method, "seed": seed}
        found = top_eigenpairs(matrix, 1, tolerance=accuracy, memory_budget=memory_budget, **options)
    vectors = found.eigenvectors
    return _sharpness_record(found, vectors[:, 0] if eigenvector and vectors is not None else None)


def _sharpness_record(found: EigenpairsMeasurement, eigenvector: Floats | None) -> SharpnessMeasurement:
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
        eigenvector=eigenvector,
    )


def planned_eigenpairs(
    matrix: Matrix,
    count: int = 1,
    *,
    which: End = "largest",
    tolerance: float | None = None,
    block_size: int | None = None,
    max_basis: int | None = None,
    method: EigenpairMethod = "auto",
    eigenvectors: bool = True,
    memory_budget: float | None = None,
) -> EigenpairPlan:
    """Plan eigenpairs without a product: the memory and the products of ``top_eigenpairs`` or ``sharpness``.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator.
        count: Number of eigenpairs. Defaults to 1.
        which: As for ``top_eigenpairs``. Defaults to "largest".
        tolerance: As for ``top_eigenpairs``. Defaults to 1e-8, or 1e-5 for an operator in float32.
        block_size: As for ``top_eigenpairs``. Default: chosen for the operator.
        max_basis: As for ``top_eigenpairs``. Default: as many vectors as help and fit the budget.
        method: As for ``top_eigenpairs``. Defaults to "auto".
        eigenvectors: Whether eigenvectors are wanted. Defaults to True.
        memory_budget: As for ``top_eigenpairs``. Default: the budget of the operator's problem, else of its device.

    Returns:
        EigenpairPlan: The method, its bytes and its predicted number of products.

    Raises:
        InvalidInput: If the operator is not square, an array is not symmetric, or an argument is out of range.
        TooLarge: If nothing fits the budget.

    Example:
        >>> planned_eigenpairs(np.eye(50), 2).method
        'thick_restart'
    """
    product = measured_product(matrix)
    accuracy = reachable_tolerance(matrix, _TOLERANCE) if tolerance is None else tolerance
    wanted = _wanted_pairs(which, count, accuracy, "norm", product.size)
    width = default_block(matrix, product.size, wanted.count) if block_size is None else block_size
    options: dict[str, Any] = {"capacity": max_basis, "method": method, "needs_vectors": eigenvectors}
    return _planned(matrix, product, wanted, width, memory_budget, is_width_free=block_size is None, **options)[0]


def _planned(
    matrix: Matrix, product: ScaledProduct, wanted: Selection, width: int, budget: float | None, **options: Any
) -> tuple[EigenpairPlan, torch.dtype]:
    """How the pairs are computed, and the format of stored vectors; sets that of the product's.

    Vectors of an operator in float32 are in float32 as well where the tolerance allows it, and in the recurrence.
    """
    stored, total, allowed = _stored_precision(matrix), wanted.total(product.size), budget_of(matrix, budget)
    options["host_budget"] = 0 if product.device.type == "cpu" else default_budget()
    if is_low_precision(matrix):
        formats = [torch.float32] if wanted.tolerance >= LOOSE_TOLERANCE else [product.dtype, torch.float32]
        for product.dtype in formats:
            stored = torch.float32 if product.dtype == torch.float32 else stored
            is_last = product.dtype == formats[-1]
            with suppress(*([] if is_last else [TooLarge])):
                found = eigenpair_plan(_vector_format(matrix, product, stored), total, width, allowed, **options)
                if is_last or found.method != "three_term":
                    return found, stored
    return eigenpair_plan(_vector_format(matrix, product, stored), total, width, allowed, **options), stored


def _vector_format(matrix: Matrix, product: ScaledProduct, stored: torch.dtype) -> VectorFormat:
    copies = 1 if isinstance(matrix, LinearOperator) and matrix.makes_new_images else 2
    return VectorFormat(product.size, stored.itemsize, product.dtype.itemsize, copies, product.device.type == "cpu")


def _few_vector_measurement(
    matrix: Matrix,
    product: ScaledProduct,
    wanted: Selection,
    most: int,
    seed: int,
    memory: EigenpairPlan,
    needs_vectors: bool = True,
) -> EigenpairsMeasurement:
    """The record of eigenpairs by the three-term recurrence."""
    found = few_vector_pairs(product, wanted, most, seed, needs_vectors=needs_vectors)
    order = found.values.argsort(descending=True, stable=True)
    residuals = found.residuals[order]
    if is_low_precision(matrix) and not needs_vectors:  # the recurrence promises more than products in float32 give
        residuals = residuals + _ROUNDING_IN_FLOAT32 * found.norm
    notes = [f"three-term Lanczos without a stored basis, {readable_bytes(memory.num_bytes)} of vectors"]
    notes += [] if needs_vectors else ["the residual is that of the recurrence"]
    problems = _few_vector_problems(matrix, wanted, found, residuals)
    origin: Provenance = getattr(matrix, "provenance", None) or provenance(seed=seed)
    vectors = None
    if found.vectors is not None:
        vectors = (found.vectors if bool((order == torch.arange(len(order))).all()) else found.vectors[order]).cpu()
    return EigenpairsMeasurement(
        eigenvalues=(product.scale * found.values[order]).numpy(),
        residuals=(product.scale * residuals).numpy(),
        converged=found.converged and not problems,
        which=wanted.which,
        tolerance=wanted.tolerance,
        relative_to=wanted.relative_to,
        norm=product.scale * found.norm,
        num_products=product.num_products,
        num_probes=len(order),
        num_restarts=0,
        residual_check=product.scale * float(residuals.norm()),
        size=product.size,
        seed=seed,
        eigenvectors=None if vectors is None else vectors.double().T.numpy(),
        provenance=replace(origin, notes=(*origin.notes, *notes, *problems)),
        num_single_products=0,
    )


def _few_vector_problems(matrix: Matrix, wanted: Selection, found: FewVectorPairs, residuals: Tensor) -> list[str]:
    if found.is_undecided:
        return [_UNDECIDED]
    if found.converged and found.change > max(wanted.tolerance, asymmetry_tolerance(matrix)):
        return [_changed_note(found.change)]
    is_met = wanted.are_converged(found.values, residuals, found.norm)
    return [] if is_met or not found.converged else ["not converged: the residual exceeds the tolerance in float32"]


def _wanted_pairs(which: End, count: SupportsIndex, tolerance: float, relative_to: Reference, size: int) -> Selection:
    require_name("which", which, ENDS)
    require_name("relative_to", relative_to, get_args(Reference))
    number, accuracy = checked_count("count", count, None), checked_number("tolerance", tolerance)
    must = f"count must be between 1 and the size {size} of the operator"
    require(1 <= number <= size, must, f"got {number}")
    must = "tolerance must be between 1e-15 and 1, relative to the norm or the eigenvalue"
    require(1e-15 <= accuracy < 1, must, f"got {accuracy}")
    return Selection(which, number, accuracy, relative_to)


def _stored_precision(matrix: object) -> torch.dtype:
    """float32 where products round their vectors to it anyway."""
    stored: torch.dtype = getattr(matrix, "precision", torch.float64)
    return stored


def _verified_pairs(wanted: Selection, pairs: RitzPairs, together: int | None) -> tuple[RitzPairs, float]:
    """Pairs of an operator in float32 with residuals that can be believed, and the norm of a random combination."""
    if pairs.process.precision != torch.float64 and len(pairs.values):
        found, check = with_rounding(pairs, pairs.process.product)
        if not pairs.converged or wanted.are_converged(found.values, found.residuals, found.norm):
            return found, check
    return with_true_residuals(wanted, pairs, together)


def _measurement(
    matrix: object, plan: EigenpairIteration, pairs: RitzPairs, num_products: int, tried: Attempt, change: float = 0.0
) -> EigenpairsMeasurement:
    failures = convergence_failures(matrix, plan.wanted, pairs, change, tried.check)
    order = pairs.values.argsort(descending=True, stable=True)
    process, wanted = pairs.process, plan.wanted
    unit = process.product.scale
    vectors = _on_host(process, pairs.coordinates[:, order], plan.together)
    residuals = pairs.residuals[order]
    if process.precision != torch.float64:
        residuals = residuals + _orthonormalise(vectors, pairs.values[order])
    is_met = process.precision == torch.float64 or wanted.are_converged(pairs.values[order], residuals, pairs.norm)
    origin: Provenance = getattr(matrix, "provenance", None) or provenance(seed=plan.seed)
    if tried.num_single_products:
        num_products += tried.num_single_products
        note = f"{tried.num_single_products} of {num_products} products were made in float32"
        origin = replace(origin, notes=(*origin.notes, note))
    if plan.home is not None:
        blocks = f"{process.capacity} vectors is in host memory, streamed {STREAMED} at a time"
        origin = replace(origin, notes=(*origin.notes, f"the Lanczos basis of at most {blocks}"))
    origin = replace(origin, notes=(*origin.notes, *failures)) if failures else origin
    return EigenpairsMeasurement(
        eigenvalues=(unit * pairs.values[order]).numpy(),
        residuals=(unit * residuals).numpy(),
        converged=pairs.converged and is_met and not failures,
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


def _on_host(process: BlockLanczos, coordinates: Tensor, together: int | None) -> Tensor:
    """Vectors of the basis as columns on the host in float64, a few at a time where a device has little memory."""
    if process.product.device.type == "cpu" or together is None:
        return to_host(process.combine(coordinates))
    parts = [to_host(process.combine(part)) for part in torch.split(coordinates, together, 1)]
    return torch.cat(parts, 1) if parts else torch.zeros(process.size, 0, dtype=torch.float64)


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
        must = f"start must contain vectors with {size} entries as columns"
        raise InvalidInput(sentence(must, f"got shape {array.shape}"))
    return torch.from_numpy(np.array(array.T, order="C"))


_EACH = 4  # steps between two looks at the residual


def largest_ritz_value(
    matrix: Matrix, max_products: int = 24, *, tolerance: float = 1e-2, seed: int = 0
) -> SharpnessMeasurement:
    """Compute the largest Ritz value of a Krylov space: a lower bound on the largest eigenvalue, from few products.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator A.
        max_products: Most products of the iteration, the one that verifies the residual included; the check of the
            symmetry of an operator adds one, or a few where its rounding has to be measured. Defaults to 24.
        tolerance: Residual, relative to the Ritz value, at which the iteration stops. Defaults to 1e-2.
        seed: Seed of the random start. Defaults to 0.

    Returns:
        SharpnessMeasurement: The Ritz value, its residual, and ``converged``: whether the residual is within the
        tolerance.

    Raises:
        InvalidInput: If the operator is not square, symmetric, linear and finite, or an argument is out of range.

    Notes:
        Lanczos from one random start. An eigenvalue is within ``residual`` = ||A v - theta v|| of the Ritz value theta,
        which a last product with the Ritz vector verifies (with ``max_products`` of 1 the residual is that of the
        recurrence). Unlike ``sharpness`` it does not test whether the start missed a larger eigenvalue.

    Example:
        >>> import numpy as np
        >>> round(largest_ritz_value(np.diag([4.0, 1.0, -9.0])).value, 12)
        4.0
    """
    operator = ProbedOperator(matrix, seed)
    max_products = checked_count("max_products", max_products, 1)
    most = min(operator.size, max(1, max_products - 1))
    tolerance = checked_number("tolerance", tolerance)
    process = ParallelLanczos(operator.product, operator.normals(1).T, most, "semi_orthogonal")
    value = residual = 0.0
    vector = operator.normals(0)
    while process.dimension < most and process.width:
        process.expand()
        if process.dimension % _EACH == 0 or process.dimension == most or not process.width:
            values, vectors = torch.linalg.eigh(process.projection[0])
            coupling = process.coupling[0] @ vectors[:, -1] if process.width else vectors.new_zeros(1)
            value, residual = float(values[-1]), float(coupling.norm())
            vector = process.basis[0].T @ vectors[:, -1:].to(process.basis)
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
