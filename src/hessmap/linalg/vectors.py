"""Flat vectors and matrices: where parameters lie in them, their norms, and the comparison of two ways to compute one.

The one vector format has all parameters flat, row-major, in the order of ``model.named_parameters()``. Norms are of
arrays of any scale, whose squares would overflow or vanish.

A shortcut, which structure gives, is compared with autograd on a fixed random vector, and not used if they differ. A
faster method may also fail for a model that it was not made for: an operation without a batching rule, a branch on
values under a transform of torch.func. A slower method then gives the result, and a note states it. Missing memory and
hessmap's own errors (other samples in another pass) are no such failure: a slower method would hide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import HessmapError, InvalidInput, UnsupportedNetwork, unknown_name
from hessmap.linalg.devices import is_out_of_memory


@dataclass(frozen=True)
class Layout:
    """Parameter names, their shapes, and where each lies in the flat vector.

    Args:
        shapes: Name and shape of every parameter, in order.

    Example:
        >>> layout = Layout((("0.weight", (3, 2)), ("2.weight", (1, 3))))
        >>> layout.size, layout["2.weight"]
        (9, slice(6, 9, None))
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.shapes)

    @property
    def size(self) -> int:
        return sum(prod(shape) for _, shape in self.shapes)

    def __iter__(self) -> Iterator[tuple[str, slice]]:
        start = 0
        for name, shape in self.shapes:
            yield name, slice(start, start + prod(shape))
            start += prod(shape)

    def __getitem__(self, name: str) -> slice:
        for known, place in self:
            if known == name:
                return place
        raise unknown_name("parameter", name, self.names)

    def shape(self, name: str) -> tuple[int, ...]:
        self[name]
        return dict(self.shapes)[name]

    def restricted_to(self, names: Iterable[str]) -> Layout:
        """The layout of some parameters alone, in this layout's order."""
        wanted = set(names)
        return Layout(tuple(item for item in self.shapes if item[0] in wanted))


Floats = NDArray[np.float64]
_TILE = 256  # rows and columns: two tiles of float64 are 1 MiB


def largest_entry(array: Floats) -> float:
    """The largest magnitude of an entry; NaN or inf if one of them is.

    Args:
        array: Any array.

    Returns:
        The largest magnitude of an entry; NaN or inf if one of them is.
    """
    return abs(float(np.maximum(array.max(), -array.min()))) if array.size else 0.0


def frobenius_norm(array: Floats) -> float:
    """The Frobenius norm, scaled so that squares neither overflow nor vanish.

    Args:
        array: Any array.

    Returns:
        The root of the sum of squares.
    """
    largest = largest_entry(array)
    if not largest or not np.isfinite(largest):
        return largest
    return largest * float(np.linalg.norm(array / largest))


def column_norms(array: Floats) -> Floats:
    """The norm of each column, scaled so that squares neither overflow nor vanish.

    Args:
        array: Matrix.

    Returns:
        One norm for each column.
    """
    largest = np.abs(array).max(axis=0, initial=0.0)
    norms: Floats = largest * np.linalg.norm(array / np.where(largest > 0, largest, 1.0), axis=0)
    return norms


def asymmetry(array: Floats) -> float:
    """||(H - H^T) / 2|| / ||H|| of a square array, in the Frobenius norm.

    Args:
        array: Square matrix H.

    Returns:
        A number between 0 (symmetric) and 1.

    Example:
        >>> asymmetry(np.array([[1.0, 2.0], [2.0, 5.0]])), asymmetry(np.array([[0.0, 1.0], [-1.0, 0.0]]))
        (0.0, 1.0)
    """
    parts = []
    # Tile by tile, because a transposed read of a large array is slow.
    for row in range(0, len(array), _TILE):
        for column in range(0, row + 1, _TILE):
            rows, columns = slice(row, row + _TILE), slice(column, column + _TILE)
            tile, mirrored = array[rows, columns], array[columns, rows].T
            if not np.array_equal(tile, mirrored):
                # An off-diagonal tile stands for its mirror image as well.
                parts.append(frobenius_norm(tile - mirrored) / (2.0 if row == column else 2.0**0.5))
    return frobenius_norm(np.array(parts)) / frobenius_norm(array) if parts else 0.0


def singular_values(matrix: Floats) -> Floats:
    """Compute the singular values of a matrix.

    Args:
        matrix: Any matrix.

    Returns:
        All singular values, descending.
    """
    return np.asarray(scipy.linalg.svdvals(matrix, check_finite=False))


def centred_singular_values(matrix: Floats) -> Floats:
    """Compute the singular values of a matrix whose rows have mean zero.

    Args:
        matrix: Any matrix; the mean of its rows is subtracted.

    Returns:
        All singular values, descending.
    """
    return singular_values(matrix - matrix.mean(axis=0))


