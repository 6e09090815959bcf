"""The set of optima of a linear network near given weights: the codimension of its largest component.

The optima {W_L .. W_1 = W*} are a union of strata, one for each chain of ranks s_k = rk(W_k .. W_1), from s_0 = H_0
down to s_L = r. Each is irreducible, of codimension r (H_0 + H_L - r) + sum_k (s_{k-1} - s_k)(H_k - s_k), and at its
generic point rk(W_j .. W_{i+1}) = s_j + min_{i<=k<=j} (H_k - s_k). The closure of a stratum holds the weights w exactly
where these ranks are at least those of w (Abeasis & Del Fra 1985). That is a bound on differences of two of the s_k,
and the codimension is a convex function of the differences s_{k-1} - s_k: a function of integers that is L-natural
convex, which descent by steps of 0 and 1 minimises exactly (Murota 2003), also at a width of 10^9.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hessmap.theory.fully_connected.representations import RankTable
from hessmap.theory.learning.closures import least_closed_set

Chain = tuple[int, ...]


def largest_component_codimension(table: RankTable) -> int:
    """c = r (H_0 + H_L - r) + min sum_k (s_{k-1} - s_k)(H_k - s_k), over the components of the optima through w.

    The minimum is over integers s_0 = H_0, s_L = r with rho[k][0] <= s_k and, for k < j,
    0 <= s_k - s_j <= H_k - rho[j][k]. ``table`` is rho, as ``checked_product_ranks`` returns it.

    Kind of truth: theorem (proof in docs/learning-coefficients.md).

    By hand for 1-1-1, both weights 0: the two axes, of codimension 1.

    >>> largest_component_codimension(((1,), (0, 1), (0, 0, 1)))
    1
    """
    widths = [row[-1] for row in table]
    rank = table[-1][0]
    return rank * (widths[0] + widths[-1] - rank) + _cost(widths, _cheapest_chain(table))


def _cost(widths: Sequence[int], chain: Chain) -> int:
    steps = zip(pairwise(chain), widths[1:], strict=True)
    return sum((before - after) * (width - after) for (before, after), width in steps)


def _cheapest_chain(table: RankTable) -> Chain:
    """The minimum, from the ranks of w itself, by steps of 2^n, then of 2^(n-1), down to 1."""
    chain = tuple(row[0] for row in table)
    step = 1 << max(row[-1] for row in table).bit_length()
    while step:
        moved = min((_cheapest_step(table, chain, signed) for signed in (step, -step)), key=lambda found: found[0])
        if moved[1] == chain:
            step //= 2
        chain = moved[1]
    return chain


def _cheapest_step(table: RankTable, chain: Chain, step: int) -> tuple[int, Chain]:
    """The cheapest chain that is this one with ``step`` added at some of the hidden vertices."""
    widths = [row[-1] for row in table]
    last = len(chain) - 1
    # Moving all of a set X changes the cost by a sum over single vertices, less what neighbours in X save together.
    before = _cost(widths, chain)

    def change(*vertices: int) -> int:
        return _cost(widths, tuple(s + step * (k in vertices) for k, s in enumerate(chain))) - before

    singles = {k: change(k) for k in range(1, last)}
    savings = {(k, k + 1): singles[k] + singles[k + 1] - change(k, k + 1) for k in range(1, last - 1)}
    needs = _needed_moves(table, chain, step)
    found = least_closed_set(singles, savings, needs)
    moved = tuple(s + step * (k in found) for k, s in enumerate(chain))
    return _cost(widths, moved), moved


def _needed_moves(table: RankTable, chain: Chain, step: int) -> list[tuple[int, int | None]]:
    """Pairs (k, j): vertex k can move only if j moves as well; j is None where k cannot move at all."""
    last = len(chain) - 1
    needs: list[tuple[int, int | None]] = []
    for k in range(last + 1):
        for j in range(k + 1, last + 1):
            room = table[k][k] - table[j][k] - chain[k] + chain[j]  # how much the difference s_k - s_j may grow
            fall = chain[k] - chain[j]  # how much it may fall
            growing, falling = (k, j) if step > 0 else (j, k)
            for mover, other, most in ((growing, falling, room), (falling, growing, fall)):
                if abs(step) > most:
                    needs.append((mover, other if 0 < other < last else None))
    return [(mover, other) for mover, other in needs if 0 < mover < last]
