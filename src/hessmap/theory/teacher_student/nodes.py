"""Points and weights for expectations over one standard normal variable."""

from __future__ import annotations

import numpy as np

from hessmap.theory.teacher_student.weights import Array

_FAR = 9.0  # the normal density there is 1e-18 of its height
PIECE = 48  # points on each piece between kinks


def even_nodes(num_nodes: int) -> tuple[Array, Array]:
    """Equally spaced points: the trapezoidal rule, whose error for functions analytic in a strip falls exponentially.

    Gauss-Hermite suffers from the poles of tanh: with 96 nodes E[tanh''(e)^2] is wrong by 1.5e-7 of it, equally spaced
    points miss it by 1e-10 with 73 and by 4e-14 with 96.

    >>> points, weights = even_nodes(73)
    >>> round(float(weights @ points**6), 10)
    15.0
    """
    points = np.linspace(-_FAR, _FAR, num_nodes)
    return points, (points[1] - points[0]) * np.exp(-(points**2) / 2) / np.sqrt(2 * np.pi)


def piecewise_nodes(breaks: Array) -> tuple[Array, Array]:
    """Gauss-Legendre on the pieces between breaks (..., kinks), weighted by the normal density; (..., points)."""
    points, weights = np.polynomial.legendre.leggauss(PIECE)
    inside = np.clip(np.sort(breaks, axis=-1), -_FAR, _FAR)
    ends = np.full((*breaks.shape[:-1], 1), _FAR)
    edges = np.concatenate([-ends, inside, ends], axis=-1)
    half = np.diff(edges, axis=-1)[..., None] / 2
    middle = edges[..., :-1, None] + half
    found = (middle + half * points).reshape(*breaks.shape[:-1], -1)
    scaled = (half * weights).reshape(*breaks.shape[:-1], -1)
    return found, scaled * np.exp(-(found**2) / 2) / np.sqrt(2 * np.pi)
