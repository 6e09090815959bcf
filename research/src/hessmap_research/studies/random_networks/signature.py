"""Signs of the eigenvalues of H_f of random linear networks over the integers against the formula of the signature."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hessmap_research.runner.study import Case, grid
from hessmap_research.studies.random_networks import (
    OURS,
    Compared,
    Counted,
    Drawn,
    count,
    counterexamples,
    counts_view,
    equal,
    first,
    random_networks,
    repeated,
)

GENERIC, LOW_RANK = "generic weights", "weights of low rank"
_WIDEST = {2: 6, 3: 5, 4: 5, 5: 4, 6: 4}  # by the number of layers
_MOST_PARAMETERS = 80
_LARGEST_ENTRY = 4


def _network(case: Case, draw: random.Random) -> Drawn:
    """Integer weights and Omega of a random rank; the non-zero eigenvalues of the loop are distinct and in sectors."""
    return first(lambda: _candidate(case, draw), lambda drawn: drawn.source[2] is not None)


def _candidate(case: Case, draw: random.Random) -> Drawn:
    from hessmap_research.instruments import exact_inertia as exact

    num_layers, least = case["num_layers"], draw.choice((1, 2, 3))
    widths = first(
        lambda: [draw.randint(least, _WIDEST[num_layers]) for _ in range(num_layers + 1)],
        lambda some: sum(a * b for a, b in pairwise(some)) <= _MOST_PARAMETERS,
    )

    def matrix(rows: int, columns: int, rank: int) -> Any:
        if rank >= min(rows, columns):
            return exact.integer_matrix(_entries(draw, rows, columns))
        return exact.integer_matrix(_entries(draw, rows, rank)) * exact.integer_matrix(_entries(draw, rank, columns))

    def some_rank(rows: int, columns: int) -> int:
        return draw.randint(1, min(rows, columns)) if case["family"] == LOW_RANK else min(rows, columns)

    sizes = [(after, before) for before, after in pairwise(widths)]
    weights = [matrix(rows, columns, some_rank(rows, columns)) for rows, columns in sizes]
    residual_rank = draw.randint(1, min(widths[0], widths[-1]))
    omega = matrix(widths[-1], widths[0], residual_rank)
    eigenvalues = exact.loop_eigenvalues(exact.loop(weights, omega), num_layers)
    name = "-".join(map(str, widths))
    return Drawn(name, {"residual_rank": residual_rank}, source=(weights, omega, eigenvalues))


def _entries(draw: random.Random, rows: int, columns: int) -> list[list[int]]:
    return [[draw.randint(-_LARGEST_ENTRY, _LARGEST_ENTRY) for _ in range(columns)] for _ in range(rows)]


def _exact(case: Case, drawn: Drawn, draw: random.Random) -> dict[str, Any]:
    from hessmap_research.instruments import exact_inertia as exact

    weights, omega, _ = drawn.source
    found = exact.inertia(exact.functional_hessian(weights, omega))
    return {"signature": found.num_positive - found.num_negative}


def _claimed(case: Case, drawn: Drawn) -> dict[str, dict[str, Any]]:
    from hessmap.theory.fully_connected.signature import functional_signature

    return {OURS: {"signature": functional_signature(drawn.source[2], case["num_layers"])}}


def _num_pairs(compared: Sequence[Compared]) -> int:
    """Complex pairs of all loops together."""
    return sum(sum(one.drawn.source[2].pairs) for one in compared)


def _num_zero(compared: Sequence[Compared]) -> int:
    """Networks with as many negative as positive eigenvalues: half of the rank of H_f."""
    return sum(one.exact["signature"] == 0 for one in compared)


SIGNATURE = random_networks(
    name="fcn/signature",
    question="Is the signature of the functional Hessian what the eigenvalues of the loop determine?",
    reference="research/docs/signature.md; Singh, Hofmann & Schoelkopf 2023, Section 5.3",
    cases=grid(family=[GENERIC, LOW_RANK], num_layers=[2, 3, 4, 5, 6], num_networks=[100], batch=range(4)),
    networks=repeated(_network),
    exact=_exact,
    claimed=_claimed,
    fields={
        "right": count(equal),
        "num_pairs": _num_pairs,
        "num_half": _num_zero,
        "counterexamples": counterexamples(equal),
    },
    checks=["right.signature"],
    claims=tuple(
        Counted(
            f"signature-{'generic' if family == GENERIC else 'low-rank'}",
            f"The formula of the signature is right: {family}",
            "right.signature",
            where={"family": family},
            detail="{right:,} of {total:,} networks with {pairs:,} complex pairs; half are negative in {half:,}",
            beside={"pairs": "num_pairs", "half": "num_half"},
        )
        for family in (GENERIC, LOW_RANK)
    ),
    view=counts_view(
        ["family", "num_layers"],
        {"right.signature": "right", "num_pairs": "complex pairs", "num_half": "half negative"},
        100,
        {"right of 100": "right.signature"},
    ),
    seconds=3.0,
    answer="Yes: on 2,000 of 2,000 random networks of generic weights and 2,000 of 2,000 of weights of low rank.",
    num_claims=2,
)
