"""The rank of polynomial networks with two hidden layers: a table in exact arithmetic, and a formula on fresh cases."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Heatmap, View

_LARGEST = {2: 6, 3: 5, 4: 4}
_FRESH_DEGREES = (2, 3, 4, 5)
_NUM_FRESH, _LARGEST_FRESH = 40, 160
# Widths at which classical defects or the equation of a plane curve lower the rank: (degree, is_monomial, n0, n1, n2).
_SPECIAL = (
    (2, True, 4, 5, 3),
    (2, True, 6, 8, 3),
    (2, True, 8, 11, 3),
    (3, True, 3, 5, 2),
    (5, True, 2, 3, 8),
    (2, False, 3, 5, 4),
    (4, False, 1, 2, 6),
    (5, False, 1, 2, 8),
)


def cases() -> tuple[Case, ...]:
    table = [
        {"item": "table", "degree": degree, "activation": kind, "inputs": inputs, "batch": 0}
        for degree, largest in _LARGEST.items()
        for kind in ("monomial", "all terms")
        for inputs in range(1, largest + 1)
    ]
    fresh = [
        {"item": "fresh", "degree": degree, "activation": kind, "inputs": 0, "batch": batch}
        for degree, kind, batch in product(_FRESH_DEGREES, ("monomial", "all terms"), range(2))
    ]
    special = [{"item": "special", "degree": 0, "activation": "special", "inputs": 0, "batch": 0}]
    return (*table, *fresh, *special)


def measure(case: Case) -> dict[str, Any]:
    """Exact ranks, the formula, and the counts of parameters and functions, network by network."""
    import numpy as np

    from hessmap.exact import generic_rank
    from hessmap.networks import FullyConnected, Polynomial
    from hessmap.theory.polynomial import deep_polynomial_rank, upper_bounds

    draw = random.Random(case_key(case))
    networks, exact, formula, bound, expected = [], [], [], [], []
    for degree, is_monomial, n0, n1, n2 in _networks(case, draw):
        widths = (n0, n1, n2, 1)
        lower = [0] * degree if is_monomial else [0, *(draw.choice((-3, -2, -1, 1, 2, 3)) for _ in range(degree - 1))]
        activation = Polynomial((*lower, 1))
        network = FullyConnected(widths, activation=activation)
        rank, whole = deep_polynomial_rank(widths, activation)
        found = generic_rank(network, "outer_product", seed=draw.randrange(2**32))
        networks.append((degree, is_monomial, n0, n1, n2))
        exact.append(found.value)
        formula.append(rank.value)
        bound.append(min(upper_bounds(n0, n1, n2, degree, is_monomial).values()))
        expected.append(min(network.num_parameters - is_monomial * sum(widths[1:-1]), whole))
    counted = np.array(exact)
    return {
        "widths": np.array([network[2:] for network in networks]),
        "degrees": np.array([network[0] for network in networks]),
        "is_monomial": np.array([network[1] for network in networks], dtype=np.int64),
        "exact": counted,
        "formula": np.array(formula),
        "expected_dimension": np.array(expected),
        "num_networks": len(networks),
        "num_right": int((counted == formula).sum()),
        "num_bounded": int((counted <= bound).sum()),
        "num_at_bound": int((counted == bound).sum()),
        "num_as_expected": int((counted == expected).sum()),
        "share_right": float((counted == formula).mean()),
        "share_as_expected": float((counted == expected).mean()),
    }


def _networks(case: Case, draw: random.Random) -> Iterator[tuple[int, bool, int, int, int]]:
    """Degree, kind and widths n0, n1, n2: all small ones, random larger ones, or the special ones."""
    is_monomial = case["activation"] == "monomial"
    if case["item"] == "special":
        yield from _SPECIAL
    elif case["item"] == "table":
        widths = range(1, _LARGEST[case["degree"]] + 1)
        for n1, n2 in product(widths, widths):
            yield case["degree"], is_monomial, case["inputs"], n1, n2
    else:
        count = 0
        while count < _NUM_FRESH:
            n0, n1, n2 = draw.randint(1, 8), draw.randint(1, 14), draw.randint(1, 14)
            if max(n0, n1, n2) > 6 and n0 * n1 + n1 * n2 + n2 <= _LARGEST_FRESH:
                count += 1
                yield case["degree"], is_monomial, n0, n1, n2


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    total = sum(row["num_networks"] for row in rows)
    below = sum(row["num_bounded"] for row in rows)
    yield Claim.counted(
        "upper-bounds", "The upper bounds hold (theorem)", below, total, f"{below:,} of {total:,} networks"
    )
    for item, words in (("table", "all small networks"), ("fresh", "fresh, larger networks"), ("special", "defects")):
        chosen = [row for row in rows if row["item"] == item]
        if chosen:
            right, count = sum(row["num_right"] for row in chosen), sum(row["num_networks"] for row in chosen)
            yield Claim.counted(
                claim_id("conjecture", item),
                f"The conjectured formula is right on {words}",
                right,
                count,
            )
    naive = sum(row["num_as_expected"] for row in rows)
    claim = "The expected dimension, min(parameters - scalings, all polynomials), is not enough"
    yield Claim("expected-not-enough", claim, naive < total, f"right on {naive:,} of {total:,}")


STUDY = Study(
    name="teacher/deep-polynomial",
    question="What is the rank of a polynomial network with two hidden layers?",
    reference="beyond the teacher-student paper, Section 6; neurovarieties of Kileel, Trager & Bruna 2019",
    cases=cases(),
    measure=measure,
    checks=(Check("num_right", "num_networks", "equal"), Check("num_bounded", "num_networks", "equal")),
    claims=claims,
    view=View(
        figures=tuple(
            Heatmap(
                title=title,
                value=value,
                x="inputs",
                y="degree",
                where={"item": "table", "activation": kind},
                limits=(0, 1),
                x_label="inputs; white was not run",
                y_label="degree",
            )
            for kind in ("monomial", "all terms")
            for title, value in (
                (f"{kind}: share where the formula is right", "share_right"),
                (f"{kind}: share at the expected dimension", "share_as_expected"),
            )
        ),
        table=(
            "item",
            "activation",
            "degree",
            "inputs",
            "batch",
            Column("num_networks", "networks"),
            Column("num_right", "formula right"),
            Column("num_at_bound", "at the bound"),
            Column("num_as_expected", "expected dimension right"),
        ),
    ),
    seconds=4.0,
    answered=Answer(
        "That of a conjectured formula: right on 810 of 810 small networks, 640 of 640 larger ones and 8 of 8"
        " with defects; the bounds behind it are theorems.",
        num_claims=5,
        cases="agrees",
    ),
)
