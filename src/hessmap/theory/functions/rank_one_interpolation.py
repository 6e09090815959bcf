"""What it costs to fit data by a function of one variable: a lower bound for all such fits, and one that is built.

Reference: Jacot 2023, Propositions 2 and 10 (Theorem 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap.theory.functions.layers import Layer, squared_norm
from hessmap.theory.functions.shortest_path import LARGEST_EXACT, PathLength, diameter, shortest_path

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RankOneBound:
    """``slope`` = path / diameter bounds ||Jf|| from below at some point of the hull of the inputs."""

    path: PathLength
    diameter: float

    @property
    def slope(self) -> float:
        return self.path.value / self.diameter

    def squared_norm(self, num_layers: int) -> float:
        """||W||^2 of every L-layer network of bottleneck rank 1 that interpolates: at least L slope^(2/L)."""
        require(num_layers >= 1, "num_layers must be at least 1", f"got {num_layers}")
        with np.errstate(over="ignore"):  # beyond the range of numbers it is infinite
            return float(num_layers * np.float64(self.slope) ** (2.0 / num_layers))


def rank_one_lower_bound(inputs: ArrayLike, outputs: ArrayLike, *, largest_exact: int = LARGEST_EXACT) -> RankOneBound:
    """A function h(g(x)) with scalar g that maps inputs to outputs has a Jacobian of norm at least path / diameter.

    ``path`` is the shortest open path through the outputs (exact up to ``largest_exact`` samples, else the length of
    the minimum spanning tree, which is no longer), ``diameter`` that of the inputs. Kind of truth: theorem, on a domain
    that contains the convex hull of the inputs. Reference: Jacot 2023, Proposition 10.

    >>> bound = rank_one_lower_bound([[0.0], [1.0], [2.0]], [[0.0], [4.0], [0.0]])
    >>> bound.slope, bound.squared_norm(num_layers=2)
    (2.0, 4.0)
    """
    given, wanted = _rows(inputs), _rows(outputs)
    require(len(given) == len(wanted), "inputs and outputs must pair up", f"there are {len(given)} and {len(wanted)}")
    length = diameter(given)
    require(length > 0, "the inputs must not all be equal", "their diameter is 0")
    return RankOneBound(shortest_path(wanted, largest_exact=largest_exact), length)


def rank_one_network(inputs: ArrayLike, outputs: ArrayLike, direction: ArrayLike) -> list[Layer]:
    """A ReLU network of three layers and bottleneck width 1 that interpolates: t = u . x + c, then a polygon through
    the outputs in the order of t.

    Every kink has its incoming and outgoing weight balanced. Two samples with the same t and other outputs are refused.

    >>> layers = rank_one_network([[0.0], [1.0], [3.0]], [[0.0], [2.0], [2.0]], direction=[1.0])
    >>> [layer.weight.shape for layer in layers]
    [(1, 1), (2, 1), (1, 2)]
    """
    given, wanted = _rows(inputs), _rows(outputs)
    unit = np.asarray(direction, dtype=np.float64)
    unit = unit / np.linalg.norm(unit)
    times = given @ unit
    order = np.argsort(times, kind="stable")
    times, wanted = times[order] - times.min(), wanted[order]
    steps = np.diff(times)
    is_clear = steps > 1e-12 * max(1.0, float(times[-1]))
    must = "the direction must tell all inputs apart"
    require(bool(is_clear.all()), must, f"{int((~is_clear).sum())} of them coincide", "Try another direction")
    slopes = np.diff(wanted, axis=0) / steps[:, None]
    kinks = np.diff(slopes, axis=0, prepend=np.zeros((1, wanted.shape[1])))
    places = times[:-1]
    sizes = np.linalg.norm(kinks, axis=1)
    incoming = np.sqrt(sizes / np.sqrt(1 + places**2))
    outgoing = np.divide(kinks, incoming[:, None], out=np.zeros_like(kinks), where=incoming[:, None] > 0)
    first = Layer(unit[None], np.array([-float((given @ unit).min())]))
    return [first, Layer(incoming[:, None], -incoming * places), Layer(outgoing.T, wanted[0])]


def rank_one_constant(inputs: ArrayLike, outputs: ArrayLike, directions: Sequence[ArrayLike]) -> float:
    """C_N with ||W||^2 <= L + C_N for some interpolator of bottleneck rank 1 at every depth L >= 3, by construction.

    The best over the given directions: identity layers of one unit go between the first and the second layer of
    ``rank_one_network``. Kind of truth: upper bound. Reference: Jacot 2023, Proposition 2.
    """
    require(len(directions) > 0, "there must be at least one direction", "the list is empty")
    return min(squared_norm(rank_one_network(inputs, outputs, direction)) - 3 for direction in directions)


def _rows(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    is_fine = array.ndim == 2 and len(array) >= 2
    require(is_fine, "samples must be at least two rows of a matrix", f"got shape {array.shape}")
    require(bool(np.isfinite(array).all()), "samples must be finite", "there is NaN or inf")
    return array
