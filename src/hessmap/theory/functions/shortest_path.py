"""The shortest open path through all points: exact for few of them, a lower bound for many."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]
LARGEST_EXACT = 13


@dataclass(frozen=True)
class PathLength:
    """The length of the shortest path that visits every point once, or a lower bound on it."""

    value: float
    kind: Literal["exact", "lower_bound"]


def shortest_path(points: ArrayLike, *, largest_exact: int = LARGEST_EXACT) -> PathLength:
    """The length of the shortest open path through all points (the travelling salesman who need not come home).

    Exact up to ``largest_exact`` points, by Held & Karp 1962: 2^N N^2 steps. Beyond, the length of the minimum spanning
    tree: a path is a spanning tree, so that no path is shorter.

    >>> shortest_path([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    PathLength(value=3.0, kind='exact')
    >>> shortest_path([[0.0], [2.0], [5.0]], largest_exact=2)
    PathLength(value=5.0, kind='lower_bound')
    """
    distances = _distances(points)
    if len(distances) <= largest_exact:
        return PathLength(_held_karp(distances), "exact")
    return PathLength(_spanning_tree(distances), "lower_bound")


def diameter(points: ArrayLike) -> float:
    """The largest distance between two of the points.

    >>> diameter([[0.0], [1.0], [3.0]])
    3.0
    """
    return float(_distances(points).max())


def _distances(points: ArrayLike) -> Floats:
    array = np.asarray(points, dtype=np.float64)
    require(array.ndim == 2 and len(array) >= 1, "points must be the rows of a matrix", f"got shape {array.shape}")
    require(bool(np.isfinite(array).all()), "points must be finite", "there is NaN or inf")
    unit = float(np.abs(array).max(initial=0.0)) or 1.0  # squares neither vanish nor overflow
    array = array / unit
    # Differences, not inner products: those lose half of the digits between near points.
    distances = np.stack([np.sqrt(np.square(array - point).sum(axis=1)) for point in array])
    with np.errstate(over="ignore"):
        distances *= unit
    must, got = "the distances of points must be in the range of float64", f"their entries are of size {unit:.3g}"
    require(bool(np.isfinite(distances).all()), must, got, "Scale them down")
    return distances


def _held_karp(distances: Floats) -> float:
    """``best[visited, last]``: the shortest path through the visited points that ends at the last one."""
    count = len(distances)
    best = np.full((1 << count, count), np.inf)
    best[1 << np.arange(count), np.arange(count)] = 0.0
    for visited in range(1, 1 << count):
        ends = best[visited]
        if not np.isfinite(ends).any():
            continue
        reached = (ends[:, None] + distances).min(axis=0)
        for point in range(count):
            if not visited >> point & 1:
                grown = visited | 1 << point
                best[grown, point] = min(best[grown, point], reached[point])
    return float(best[-1].min())


def _spanning_tree(distances: Floats) -> float:
    """Prim's algorithm."""
    nearest = distances[0].copy()
    is_out = np.ones(len(distances), dtype=np.bool_)
    is_out[0] = False
    total = 0.0
    while is_out.any():
        chosen = int(np.where(is_out, nearest, np.inf).argmin())
        total += float(nearest[chosen])
        is_out[chosen] = False
        nearest = np.minimum(nearest, distances[chosen])
    return total
