"""What every measurement takes in: an operator, a tensor or an array, as a checked float64 array."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.curvature.operator import LinearOperator
from hessmap.errors import InvalidInput, require, sentence

Floats = NDArray[np.float64]
Matrix = LinearOperator | Tensor | NDArray[Any]

ASYMMETRY_TOLERANCE = 1e-10
NARROW_TOLERANCE = 1e-5
EPS = float(np.finfo(np.float64).eps)
_TILE = 256


def float_array(values: Tensor | NDArray[Any], name: str = "a measured matrix") -> Floats:
    """A tensor or array of any shape as a finite float64 array, without a copy where it already is one.

    Narrower floats are refused: their rounding is far above every threshold of this library.
    """
    if isinstance(values, Tensor):
        values = values.detach().to("cpu").numpy()
    require(isinstance(values, np.ndarray), f"{name} must be a tensor or an array", f"got {type(values).__name__}")
    if values.dtype.kind in "iub":
        values = values.astype(np.float64)
    if values.dtype != np.float64:
        remedy = "Build it in float64; converting it afterwards keeps the rounding of the narrower format"
        raise InvalidInput(sentence(f"{name} must be float64", f"got {values.dtype}", remedy))
    if not np.isfinite(largest_entry(values)):
        place = tuple(int(index) for index in np.argwhere(~np.isfinite(values))[0])
        raise InvalidInput(sentence(f"{name} must be finite", f"entry {place} is {values[place]}"))
    return values


def dense_array(matrix: Matrix) -> Floats:
    """The matrix as a finite float64 array of two dimensions."""
    array = float_array(matrix.to_dense() if isinstance(matrix, LinearOperator) else matrix)
    require(array.ndim == 2, "a matrix must have two dimensions", f"got shape {array.shape}")
    return array


def symmetric_array(matrix: Matrix) -> tuple[Floats, float]:
    """The symmetric part of a nearly symmetric matrix, and the Frobenius norm of what was dropped."""
    array = dense_array(matrix)
    require(array.shape[0] == array.shape[1], "eigenvalues need a square matrix", f"got shape {array.shape}")
    dropped = asymmetry(array)
    if dropped > ASYMMETRY_TOLERANCE:
        got = f"||H - H^T|| / ||H|| is {2 * dropped:.3g}"
        remedy = "Pass (H + H.T) / 2 if that is what is meant"
        raise InvalidInput(sentence("eigenvalues need a symmetric matrix", got, remedy))
    if dropped == 0:
        return array, 0.0
    return (array + array.T) / 2, dropped * frobenius_norm(array)


def carried_scale(matrix: object) -> float | None:
    """The norm that an operator says its thresholds are relative to; None for anything else."""
    scale = getattr(matrix, "scale", None)
    return None if scale is None else float(scale)


def is_narrow(matrix: object) -> bool:
    """Whether products with an operator are rounded to less than float64."""
    return isinstance(matrix, LinearOperator) and matrix.dtype != torch.float64


def reachable_tolerance(matrix: object, wish: float) -> float:
    """A tolerance relative to the norm that products of the operator's number format can meet.

    Products in float32 were measured to be off by up to 1e-6 of the norm, eight units of its rounding; ten times that
    is reached with residuals that can be believed.
    """
    return max(wish, NARROW_TOLERANCE) if is_narrow(matrix) else wish


def largest_entry(array: Floats) -> float:
    """The largest magnitude of an entry; NaN or inf if one of them is."""
    return float(np.maximum(array.max(), -array.min())) if array.size else 0.0


def frobenius_norm(array: Floats) -> float:
    """The Frobenius norm, scaled so that squares neither overflow nor vanish."""
    largest = largest_entry(array)
    return largest * float(np.linalg.norm(array / largest)) if largest else 0.0


def asymmetry(array: Floats) -> float:
    """||(H - H^T) / 2|| / ||H|| of a square array, in the Frobenius norm.

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
