"""The ranks of all products of consecutive weights: all that the ranks of the Hessians know of a linear network.

A table rho has rho[j][i] = rank of W_j .. W_{i+1} for 0 <= i < j <= L, and rho[i][i] = the dimension of vertex i: the
rank r of the inputs, the hidden widths, the outputs K. Everything is meant on the data: W_1 stands for its action on
the span of the inputs. A network is, up to a change of basis at every vertex, a direct sum of intervals: copies of
1 -> 1 -> .. -> 1 that live on the vertices i..j and vanish elsewhere (the representations of a line of arrows; Gabriel
1972). rho counts the copies, and the copies give rho back.
"""

from __future__ import annotations

from collections.abc import Sequence

from hessmap.errors import require
from hessmap.theory.conditions import checked_count

RankTable = Sequence[Sequence[int]]


def checked_product_ranks(product_ranks: RankTable) -> tuple[tuple[int, ...], ...]:
    """The table as plain integers; InvalidInput where no weights can have it."""
    table = tuple(
        tuple(checked_count(f"product_ranks[{j}][{i}]", rank) for i, rank in enumerate(row))
        for j, row in enumerate(product_ranks)
    )
    must = "product_ranks must hold a row for every vertex, row j with the entries 0..j, and at least two rows"
    is_triangle = len(table) >= 2 and all(len(row) == j + 1 for j, row in enumerate(table))
    require(is_triangle, must, f"the rows have {tuple(map(len, table))} entries")
    for (first, last), count in interval_counts(table).items():
        must = "product_ranks must be the ranks of the products of some weights"
        require(count >= 0, must, f"vertices {first} to {last} would need {count} intervals")
    return table


def interval_counts(table: RankTable) -> dict[tuple[int, int], int]:
    """How many intervals live on the vertices i..j: rho[j][i] - rho[j+1][i] - rho[j][i-1] + rho[j+1][i-1].

    >>> interval_counts([[2], [1, 1], [1, 1, 2]])
    {(0, 0): 1, (0, 1): 0, (0, 2): 1, (1, 1): 0, (1, 2): 0, (2, 2): 1}
    """
    last = len(table) - 1

    def rank(j: int, i: int) -> int:
        return table[j][i] if i >= 0 and j <= last else 0

    return {
        (i, j): rank(j, i) - rank(j + 1, i) - rank(j, i - 1) + rank(j + 1, i - 1)
        for i in range(last + 1)
        for j in range(i, last + 1)
    }
