"""The set of optima of a linear network near given weights: the codimension of its largest component.

The optima {W_L .. W_1 = W*} are a union of strata, one for each chain of ranks s_k = rk(W_k .. W_1), from s_0 = H_0
down to s_L = r. Each is irreducible, of codimension r (H_0 + H_L - r) + sum_k (s_{k-1} - s_k)(H_k - s_k), and at its
generic point rk(W_j .. W_{i+1}) = s_j + min_{i<=k<=j} (H_k - s_k). The closure of a stratum holds the weights w exactly
where these ranks are at least those of w (Abeasis & Del Fra 1985).

In the steps x_k = s_{k-1} - s_k >= 0 that is a bound H_k - rho[j][k] on the sum of x over every interval k+1 .. j, and
the codimension is a constant and sum_k H_k x_k + x_k^2 / 2. By Frobenius' inequality the bounds are submodular on
intervals that meet, so the steps are the bases of a polymatroid, and the greedy algorithm finds the cheapest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hessmap.theory.fully_connected.representations import RankTable

Integers = NDArray[np.int64]
_LARGEST = 1 << 50  # sums of up to 2^13 of these stay below 2^63


def largest_component_codimension(table: RankTable) -> int:
    """c = r (H_0 + H_L - r) + min sum_k (s_{k-1} - s_k)(H_k - s_k), over the components of the optima through w.

    The minimum is over integers s_0 = H_0, s_L = r with rho[k][0] <= s_k and, for k < j,
    0 <= s_k - s_j <= H_k - rho[j][k]. ``table`` is rho, as ``checked_product_ranks`` returns it.

    Kind of truth: theorem (proof in research/docs/learning-coefficients.md).

    By hand for 1-1-1, both weights 0: the two axes, of codimension 1.

    >>> largest_component_codimension(((1,), (0, 1), (0, 0, 1)))
    1
    """
    widths = [row[-1] for row in table]
    rank = table[-1][0]
    chain = [widths[0]]
    for step in _cheapest_steps(table, widths):
        chain.append(chain[-1] - int(step))
    costs = zip(pairwise(chain), widths[1:], strict=True)
    return rank * (widths[0] + widths[-1] - rank) + sum((a - b) * (width - b) for (a, b), width in costs)


def _cheapest_steps(table: RankTable, widths: Sequence[int]) -> Integers:
    """Greedy: the unit that costs least, H_k + x_k, is added wherever the bounds allow it; what cannot grow stays so.

    Kind of truth: theorem (Federgruen & Groenevelt 1986). Between two steps that stop all others grow to one level of
    costs, which is found by bisection.
    """
    dtype, none = (np.int64 if max(widths) < _LARGEST else object), len(widths) * max(widths)
    vertices = range(len(widths))
    bounds = np.array([[widths[k] - table[j][k] if k < j else none for j in vertices] for k in vertices], dtype=dtype)
    costs = np.array(widths[1:], dtype=dtype)
    steps, is_free = np.zeros_like(costs), np.ones(len(costs), dtype=bool)
    level, highest = min(widths), max(widths) + widths[0] + 1
    while is_free.any():
        level = _highest_level(bounds, steps, np.where(is_free, costs, highest), level, highest)
        steps = np.where(is_free, np.maximum(steps, level - costs), steps)
        slack = bounds - _sums(steps)
        for k in np.flatnonzero(is_free & (costs <= level)):
            around = slack[: k + 1, k + 1 :]  # the intervals that hold step k
            if around.min():
                around -= 1
                steps[k] += 1
        is_free &= _least_around(slack) > 0
        level += 1
    return steps


def _highest_level(bounds: Integers, steps: Integers, costs: Integers, low: int, high: int) -> int:
    """The largest level to which the steps can grow, known to lie in low .. high - 1."""
    while high - low > 1:
        middle = (low + high) // 2
        allowed = bounds - _sums(np.maximum(steps, middle - costs))
        low, high = (middle, high) if allowed.min() >= 0 else (low, middle)
    return low


def _sums(steps: Integers) -> Integers:
    """The sum of the steps k+1 .. j at [k, j], 0 below the diagonal or less."""
    reached = np.concatenate([np.zeros_like(steps[:1]), np.cumsum(steps)])
    return np.asarray(reached[None, :] - reached[:, None])


def _least_around(slack: Integers) -> Integers:
    """For each step the least of all intervals that hold it."""
    from_left = np.minimum.accumulate(slack, axis=0)
    return np.asarray(np.minimum.accumulate(from_left[:, ::-1], axis=1)[:, ::-1].diagonal(1))
