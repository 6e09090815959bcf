"""Learning coefficients by formula against searches over all ranks of the weights, on random networks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from hessmap_research.runner.claims import claim_id
from hessmap_research.runner.study import Case, grid
from hessmap_research.studies.random_networks import (
    OURS,
    Counted,
    Drawn,
    count_all,
    counterexamples,
    counts_view,
    equal,
    random_networks,
    repeated,
)

_FORMULAS = ("over all optima", "its multiplicity", "at weights of two layers", "at weights of three layers")
_DEEPEST = {"over all optima": 6, "its multiplicity": 4}
_LARGEST = {"over all optima": 9, "its multiplicity": 5, "at weights of two layers": 6, "at weights of three layers": 3}


def _network(case: Case, draw: random.Random) -> Drawn:
    """Widths and the rank of the target, or the ranks of all products of weights: ``source`` is what formulas take."""
    formula = case["formula"]
    if "at weights" in formula:
        table = _random_table(draw, 2 if "two" in formula else 3, _LARGEST[formula])
        return Drawn(table, source=(table,))
    widths = tuple(draw.randint(1, _LARGEST[formula]) for _ in range(draw.randint(2, _DEEPEST[formula])))
    sizes = widths, draw.randint(0, min(widths))
    return Drawn(sizes, source=sizes)


def _claimed(case: Case, drawn: Drawn) -> dict[str, dict[str, Any]]:
    from hessmap.theory import learning

    if "at weights" in case["formula"]:
        local = learning.local_learning_coefficient(*drawn.source)
        return {OURS: {"value": local.value}, "theorem": {"value": local.value} if local.is_proved else {}}
    found = learning.linear_learning_coefficient(*drawn.source)
    claimed: dict[str, Any] = {"value": found.value}
    if case["formula"] == "its multiplicity":
        claimed["multiplicity"] = found.multiplicity
    return {OURS: claimed, "theorem": claimed}


def _searched(case: Case, drawn: Drawn, draw: random.Random) -> dict[str, Any]:
    """At weights, the search is over all strata whose generic ranks are at least those of the weights."""
    if "at weights" in case["formula"]:
        (table,) = drawn.source
        widths, rank = tuple(row[-1] for row in table), table[-1][0]
        costs = {chain: cost for chain, cost in _costs(widths, rank).items() if _holds_weights(chain, widths, table)}
    else:
        widths, rank = drawn.source
        costs = _costs(widths, rank)
    least = min(costs.values())
    found: dict[str, Any] = {"value": Fraction(rank * (widths[0] + widths[-1] - rank) + least, 2)}
    if case["formula"] == "its multiplicity":
        found["multiplicity"] = _longest_chain(sorted(chain for chain, cost in costs.items() if cost == least))
    return found


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


FORMULAS = random_networks(
    name="learning/formulas",
    question="Are the formulas of learning coefficients those that a search over all ranks finds?",
    reference="Aoyagi 2024; research/docs/learning-coefficients.md",
    cases=grid(formula=_FORMULAS, num_networks=[250], batch=range(10)),
    networks=repeated(_network),
    exact=_searched,
    claimed=_claimed,
    fields={
        "held": count_all(equal),
        "num_proved": lambda compared: sum(bool(one.claimed["theorem"]) for one in compared),
        "counterexamples": counterexamples(equal),
    },
    checks=["held"],
    claims=tuple(
        Counted(
            claim_id("formula", formula),
            f"The formula is what a search finds: {formula}",
            "held",
            where={"formula": formula},
            detail="{right:,} of {total:,}; a theorem at {proved:,}",
            beside={"proved": "num_proved"},
        )
        for formula in _FORMULAS
    ),
    view=counts_view(["formula"], {"held": "", "num_proved": "theorem"}, 250, {"right of 250": "held"}),
    seconds=1.0,
    answer="Yes: all four agree with the search on 2,500 of 2,500 random networks.",
    num_claims=4,
)
