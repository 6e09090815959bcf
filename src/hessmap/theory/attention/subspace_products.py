"""Sums of products of subspaces: what several samples see of a matrix, each through a window of its own."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import NamedTuple

__all__ = [
    "equal_products_dimension",
    "sum_of_products_dimension",
]

Arm = tuple[int, int]
Ends = frozenset[int]

_PLACES = (0, 1, 2)
_SUBSETS: tuple[Ends, ...] = tuple(
    frozenset(chosen) for chosen in chain.from_iterable(combinations(_PLACES, size) for size in range(4))
)


class _Triple(NamedTuple):
    """Three subspaces of general position as a sum of lines, by the set of subspaces that a line lies in, and of planes
    with three different lines in them."""

    lines: dict[Ends, int]
    planes: int


def sum_of_products_dimension(first: int, second: int, arms: Sequence[Arm]) -> int:
    """The dimension of sum_i A_i (x) B_i, subspaces A_i of R^first and B_i of R^second of general position.

    Args:
        first: Dimension of the first space.
        second: Dimension of the second space.
        arms: Dimensions of the two subspaces of each product.

    Returns:
        The dimension.

    Notes:
        Formula: a (first, second)-matrix M that vanishes on all A_i (x) B_i maps A_i into the annihilator of B_i, i = 1
        .. N: a homomorphism from one system of N subspaces to another. For N <= 3 a system of general position is
        unique (the star with three arms is a Dynkin diagram, D4): a sum of lines and of planes with three lines, whose
        homomorphisms are counted one by one. A_i = R^first leaves the other products in R^first (x) R^second / B_i.
        Otherwise, for N >= 4, this is an upper bound: the least of first * second, of the sum of all a b, and of what
        three groups of subspaces, each replaced by its sum, give.

        ``arms`` are the dimensions (a, b), cut at (first, second); none counts if a or b is not positive.

        Assumptions: for N <= 3 each of the two systems is of general position; how they depend on each other is all the
        same. For N >= 4 none.

        Reference: Gabriel 1972 (D4); Schofield 1992 (general position of representations);
        research/docs/attention-residual.md.

    Example:
        Two lines of the plane times themselves, 2; three planes of R^2 (x) R^1 fill it, 2.

        >>> sum_of_products_dimension(2, 2, [(1, 1), (1, 1)]), sum_of_products_dimension(2, 1, [(1, 1)] * 3)
        (2, 2)
        >>> sum_of_products_dimension(4, 7, [(3, 3)] * 3)    # not 27
        25
    """
    cut = [(min(a, first), min(b, second)) for a, b in arms if a > 0 and b > 0]
    if first <= 0 or second <= 0 or not cut:
        return 0
    if len(cut) <= 3:
        return _three_products(first, second, cut)
    for place, (a, b) in enumerate(cut):
        if a == first or b == second:
            others = cut[:place] + cut[place + 1 :]
            left, right = (first, second - b) if a == first else (first - a, second)
            return a * b + sum_of_products_dimension(left, right, others)
    groups = [_grouped_arms(cut, first, second, alone) for alone in range(3)]
    return min(first * second, sum(a * b for a, b in cut), *(_three_products(first, second, group) for group in groups))


def equal_products_dimension(first: int, second: int, num_arms: int, arm: Arm) -> int:
    """The same for ``num_arms`` pairs of equal dimensions, of which there may be very many.

    Args:
        first: Dimension of the first space.
        second: Dimension of the second space.
        num_arms: Number of products.
        arm: Dimensions of the two subspaces of every product.

    Returns:
        The dimension.

    Example:
        >>> equal_products_dimension(4, 7, 3, (3, 3)), equal_products_dimension(4, 7, 10**9, (3, 3))
        (25, 28)
    """
    if num_arms <= 4:
        return sum_of_products_dimension(first, second, [arm] * num_arms)
    a, b = min(arm[0], first), min(arm[1], second)
    return 0 if min(first, second, a, b) <= 0 else min(first * second, num_arms * a * b)


def _grouped_arms(arms: Sequence[Arm], first: int, second: int, alone: int) -> list[Arm]:
    """The last ``alone`` subspaces on their own, the others in one sum."""
    kept = list(arms[len(arms) - alone :])
    rest = arms[: len(arms) - alone]
    return [(min(first, sum(a for a, _ in rest)), min(second, sum(b for _, b in rest))), *kept]


def _three_products(first: int, second: int, arms: Sequence[Arm]) -> int:
    padded = [*arms, *[(0, 0)] * (3 - len(arms))]
    left = _general_triple(first, [a for a, _ in padded])
    right = _general_triple(second, [second - b for _, b in padded])
    return first * second - _num_homomorphisms(left, right)


def _general_triple(dim: int, parts: Sequence[int]) -> _Triple:
    """The multiplicities, from the dimensions of sums and intersections of general position."""
    lines = dict.fromkeys(_SUBSETS, 0)
    lines[frozenset()] = outside = max(0, dim - sum(parts))
    lines[frozenset(_PLACES)] = inside = max(0, sum(parts) - 2 * dim)
    for place in _PLACES:
        one, two = (parts[other] for other in _PLACES if other != place)
        lines[frozenset({place})] = max(0, dim - one - two) - outside
        lines[frozenset(_PLACES) - {place}] = max(0, one + two - dim) - inside
    planes = parts[0] - sum(count for ends, count in lines.items() if 0 in ends)
    return _Triple(lines, planes)


def _num_homomorphisms(left: _Triple, right: _Triple) -> int:
    """Between lines: one if every subspace that holds the first holds the second. From a plane, or to one: as many as
    the lines leave free."""
    lines = sum(
        count * other for ends, count in left.lines.items() for targets, other in right.lines.items() if ends <= targets
    )
    from_plane = left.planes * sum(max(0, len(ends) - 1) * count for ends, count in right.lines.items())
    to_plane = right.planes * sum(max(0, 2 - len(ends)) * count for ends, count in left.lines.items())
    return lines + from_plane + to_plane + left.planes * right.planes
