"""Products with random vectors: how many within a memory budget, and from independent values to an estimate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np
import torch
from scipy.special import gammaincinv, stdtrit
from torch import Tensor

from hessmap.errors import TooLarge, checked_count, checked_number, checked_seed, require
from hessmap.linalg import (
    normal_vectors,
    orthonormal_columns,
    readable_bytes,
    sign_vectors,
    summed_on_host,
    to_host,
    widest_dtype,
)
from hessmap.measurement.operators_in import (
    Floats,
    Matrix,
    asymmetry_tolerance,
    hint_num_products,
    is_low_precision,
    measured_product,
    rounding_unit,
)
from hessmap.progress import set_progress_total
from hessmap.records import Provenance, provenance

BLOCK = 16
CONFIDENCE = 0.95
_RANK_TOLERANCE = 1e-13
_IMPROBABLE = 1e-5
_NOISE_UNITS = 64  # the rounding of products in float32 was measured to be up to 8 units
PIECE = 2**18  # numbers that are handled at a time


class ProbedOperator:
    """A symmetric operator with a seeded generator of probes; its products are in the unit of ``product``.

    Args:
        matrix: Symmetric operator, tensor, array or scipy LinearOperator.
        seed: Seed of the random vectors, an integer of at least 0.

    Raises:
        InvalidInput: If the matrix is not square, symmetric and finite, or its vectors are sharded. An operator is
            checked for symmetry at its first product.
    """

    def __init__(self, matrix: Matrix, seed: int) -> None:
        self.seed = checked_seed(seed)
        self.product = measured_product(matrix)
        self.size = self.product.size
        self.generator = torch.Generator().manual_seed(self.seed)
        self.notes: tuple[str, ...] = ()  # of how it is measured
        self.matrix = matrix

    @property
    def scale(self) -> float:
        return self.product.scale

    @property
    def num_products(self) -> int:
        return self.product.num_products

    @property
    def rounding(self) -> float:
        """How far its products are off, relative to the norm."""
        return min(self.size * rounding_unit(self.matrix), asymmetry_tolerance(self.matrix))

    @property
    def noise(self) -> float:
        """Relative to the norm, what a product along a direction may be by rounding alone: a few units of it. This is
        not a bound, as ``rounding`` is."""
        return min(self.size, _NOISE_UNITS) * rounding_unit(self.matrix)

    @property
    def provenance(self) -> Provenance:
        """Of the matrix, with what its products have shown by now."""
        found = getattr(self.matrix, "provenance", None) or provenance(seed=self.seed)
        return replace(found, notes=(*found.notes, *self.notes)) if self.notes else found

    def hint_num_products(self, fewest: int, most: int) -> None:
        """Say how many products will come: at least to the operator, which may prepare for them, at most to who
        watches."""
        hint_num_products(self.matrix, self.product, fewest)
        set_progress_total(most)

    def signs(self, count: int) -> Tensor:
        """Random vectors of ones and minus ones, the least noisy for traces and diagonals."""
        return sign_vectors((self.size, count), self.generator, self.product.dtype, self.product.device)

    def use_narrow_vectors(self) -> None:
        """Probes and images of an operator in float32 in float32: they are no better in float64, and twice as long."""
        if is_low_precision(self.matrix):
            self.product.dtype = torch.float32

    def normals(self, count: int) -> Tensor:
        return normal_vectors((self.size, count), self.generator, self.product.dtype, self.product.device)

    def columns(self, together: int = BLOCK) -> Iterator[tuple[slice, Tensor]]:
        """The whole matrix, some columns at a time with their numbers, by one product each.

        They are in the unit of the products. Columns that come before the first one that is not zero, which sets the
        unit, are zero in any unit.
        """
        for start in range(0, self.size, together):
            count = min(start + together, self.size) - start
            units = torch.zeros(self.size, count, dtype=self.product.dtype, device=self.product.device)
            units[start : start + count].fill_diagonal_(1.0)
            yield slice(start, start + count), self.product(units)

    def eigenvalues(self) -> Floats:
        """All of them, ascending, by one product a dimension and LAPACK."""
        matrix = torch.empty(self.size, self.size, dtype=torch.float64)
        for place, columns in self.columns():
            matrix[:, place] = to_host(columns)
        found: Floats = torch.linalg.eigvalsh((matrix + matrix.T) / 2).numpy()
        return self.scale * found

    def is_dense_cheaper(self, more: float, max_products: int) -> bool:
        """Whether the matrix takes no more products than the ``more`` that probes still need, and there are as many."""
        return self.size <= more and self.num_products + self.size <= max_products


@dataclass(frozen=True)
class ErrorTarget:
    """When to stop: at a standard error relative to the value, absolute, or relative to the Frobenius norm of the
    matrix, whichever is met first, or when there are no more products."""

    relative_error: float
    absolute_error: float
    max_products: int
    norm_error: float = 0.0

    def standard_error(self, value: float, norm: float = 0.0) -> float:
        return max(self.absolute_error, self.relative_error * abs(value), self.norm_error * norm)

    def is_met(self, value: float, standard_error: float, norm: float = 0.0) -> bool:
        return standard_error <= self.standard_error(value, norm)

    def missing(self, count: int, value: float, standard_error: float, norm: float = 0.0) -> float:
        """How many values the error asked for takes beyond the ``count`` that have this standard error."""
        if self.is_met(value, standard_error, norm):
            return 0.0
        allowed = self.standard_error(value, norm)
        return count * ((standard_error / allowed) ** 2 - 1) if allowed else inf


def error_target(
    relative_error: float, max_products: int, absolute_error: float = 0.0, norm_error: float = 0.0
) -> ErrorTarget:
    """What was asked for, if that can be."""
    named = {"relative_error": relative_error, "absolute_error": absolute_error, "norm_error": norm_error}
    relative, absolute, of_norm = given = tuple(checked_number(name, value) for name, value in named.items())
    require(min(given) >= 0 and max(given) < inf, "errors must be finite and not negative", f"got {given}")
    require(max(given) > 0, "one of relative_error and absolute_error must be positive", "both are 0")
    return ErrorTarget(relative, absolute, checked_count("max_products", max_products, 1), of_norm)


def orthonormal_range(images: Tensor) -> Tensor:
    """An orthonormal basis of the columns, without the directions that are rounding."""
    if not images.numel() or not float(images.abs().max()):
        return images[:, :0]
    columns, triangle = orthonormal_columns(images)
    left, values, _ = torch.linalg.svd(triangle)
    kept = values > _RANK_TOLERANCE * max(images.shape) * float(values.max())
    found: Tensor = columns @ left[:, kept].to(columns)
    return found


def column_products(left: Tensor, right: Tensor, piece: int = PIECE) -> Floats:
    """The inner product of each column with its partner, added up in float64."""
    pieces = zip(*(torch.split(part, piece // max(1, left.shape[1]) + 1) for part in (left, right)), strict=True)
    wide = widest_dtype(left.device)
    found: Floats = summed_on_host(torch.stack([(one * other).sum(0, dtype=wide) for one, other in pieces]), 0).numpy()
    return found


def standard_error(values: Floats) -> float:
    """Of the mean of independent values, scaled so that squares do not vanish; inf of a single one."""
    if len(values) < 2:
        return inf
    largest = float(np.abs(values).max())
    return largest * float(np.std(values / largest, ddof=1)) / len(values) ** 0.5 if largest else 0.0


def form_error(values: Floats, mean_square: float, size: int, largest: float = 0.0) -> float:
    """``form_errors`` of one form: the standard error of the mean of ``values``."""
    return float(form_errors(values[:, None], np.array([mean_square]), size, largest)[0])


def form_errors(values: Floats, mean_squares: Floats, size: int, largest: float = 0.0) -> Floats:
    """Standard errors of means of quadratic forms z^T B z / size over random signs z.

    Args:
        values: The forms, of shape (num_probes, num_forms): each column is one symmetric B, each row one probe z.
        mean_squares: An estimate of tr(B^2) / size for every column, from the same probes.
        size: Number of rows of B.
        largest: Largest eigenvalue of B in magnitude, where it is known. Defaults to 0.0: unknown.

    Returns:
        The standard error of the mean of every column.

    Notes:
        The variance of a value is 2 (tr(B^2) - sum B_ii^2) / size^2, at most 2 (tr(B^2) / size - (tr B / size)^2) /
        size, with equality where the diagonal of B is constant. The variance of a small sample is too small where no
        large value was drawn, and then the mean is too small as well: Student's interval from it has too little
        coverage where one eigenvalue dominates. So the bound is used, clipped to the range that the sample allows: not
        below the variance of the sample, not above the upper end of its confidence interval for normal values (a
        diagonal matrix has no variance).

        The estimate of tr(B^2) is also too small where no probe has a large component along the eigenvector of the
        largest eigenvalue. Where that eigenvalue is known (Lanczos finds it from any start) it bounds the hidden part:
        if the truth is h above the mean, tr(B^2) / size is up to largest h above its estimate, so that the half width
        of an interval by the quantile t is the solution of h^2 = t^2 (variance + 2 largest h / size) / count (as Wilson
        1927 for proportions), and the error is h / t. Values that miss that eigenvector have hardly any variance; the
        upper end is then taken at a probability of 1e-5.

    Example:
        >>> values = np.array([[1.0], [3.0], [2.0], [2.0]])
        >>> form_errors(values, np.array([5.0]), size=2).round(12)
        array([0.5])
    """
    count = len(values)
    highest = np.abs(values).max(0)
    unit = np.where(highest > 0, highest, 1.0)
    relative = values / unit
    spread = np.var(relative, axis=0, ddof=1)
    with np.errstate(over="ignore"):  # squares over a value near the smallest number
        bound = 2 * np.maximum(0.0, mean_squares / unit / unit - relative.mean(0) ** 2) / size
        hidden = _student_quantile(count) * largest / unit / size / count**0.5
        bound = np.square(hidden + np.sqrt(np.square(hidden) + bound))
    improbable = _IMPROBABLE if largest else (1 - CONFIDENCE) / 2
    ceiling = spread * (count - 1) / float(2 * gammaincinv((count - 1) / 2, improbable))  # of chi squared
    found: Floats = unit * np.sqrt(np.minimum(np.maximum(spread, bound), ceiling) / count)
    return found


def interval(value: float, error: float, count: int, method_error: float = 0.0) -> tuple[float, float]:
    """Student's interval of a mean of ``count`` values, widened by what the method may be off by."""
    if error == 0.0:
        return value - method_error, value + method_error
    half = error * _student_quantile(count) + method_error
    return value - half, value + half


