"""Learning coefficients by formula against searches over all ranks of the weights, on random networks."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View

_FORMULAS = ("over all optima", "its multiplicity", "at weights of two layers", "at weights of three layers")
_DEEPEST = {"over all optima": 6, "its multiplicity": 4}
_LARGEST = {"over all optima": 9, "its multiplicity": 5, "at weights of two layers": 6, "at weights of three layers": 3}


def measure(case: Case) -> dict[str, Any]:
    """How many of the drawn networks have the value that a search finds; every other with both values."""
    draw = random.Random(case_key(case))
    compared = _at_weights if "at weights" in case["formula"] else _over_all_optima
    held, wrong, proved = 0, [], 0
    for _ in range(case["num_networks"]):
        network, found, searched, is_proved = compared(draw, case["formula"])
        held += found == searched
        proved += is_proved
        if found != searched:
            wrong.append({"network": str(network), "formula": str(found), "search": str(searched)})
    return {"held": held, "num_proved": proved, "counterexamples": wrong}


def _over_all_optima(draw: random.Random, formula: str) -> tuple[Any, Any, Any, bool]:
    from hessmap.theory.learning import linear_learning_coefficient

    deepest, largest = _DEEPEST[formula], _LARGEST[formula]
    widths = tuple(draw.randint(1, largest) for _ in range(draw.randint(2, deepest)))
    rank = draw.randint(0, min(widths))
    found = linear_learning_coefficient(widths, rank)
    ends = rank * (widths[0] + widths[-1] - rank)
    costs = _costs(widths, rank)
    least = min(costs.values())
    value = Fraction(ends + least, 2)
    if formula == "over all optima":
        return (widths, rank), found.value, value, True
    cheapest = sorted(chain for chain, cost in costs.items() if cost == least)
    return (widths, rank), (found.value, found.multiplicity), (value, _longest_chain(cheapest)), True


def _costs(widths: tuple[int, ...], rank: int) -> dict[tuple[int, ...], int]:
    """The codimension sum_k (s_{k-1} - s_k)(H_k - s_k) of every chain of ranks s_k = rk(W_k .. W_1)."""
    found = {}
    for hidden in product(*(range(rank, width + 1) for width in widths[1:-1])):
        chain = (widths[0], *hidden, rank)
        if all(before >= after for before, after in pairwise(chain)):
            steps = zip(pairwise(chain), widths[1:], strict=True)
            found[chain] = sum((before - after) * (width - after) for (before, after), width in steps)
    return found


def _longest_chain(ordered: Sequence[tuple[int, ...]]) -> int:
    """The elements of a longest chain in the order by components; ``ordered`` by the first that differs."""
    lengths: list[int] = []
    for place, item in enumerate(ordered):
        below = (lengths[at] for at in range(place) if all(a <= b for a, b in zip(ordered[at], item, strict=True)))
        lengths.append(1 + max(below, default=0))
    return max(lengths)


def _at_weights(draw: random.Random, formula: str) -> tuple[Any, Any, Any, bool]:
    """Random sums of intervals; the search is over all strata whose generic ranks are at least those of the weights."""
    from hessmap.theory.learning import local_learning_coefficient

    num_layers = 2 if "two" in formula else 3
    table = _random_table(draw, num_layers, _LARGEST[formula])
    widths = tuple(row[-1] for row in table)
    rank = table[-1][0]
    least = min(cost for chain, cost in _costs(widths, rank).items() if _holds_weights(chain, widths, table))
    found = local_learning_coefficient(table)
    return table, found.value, Fraction(rank * (widths[0] + widths[-1] - rank) + least, 2), found.is_proved


def _random_table(draw: random.Random, num_layers: int, largest: int) -> list[list[int]]:
    """rk(W_j .. W_{i+1}) of a random direct sum of intervals of vertices, none of them without dimension."""
    intervals = [(i, j) for i in range(num_layers + 1) for j in range(i, num_layers + 1)]
    counts = {interval: draw.choice((0, 0, 1, draw.randint(0, largest - 1))) for interval in intervals}
    for vertex in range(num_layers + 1):
        if not any(counts[a, b] for a, b in intervals if a <= vertex <= b):
            counts[vertex, vertex] = 1
    vertices = range(num_layers + 1)
    return [[sum(counts[a, b] for a, b in intervals if a <= i and j <= b) for i in range(j + 1)] for j in vertices]


def _holds_weights(chain: tuple[int, ...], widths: tuple[int, ...], table: list[list[int]]) -> bool:
    """Whether the closure of a stratum, whose products have rank s_j + min_k (H_k - s_k), holds the weights."""
    spare = [width - rank for width, rank in zip(widths, chain, strict=True)]
    return all(chain[j] + min(spare[i : j + 1]) >= table[j][i] for j in range(len(chain)) for i in range(j))


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for formula in dict.fromkeys(row["formula"] for row in rows):
        own = [row for row in rows if row["formula"] == formula]
        total, held, proved = (sum(row[name] for row in own) for name in ("num_networks", "held", "num_proved"))
        detail = f"{held:,} of {total:,}; a theorem at {proved:,}"
        yield Claim.counted(
            claim_id("formula", formula), f"The formula is what a search finds: {formula}", held, total, detail
        )


STUDY = Study(
    name="learning/formulas",
    question="Are the formulas of learning coefficients those that a search over all ranks finds?",
    reference="Aoyagi 2024; research/docs/learning-coefficients.md",
    cases=grid(formula=_FORMULAS, num_networks=[250], batch=range(10)),
    measure=measure,
    checks=(Check("held", "num_networks", "equal"),),
    claims=claims,
    view=View(
        figures=(Heatmap(title="right of 250", value="held", x="batch", y="formula", limits=(0, 250)),),
        table=("formula", Column("held"), Column("num_proved", "theorem"), Column("num_networks", "of")),
        group_by=("formula",),
    ),
    seconds=1.0,
    answered=Answer(
        "Yes: all four agree with the search on 2,500 of 2,500 random networks.",
        num_claims=4,
        cases="agrees",
    ),
)
