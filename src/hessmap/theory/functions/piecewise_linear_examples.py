"""Small functions that tell the two notions of rank apart, and ReLU from any leaky ReLU."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]


def cross_map(points: ArrayLike) -> Floats:
    """f(x) = (sign(x_0) m, sign(x_1) m), m = min(|x_0|, |x_1|): Jacobian rank 1 where it exists, bottleneck rank 2.

    It is the identity on the diagonal cross |x_0| = |x_1|, whose four arms do not embed in a line. Reference: Jacot
    2023, Example 1, prints the larger of the two instead of the smaller; corrected: that function jumps across the
    axes, from (1, 1) to (1, -1) at (1, 0), and is not piecewise linear (see ``printed_cross_map``).

    >>> cross_map([[-2.0, 0.25]])
    array([[-0.25,  0.25]])
    """
    values = _plane(points)
    return np.asarray(np.sign(values) * np.abs(values).min(axis=1, keepdims=True))


def cross_map_jacobian(point: ArrayLike) -> Floats:
    """Its Jacobian off the axes and the diagonals.

    >>> cross_map_jacobian([-2.0, 0.25])
    array([[ 0., -1.],
           [ 0.,  1.]])
    """
    first, second = _plane(np.asarray(point, dtype=np.float64).reshape(1, -1))[0]
    must = "the point must lie off the axes and the diagonals"
    require(first != 0 and second != 0 and abs(first) != abs(second), must, f"got ({first}, {second})")
    smaller = 0 if abs(first) < abs(second) else 1
    signs = np.sign([first, second])
    jacobian = np.zeros((2, 2))
    jacobian[:, smaller] = signs * signs[smaller]
    return jacobian


def printed_cross_map(points: ArrayLike) -> Floats:
    """Example 1 as printed: (x_0, sign(x_1) |x_0|) if |x_0| >= |x_1|, else (sign(x_0) |x_1|, x_1). Not continuous.

    >>> printed_cross_map([[1.0, 1e-12], [1.0, -1e-12]])
    array([[ 1.,  1.],
           [ 1., -1.]])
    """
    values = _plane(points)
    return np.asarray(np.sign(values) * np.abs(values).max(axis=1, keepdims=True))


def leaky_relu(values: ArrayLike, slope: float) -> Floats:
    """sigma_a(x) = x for x >= 0 and a x below."""
    array = np.asarray(values, dtype=np.float64)
    return np.where(array >= 0, array, slope * array)


def relu_from_leaky(values: ArrayLike, slope: float) -> Floats:
    """max(0, x) = (sigma_a(x) + a sigma_a(-x)) / (1 - a^2), for |a| < 1: two units of one kind make one of the other.

    Reference: Jacot 2023, Corollary 1, prints a minus; corrected: that gives (1 + a^2) / (1 - a^2) x for x > 0.

    >>> relu_from_leaky([2.0, -3.0], slope=0.5).tolist()
    [2.0, 0.0]
    """
    require(-1 < slope < 1, "the slope must lie between -1 and 1", f"got {slope}")
    array = np.asarray(values, dtype=np.float64)
    return (leaky_relu(array, slope) + slope * leaky_relu(-array, slope)) / (1 - slope**2)


def _plane(points: ArrayLike) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    require(array.ndim == 2 and array.shape[1] == 2, "points must be rows of two numbers", f"got shape {array.shape}")
    return array
