"""Norms of arrays of any scale, whose squares would overflow or vanish.

Singular values of a matrix, and how many of them count."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_TILE = 256  # rows and columns: two tiles of float64 are 1 MiB


def largest_entry(array: Floats) -> float:
    """The largest magnitude of an entry; NaN or inf if one of them is.

    Args:
        array: Any array.

    Returns:
        The largest magnitude of an entry; NaN or inf if one of them is.
    """
    return float(np.maximum(array.max(), -array.min())) if array.size else 0.0


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