def _student_quantile(count: int) -> float:
    return float(stdtrit(max(1, count - 1), (1 + CONFIDENCE) / 2))


SKETCH = 2 * BLOCK
_LEAST_SKETCH = 4  # columns; below, its products are better spent on probes
_LEAST_PIECE = 2**10
_PIECES = 3  # that the moments of a trace's entries hold at once
ProbedQuantity = Literal["trace", "diagonal", "Frobenius norm", "traces of the blocks"]
_FEWEST_PROBES = {"Frobenius norm": 2}  # that are multiplied together: pairs of them show the variance


@dataclass(frozen=True)
class ProbePlan:
    """What an estimate by random signs holds: the columns of its sketch, the probes of a product, and bytes."""

    sketch: int
    width: int
    num_bytes: int
    is_limited: bool
    piece: int  # numbers that are handled at a time beside the vectors

    @property
    def num_columns(self) -> int:
        """Columns of the whole matrix that are computed together: units, their images and the images before."""
        return max(1, 2 * self.width // 3) if self.is_limited else BLOCK

    @property
    def notes(self) -> tuple[str, ...]:
        """What the budget changed."""
        if not self.is_limited:
            return ()
        sketch = f"a sketch of {self.sketch} columns" if self.sketch else "no sketch"
        probes = "one probe" if self.width == 1 else f"{self.width} probes"
        return (f"within the memory budget: {sketch}, {probes} at a time",)


def probe_plan(
    quantity: ProbedQuantity, size: int, item: int, budget: int, *, sketch: int = SKETCH, known: int = 0
) -> ProbePlan:
    """Choose the widths of an estimate by random signs.

    Args:
        quantity: "trace", "diagonal", "Frobenius norm" or "traces of the blocks".
        size: Length of a vector.
        item: Bytes of a number.
        budget: Bytes that may be held.
        sketch: Columns of the sketch without a limit; 0 for plain Hutchinson. Defaults to 32.
        known: Number of known eigenvectors, which replace the sketch. Defaults to 0.

    Returns:
        ProbePlan: The widest that fits. The sketch is left out where fewer than four columns fit.

    Raises:
        TooLarge: If one probe does not fit.

    Example:
        >>> plan = probe_plan("trace", 10**4, 8, 16 * 8 * 10**4)
        >>> plan.sketch, plan.width, plan.num_bytes // (8 * 10**4)
        (5, 4, 15)
    """
    each = max(1, size * item)
    wished = min(size, known or sketch)
    pieces = _PIECES * item if quantity in ("trace", "traces of the blocks") else 0
    fewest = _FEWEST_PROBES.get(quantity, 1)
    whole = _vectors(quantity, wished, BLOCK, bool(known)) * each + pieces * min(PIECE, size * BLOCK)
    if whole <= budget:
        return ProbePlan(wished, BLOCK, whole, False, PIECE)
    piece = min(PIECE, max(_LEAST_PIECE, size // 8))
    room = (budget - pieces * piece) // each
    least = 1 if known else _LEAST_SKETCH
    fitting = (
        (columns, width)
        for columns in (*range(min(wished, room), least - 1, -1), 0)
        for width in range(BLOCK, fewest - 1, -1)
        if _vectors(quantity, columns, width, bool(known)) <= room
    )
    columns, width = next(fitting, (0, 0))
    if not width:
        needed = _vectors(quantity, 0, fewest, False)
        least_bytes = readable_bytes(needed * each + pieces * piece)
        needs = f"the {quantity} of an operator of size {size:,} takes at least {least_bytes}"
        given = f"({needed} vectors); the memory budget is {readable_bytes(budget)}"
        raise TooLarge(f"{needs} {given}. Use float32, or a larger memory_budget.")
    held = _vectors(quantity, columns, width, bool(known)) * each + pieces * piece
    return ProbePlan(columns, width, held, True, piece)


def _vectors(quantity: ProbedQuantity, sketch: int, width: int, is_known: bool) -> int:
    """Vectors held while the sketch is made orthonormal, which copies it twice, or while probes are multiplied.

    A trace holds its sketch, probes, images and the mean of their entries; those of blocks also an entry-wise product
    and the numbers of the blocks, up to two vectors in float32; a diagonal also the images of the sketch, sums of
    squares, and with a sketch the part of the images in its range.
    """
    if quantity != "diagonal":
        probing = sketch + 2 * width + {"trace": 1, "Frobenius norm": 0, "traces of the blocks": 4}[quantity]
    else:
        probing = 2 * width + 2 + (2 * sketch + width + 1 if sketch else 0)
    return probing if is_known else max(3 * sketch, probing)
