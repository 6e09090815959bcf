"""The depths at which a network can be expected to find the rank of the function behind the data.

Reference: Jacot 2023, section 4 (Propositions 2, 3, 5, Theorem 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hessmap.errors import require


@dataclass(frozen=True)
class RecoveryDepths:
    """Where rank recovery is expected, and what is proved; both from ``least_depth`` on, where k L + C holds.

    ``expected`` = (first, last) or None: from the first depth at which the bound k + C / L is below k + 1, to the last
    at which k L + C is below the cost L + C_N of the rank-one interpolator that was built. An expectation: it compares
    two upper bounds. ``proved`` = (first, last) or None: depths at which the true function costs less than the lower
    bound for EVERY rank-one interpolator, so that no global minimum of small ridge has bottleneck rank 1.
    """

    true_rank: int
    least_depth: int
    expected: tuple[int, int] | None
    proved: tuple[int, int] | None


def recovery_depths(
    true_rank: int,
    constant: float,
    rank_one_constant: float,
    rank_one_slope: float,
    *,
    least_depth: int,
    largest: int = 10_000,
) -> RecoveryDepths:
    """Both ranges from k, C (``cost_constant``), C_N (``rank_one_constant``) and path / diameter (Proposition 10).

    ``least_depth`` is the least depth at which a network of cost k L + C is known: one more than the layers of the
    network that ``cost_constant`` was given. Below it k L + C bounds nothing, and may even be negative.

    Too shallow, k + C / L >= k + 1 leaves room for another unit of rank (Proposition 3); too deep, k L + C > L + C_N
    makes rank one cheaper. ``proved`` asks for k L + C < L slope^(2/L): it needs a slope above k^(L/2), which takes
    many samples. In u = 1/L the difference slope^(2u) - k - C u is convex and, for k > 1, negative at u = 0: it changes
    its sign once, so that the proved depths are all those up to a last one.

    >>> recovery_depths(true_rank=2, constant=5.0, rank_one_constant=45.0, rank_one_slope=100.0, least_depth=4)
    RecoveryDepths(true_rank=2, least_depth=4, expected=(6, 39), proved=(4, 10))
    """
    require(true_rank >= 1, "true_rank must be at least 1", f"got {true_rank}")
    require(rank_one_slope >= 0, "rank_one_slope must not be negative", f"got {rank_one_slope}")
    require(least_depth >= 1, "least_depth must be at least 1", f"got {least_depth}")
    first = max(least_depth, math.floor(constant) + 1)
    if true_rank == 1:
        return RecoveryDepths(1, least_depth, (first, largest) if first <= largest else None, None)
    last = math.ceil((rank_one_constant - constant) / (true_rank - 1)) - 1
    expected = (first, min(last, largest)) if first <= min(last, largest) else None
    proved = [
        depth
        for depth in range(least_depth, largest + 1)
        if true_rank * depth + constant < depth * rank_one_slope ** (2.0 / depth)
    ]
    return RecoveryDepths(true_rank, least_depth, expected, (proved[0], proved[-1]) if proved else None)
