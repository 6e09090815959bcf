"""Eigenpairs without a stored basis: the three-term Lanczos recurrence holds two vectors and one image.

The extreme Ritz value and its residual need the coefficients of the recurrence alone. Its eigenvector is summed up in a
second pass from the same start, is then removed from the operator, and the next pair follows. Without
re-orthogonalisation copies of converged Ritz values appear, but the coefficients remain those of exact Lanczos with a
matrix whose eigenvalues are within rounding of the operator's (Greenbaum 1989, "Behavior of slightly perturbed Lanczos
and conjugate-gradient recurrences"). So the residual still bounds the distance to an eigenvalue, and the bound on the
start vector's part in an eigenvector beyond (``wanted_pairs``) still excludes a missed one: a random start has a
smaller part with a probability of at most 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.linalg import eigh_tridiagonal
from torch import Tensor

from hessmap.linalg import (
    Floats,
    ParallelLanczos,
    ScaledProduct,
    inner_products,
    normal_vectors,
    remove_basis,
    row_lengths,
)
from hessmap.measurement.wanted_pairs import MISSED, Points, Selection, least_overlap, overlap_bound

_FIRST_STEPS = 32  # for which the projected matrix has room at first
_SAMPLE = 4096  # entries of the first product that are kept, to compare with the same product at the end
_REFINEMENTS = 3  # further runs from the vector found, where its true residual misses the tolerance
End = Literal["high", "low", "either"]


@dataclass(frozen=True)
class FewVectorPairs:
    """Eigenpairs of the recurrence, in the unit of its product.

    Attributes:
        values: Eigenvalues in the order in which they were found.
        residuals: True residuals of the vectors, or those of the recurrence where no vector was computed.
        vectors: Eigenvectors as rows, or None.
        converged: Whether residuals meet the tolerance and a missed eigenvalue is excluded.
        norm: Largest Ritz value in magnitude.
        change: Relative difference between the first product and the same product made once more at the end.
        is_undecided: Whether all residuals meet the tolerance and a missed eigenvalue is not excluded.
    """

    values: Tensor
    residuals: Tensor
    vectors: Tensor | None
    converged: bool
    norm: float
    change: float
    is_undecided: bool


@dataclass(frozen=True)
class Run:
    """One pass of the recurrence: the Ritz value at an end, its residual, and its vector in the Lanczos vectors.

    ``is_clear``: no eigenvalue is beyond it by more than the slack, up to the stated probability; None if the end was
    not examined.
    """

    value: float
    residual: float
    weights: Tensor
    norm: float
    is_met: bool
    is_clear: bool
    first: tuple[Tensor, float]


class _Recurrence:
    """The recurrence from one start (a row), and what its coefficients tell about an end of the spectrum."""

    def __init__(
        self,
        product: ScaledProduct,
        start: Callable[[], Tensor],
        removed: Tensor | None,
        addition: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.removed = removed
        self.process = ParallelLanczos(product, start(), _FIRST_STEPS, "local", removed)
        self.process.addition = addition

    @property
    def vector(self) -> Tensor:
        return self.process.block[0, 0]

    @property
    def has_ended(self) -> bool:
        return not self.process.width

    def expand(self) -> None:
        self.process.expand()

    @property
    def coefficients(self) -> tuple[Floats, Floats, float]:
        """Diagonal, off-diagonal, and the coefficient of the next vector, 0 where the space has ended."""
        projection = self.process.projection[0]
        coupling = 0.0 if self.has_ended else float(self.process.coupling[0, 0, -1])
        return projection.diagonal().numpy(), projection.diagonal(1).numpy(), coupling

    def ritz(self, end: End) -> tuple[float, float, Tensor, float]:
        """The Ritz value at an end, its residual, its vector, and the largest magnitude of all Ritz values."""
        diagonal, beside, coupling = self.coefficients
        last = len(diagonal) - 1
        places = {"high": [last], "low": [0], "either": [0, last]}[end]
        found = []
        for place in places:
            values, vectors = eigh_tridiagonal(diagonal, beside, select="i", select_range=(place, place))
            found.append((float(values[0]), vectors[:, 0]))
        value, weights = max(found, key=lambda pair: abs(pair[0]))
        other = found[0][0]
        if end != "either":
            place = 0 if end == "high" else last
            other = float(
                eigh_tridiagonal(diagonal, beside, eigvals_only=True, select="i", select_range=(place, place))[0]
            )
        norm = max(abs(value), abs(other))
        return value, abs(coupling * float(weights[-1])), torch.from_numpy(weights), norm

    def is_clear(self, points: Points, probability: float) -> bool:
        """Whether an eigenvalue outside of the points would have shown, except with this probability."""
        size = self.process.size - (0 if self.removed is None else len(self.removed))
        if self.has_ended or size < 3:
            return self.has_ended or len(self.process.projection[0]) >= size
        diagonal, beside, coupling = self.coefficients
        steps = torch.from_numpy(diagonal), torch.from_numpy(np.append(beside, coupling))
        limit = least_overlap(size, probability)
        return all(overlap_bound(*steps, point) < limit for point in points if point is not None)


def _points(end: End, value: float, slack: float) -> Points:
    if end == "high":
        return None, value + slack
    if end == "low":
        return value - slack, None
    return -abs(value) - slack, abs(value) + slack


def _run(
    product: ScaledProduct,
    start: Callable[[], Tensor],
    removed: Tensor | None,
    end: End,
    wanted: Selection,
    probability: float | None,
    last_product: int,
    least_norm: float,
) -> Run:
    """Steps until the value at an end has converged and, unless the probability is None, nothing is beyond it."""
    recurrence = _Recurrence(product, start, removed)
    stride = max(1, product.size // _SAMPLE)
    sample = recurrence.vector[::stride].clone()
    met: tuple[float, float, Tensor] | None = None
    first = sample, 0.0
    while True:
        recurrence.expand()
        value, residual, weights, norm = recurrence.ritz(end)
        norm = max(norm, least_norm)
        if len(weights) == 1:
            diagonal, _, coupling = recurrence.coefficients
            after = 0.0 if recurrence.has_ended else coupling * recurrence.vector[::stride]
            first = diagonal[0] * sample + after, norm
        values = torch.tensor([value], dtype=torch.float64)
        is_met = wanted.are_converged(values, torch.tensor([residual], dtype=torch.float64), norm)
        if is_met and met is None:
            met = value, residual, weights
        elif not is_met:
            met = None
        is_clear = False
        if is_met:
            slack = wanted.margin(values, norm)
            is_clear = probability is None or recurrence.is_clear(_points(end, value, slack), probability)
        if is_clear or recurrence.has_ended or product.num_products >= last_product:
            is_met = is_met or recurrence.has_ended
            # The vector of the earliest step that met the tolerance: later ones may have copies of it.
            chosen = met or (value, residual, weights)
            return Run(value, residual, chosen[2], norm, is_met, is_clear, first)


def _sum_vector(
    product: ScaledProduct,
    start: Callable[[], Tensor],
    removed: Tensor | None,
    weights: Tensor,
    into: Tensor,
    addition: tuple[Tensor, Tensor] | None = None,
) -> None:
    """Sum up the Ritz vector of a run in a second pass from the same start, normalised."""
    recurrence = _Recurrence(product, start, removed, addition)
    into.zero_()
    for step, weight in enumerate(weights.tolist()):
        into.add_(recurrence.vector, alpha=weight)
        if step < len(weights) - 1:
            recurrence.expand()
            if recurrence.has_ended:
                break
    if removed is not None:
        remove_basis(into[None], removed)
    into.div_(float(row_lengths(into[None])) or 1.0)


def _true_pair(product: ScaledProduct, vector: Tensor) -> tuple[float, float]:
    """The Rayleigh quotient of a unit vector and its residual, by one product."""
    image = product(vector[:, None])[:, 0]
    value = float(inner_products(vector[None], image[None]))
    image.sub_(vector, alpha=value)
    return value, float(row_lengths(image[None]))


def few_vector_pairs(
    product: ScaledProduct,
    wanted: Selection,
    max_products: int,
    seed: int,
    *,
    needs_vectors: bool = True,
) -> FewVectorPairs:
    """Compute extreme eigenpairs one after the other, with two vectors and one image beside those found.

    Args:
        product: Products of the operator.
        wanted: Which eigenpairs, and their tolerance.
        max_products: Products that may be made.
        seed: Seed of the starts.
        needs_vectors: Whether eigenvectors are computed; without, only one value is. Defaults to True.

    Returns:
        FewVectorPairs: What was found.
    """
    size, total = product.size, wanted.total(product.size)
    ends: list[End] = {
        "largest": ["high"] * total,
        "smallest": ["low"] * total,
        "magnitude": ["either"] * total,
        "both_ends": ["high"] * (total - total // 2) + ["low"] * (total // 2),
    }[wanted.which]  # type: ignore[assignment]
    last = product.num_products + max_products
    product.check_now()
    probability = MISSED / total
    found = torch.zeros(total if needs_vectors else 0, size, dtype=product.dtype, device=product.device)
    values, residuals, norm, converged, are_met = [], [], 0.0, True, True
    first: tuple[Tensor, float] | None = None
    for place, end in enumerate(ends):
        removed = found[:place] if place else None

        def start(place: int = place, removed: Tensor | None = removed) -> Tensor:
            rows = _random_row(product, seed, place)
            if removed is not None:
                remove_basis(rows, removed)
            return rows

        left = last - product.num_products
        allowed = max(1, (left - 3 * (total - place)) // (2 * (total - place))) if needs_vectors else max(1, left - 1)
        run = _run(product, start, removed, end, wanted, probability, product.num_products + allowed, norm)
        first, norm = first or run.first, max(norm, run.norm)
        value, residual, is_met = run.value, run.residual, run.is_met
        if needs_vectors:
            _sum_vector(product, start, removed, run.weights, found[place])
            value, residual = _true_pair(product, found[place])
            is_met = _is_met(wanted, value, residual, norm)
            for _ in range(_REFINEMENTS if run.is_met else 0):
                if is_met or product.num_products + 4 >= last:
                    break
                row = found[place : place + 1]
                again = _run(product, row.clone, removed, end, wanted, None, last - 3, norm)
                _sum_vector(product, row.clone, removed, again.weights, found[place])
                value, residual = _true_pair(product, found[place])
                is_met = _is_met(wanted, value, residual, norm)
        values.append(value)
        residuals.append(residual)
        are_met, converged = are_met and is_met, converged and is_met and run.is_clear
    return FewVectorPairs(
        values=torch.tensor(values, dtype=torch.float64),
        residuals=torch.tensor(residuals, dtype=torch.float64),
        vectors=found if needs_vectors else None,
        converged=converged,
        norm=norm,
        change=_change(product, seed, first) if converged and first is not None else 0.0,
        is_undecided=are_met and not converged,
    )


def _is_met(wanted: Selection, value: float, residual: float, norm: float) -> bool:
    numbers = torch.tensor([[value], [residual]], dtype=torch.float64)
    return wanted.are_converged(numbers[0], numbers[1], norm)


def _change(product: ScaledProduct, seed: int, first: tuple[Tensor, float]) -> float:
    """The first product made once more, on some entries, relative to its size."""
    start = _random_row(product, seed, 0)
    start.div_(float(row_lengths(start)) or 1.0)
    sample, norm = first
    places = slice(None, None, max(1, product.size // _SAMPLE))
    difference = product(start.T)[places, 0] - sample
    rounding = 64 * torch.finfo(product.dtype).eps * norm * float(row_lengths(start[:, places]))
    length = float(row_lengths(sample[None]))
    return max(0.0, float(row_lengths(difference[None])) - rounding) / length if length else 0.0


def _random_row(product: ScaledProduct, seed: int, place: int) -> Tensor:
    """The start of a pair: the same at every call."""
    generator = torch.Generator().manual_seed((seed * 1_000_003 + place) % 2**63)
    return normal_vectors((1, product.size), generator, product.dtype, product.device)


def probe_without_storage(
    product: ScaledProduct,
    basis: Tensor,
    points: Points,
    addition: tuple[Tensor, Tensor] | None,
    generator: torch.Generator,
    probability: float,
    last_product: int,
) -> tuple[bool | None, Tensor | None]:
    """Examine the orthogonal complement of a basis for eigenvalues outside of some points, by the recurrence.

    Args:
        product: Products of the operator.
        basis: Orthonormal rows.
        points: Below and above which no eigenvalue may be; None: no limit there.
        addition: Rows and a matrix M: rows^T M rows is added to the operator; None: nothing is.
        generator: Of the start.
        probability: Of a miss, at most.
        last_product: Number of products at which the examination ends.

    Returns:
        True if nothing is outside, False if something is, None if the
        products ended before; and the direction of what was found, a row.
    """
    low, high = points
    start = normal_vectors((1, product.size), generator, product.dtype, product.device)
    remove_basis(start, basis)
    remove_basis(start, basis)
    recurrence = _Recurrence(product, lambda: start, basis if len(basis) else None, addition)
    while True:
        recurrence.expand()
        for end, point in (("high", high), ("low", low)):
            if point is None:
                continue
            value, _, weights, _ = recurrence.ritz(end)  # type: ignore[arg-type]
            if value > point if end == "high" else value < point:
                direction = torch.empty(product.size, dtype=product.dtype, device=product.device)
                _sum_vector(product, lambda: start, recurrence.removed, weights, direction, addition)
                return False, direction[None]
        if recurrence.is_clear(points, probability):
            return True, None
        if recurrence.has_ended or product.num_products >= last_product:
            return None, None
