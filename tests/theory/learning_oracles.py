"""Learning coefficients by direct search, sharing nothing with the library: chains of ranks, subsets, rank tables."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import combinations, pairwise, product

Table = tuple[tuple[int, ...], ...]
Intervals = dict[tuple[int, int], int]


def by_chains(widths: tuple[int, ...], rank: int) -> tuple[Fraction, int]:
    """Half the codimension of {W_L .. W_1 = W*}, and the longest chain of the rank chains that attain it."""
    costs = {}
    hidden = [range(rank, width + 1) for width in widths[1:-1]]
    for middle in product(*hidden):
        chain = (widths[0], *middle, rank)
        if all(a >= b for a, b in pairwise(chain)):
            steps = zip(chain, chain[1:], widths[1:], strict=False)
            costs[chain] = sum((before - after) * (width - after) for before, after, width in steps)
    least = min(costs.values())
    minimisers = sorted(chain for chain, cost in costs.items() if cost == least)

    @cache
    def longest(place: int) -> int:
        below = (other for other in range(place) if _is_below(minimisers[other], minimisers[place]))
        return 1 + max(map(longest, below), default=0)

    ends = rank * (widths[0] + widths[-1] - rank)
    return Fraction(ends + least, 2), max(map(longest, range(len(minimisers))))


def _is_below(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return left != right and all(a <= b for a, b in zip(left, right, strict=True))


def least_chain_cost(widths: tuple[int, ...], rank: int) -> int:
    """The codimension alone, layer by layer: for widths at which all chains are too many."""
    costs = {widths[0]: 0}
    for width, is_last in [*((width, False) for width in widths[1:-1]), (widths[-1], True)]:
        reached = [rank] if is_last else range(rank, width + 1)
        costs = {
            after: min(cost + (before - after) * (width - after) for before, cost in costs.items() if before >= after)
            for after in reached
            if any(before >= after for before in costs)
        }
    return rank * (widths[0] + widths[-1] - rank) + costs[rank]


def by_subsets(widths: tuple[int, ...], rank: int) -> tuple[Fraction, int]:
    """Aoyagi's form: the one set S of layers with max S < min outside, sum S >= l max S and sum S < l min outside."""
    excess = [width - rank for width in widths]
    places = range(len(excess))
    found = []
    for size in range(2, len(excess) + 1):
        for chosen in combinations(places, size):
            inside = [excess[place] for place in chosen]
            outside = [excess[place] for place in places if place not in chosen]
            fits_inside = sum(inside) >= (size - 1) * max(inside)
            fits_outside = not outside or (max(inside) < min(outside) and sum(inside) < (size - 1) * min(outside))
            if fits_inside and fits_outside:
                found.append(inside)
    (inside,) = found
    ell, total = len(inside) - 1, sum(inside)
    a = total - (-(-total // ell) - 1) * ell
    pairs = sum(x * y for x, y in combinations(inside, 2))
    value = Fraction(rank * (widths[0] + widths[-1] - rank), 2) + Fraction(pairs, 2)
    return value + Fraction(a * (ell - a) - (ell - 1) * total**2, 4 * ell), a * (ell - a) + 1


def reduced_rank_regression(inputs: int, hidden: int, outputs: int, r: int) -> tuple[Fraction, int]:
    """The four cases of Aoyagi & Watanabe 2005."""
    m, h, n = inputs, hidden, outputs
    if m + h < n + r:
        return Fraction(h * m - h * r + n * r, 2), 1
    if n + h < m + r:
        return Fraction(h * n - h * r + m * r, 2), 1
    if m + n < h + r:
        return Fraction(m * n, 2), 1
    inner = Fraction(2 * (h + r) * (m + n) - (m - n) ** 2 - (h + r) ** 2, 8)
    return (inner, 1) if (m + h + n + r) % 2 == 0 else (inner + Fraction(1, 8), 2)


def sums_of_intervals(widths: tuple[int, ...]) -> Iterator[Intervals]:
    """How often each interval of vertices is taken, for all networks of these widths up to changes of basis."""
    last = len(widths) - 1
    intervals = [(i, j) for i in range(last + 1) for j in range(i, last + 1)]

    def filled(place: int, left: tuple[int, ...], taken: Intervals) -> Iterator[Intervals]:
        if place == len(intervals):
            yield dict(taken)
            return
        first, end = intervals[place]
        for count in range(min(left[first : end + 1]) + 1):
            rest = tuple(size - count * (first <= vertex <= end) for vertex, size in enumerate(left))
            if end < last or rest[first] == 0:
                yield from filled(place + 1, rest, taken | {(first, end): count})

    yield from filled(0, widths, {})


def rank_table(intervals: Intervals, last: int) -> Table:
    return tuple(
        tuple(sum(count for (a, b), count in intervals.items() if a <= i and j <= b) for i in range(j + 1))
        for j in range(last + 1)
    )


def orbit_codimension(intervals: Intervals, widths: tuple[int, ...]) -> int:
    """Weights with these ranks and a fixed product: r (H_0 + H_L - r) + sum n[a,b] n[c,e] over a < c <= b + 1 <= e."""
    rank = intervals[0, len(widths) - 1]
    pairs = product(intervals.items(), repeat=2)
    extensions = sum(n * m for ((a, b), n), ((c, e), m) in pairs if a < c <= b + 1 <= e)
    return rank * (widths[0] + widths[-1] - rank) + extensions


def largest_component(table: Table, widths: tuple[int, ...]) -> int:
    """The least codimension of an orbit whose closure holds weights with this table."""
    last = len(widths) - 1
    tables = ((rank_table(found, last), found) for found in sums_of_intervals(widths))
    return min(
        orbit_codimension(found, widths)
        for other, found in tables
        if other[last][0] == table[last][0]
        and all(a >= b for rows in zip(other, table, strict=True) for a, b in zip(*rows, strict=True))
    )