def count_above(values: Floats, relative_tolerance: float) -> int:
    """How many values exceed the tolerance times the largest.

    Args:
        values: Numbers that are not negative.
        relative_tolerance: Part of the largest value above which one counts.

    Returns:
        The number of values.

    Example:
        >>> count_above(np.array([2.0, 1.0, 0.1]), 0.1)
        2
    """
    return int((values > relative_tolerance * values.max(initial=0.0)).sum())


# Relative to the largest entry, per number format.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 2e-4}


def tolerance(dtype: torch.dtype) -> float:
    """Return how far a shortcut may differ from autograd in a number format.

    Args:
        dtype: torch.float64 or torch.float32.

    Returns:
        The tolerance relative to the largest entry.
    """
    return TOLERANCES[dtype]


def disagreement(found: Tensor, expected: Tensor, scale_before_cancellation: float = 0.0) -> float:
    """The largest entry of the difference relative to that of what autograd gives: largest entries, because squares
    vanish for data of scale 1e-100 and overflow for 1e100.

    ``scale_before_cancellation`` is the size of what cancelled in the sum, which rounding is relative to.

    Args:
        found: Result of the shortcut.
        expected: Result of the reference method.
        scale_before_cancellation: Size of the terms of a sum that cancelled; rounding is relative to it. Defaults to 0.

    Returns:
        The relative difference; the absolute one where everything expected is zero.
    """
    if not expected.numel():
        return 0.0
    error = float((found - expected).abs().max())
    scale = max(float(expected.abs().max()), scale_before_cancellation)
    return error / scale if scale > 0 else error


def random_vector(size: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """The vector that products are compared on: the same for the same size.

    Args:
        size: Number of entries, and the seed.
        dtype: Of the result. Defaults to float64.

    Returns:
        Normal numbers on the host.
    """
    generator = torch.Generator().manual_seed(size)
    drawn = torch.float64 if dtype == torch.float64 else torch.float32  # in a quarter of the time
    return torch.randn(size, generator=generator, dtype=drawn).to(dtype)


def checked_shortcut(
    find: Callable[[], Tensor | None],
    expected: Callable[[], Tensor],
    fallback: Callable[[Exception], None] | None = None,
) -> bool:
    """Check that a shortcut gives what the slower reference method gives.

    Args:
        find: Computes a result by the shortcut, or returns None where the shortcut does not apply.
        expected: Computes the same result by the reference method; called only if ``find`` returned one.
        fallback: Called with an error of ``find`` that the reference method can answer (``is_answerable``), which
            counts as disagreement. Default: such errors are raised.

    Returns:
        bool: Whether both agree to ``tolerance`` of the reference's dtype, relative to its largest entry.
    """
    try:
        found = find()
    except Exception as error:
        if fallback is None or not is_answerable(error):
            raise
        fallback(error)
        return False
    if found is None:
        return False
    reference = expected()
    return disagreement(found, reference) <= tolerance(reference.dtype)


_LONGEST = 160  # characters of a reason in a note


def is_answerable(error: BaseException, *, refusals: bool = False) -> bool:
    """Whether a slower method may be tried after this error.

    Of hessmap's own errors only the explanation of an error of the user's model is: ``InvalidInput`` raised from
    something else. With ``refusals`` the other errors that refuse a model, a loss or inputs are too.

    Args:
        error: What a faster method raised.
        refusals: Whether errors that reject a model, a loss or inputs count as well. Defaults to False.

    Returns:
        True if a slower method may be tried.
    """
    if not isinstance(error, Exception) or is_out_of_memory(error):
        return False
    if not isinstance(error, HessmapError) or (refusals and isinstance(error, InvalidInput | UnsupportedNetwork)):
        return True
    cause = error.__cause__
    return isinstance(error, InvalidInput) and cause is not None and is_answerable(cause)


def reason_of(error: BaseException) -> str:
    """The first line of what was said first, without the explanation around it.

    Args:
        error: An error, possibly raised from another one.

    Returns:
        The first line of the original message.
    """
    lines = str(error.__cause__ or error).strip().splitlines()
    return lines[0][:_LONGEST].rstrip(". ") if lines else type(error).__name__


class Fallbacks:
    """How often slower methods were used after an error, by kind, with the first reason of each.

    >>> found = Fallbacks()
    >>> found.add("rows were differentiated one by one", RuntimeError("no batching rule"))
    >>> found.add("rows were differentiated one by one", RuntimeError("no batching rule"))
    >>> found.notes
    ('rows were differentiated one by one (2 times: no batching rule)',)
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, kind: str, error: BaseException) -> None:
        count, reason = self._found.get(kind, (0, reason_of(error)))
        self._found[kind] = count + 1, reason

    @property
    def notes(self) -> tuple[str, ...]:
        """One for each kind."""
        return tuple(
            f"{kind} ({'once' if count == 1 else f'{count} times'}: {reason})"
            for kind, (count, reason) in self._found.items()
        )
