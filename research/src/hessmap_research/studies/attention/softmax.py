"""What softmax changes: ranks of the same layer with it, over its temperature, beside the formula without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.hessian_ranks import NAMES

_TEMPERATURES = (0.1, 0.5, 1.0, 2.0, 10.0, 100.0, 1000.0)
_SIZES = ((4, 2, 3), (3, 3, 2), (5, 1, 4))


def measure(case: Case) -> dict[str, Any]:
    """Measured ranks with softmax, the formula without, and the smallest eigenvalue that counts of each."""
    import torch

    from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
    from hessmap.measurement import numerical_rank
    from hessmap.networks import SelfAttention
    from hessmap.problem.problem import Problem
    from hessmap.theory import predict_ranks

    generator = torch.Generator().manual_seed(case["seed"])
    width, keys, values = case["sizes"]
    net = SelfAttention(width, keys, values)
    tokens = torch.randn(60, 3, width, dtype=torch.float64, generator=generator)
    targets = torch.randn(60, 3, values, dtype=torch.float64, generator=generator)
    problem = Problem(net.build(seed=case["seed"], temperature=case["temperature"]), "squared", tokens, targets)
    hessians = (outer_product_hessian, functional_hessian, loss_hessian)
    ranks = {part: numerical_rank(hessian(problem)) for part, hessian in zip(PARTS, hessians, strict=True)}
    prediction = predict_ranks(net, num_samples=60, num_tokens=3)
    return {
        "measured": ranks,
        "linear": {part: getattr(prediction, part).value for part in PARTS},
        "smallest": {part: rank.smallest_kept / rank.scale for part, rank in ranks.items()},
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    decided = [row for row in rows if all(row[f"measured.{part}.decidable"] for part in PARTS)]
    detail = f"{len(decided)} of {len(rows)} layers have decidable ranks"
    more = [row[f"measured.{PARTS[0]}.value"] - row["linear"][PARTS[0]] for row in decided]
    claim = "With softmax H_o has one rank more than without: the scaling of scores against values is seen"
    yield Claim("one-rank-more", claim, all(gap == 1 for gap in more) if more else None, detail)
    same = [row["measured.loss.value"] == row["linear"]["loss"] for row in decided]
    yield Claim(
        "loss-rank-unchanged", "H_L has the rank of the formula without softmax", all(same) if same else None, detail
    )
    pairs = [
        (_smallest(rows, row, _TEMPERATURES[-2]), _smallest(rows, row, _TEMPERATURES[-1]))
        for row in rows
        if row["temperature"] == _TEMPERATURES[-1]
    ]
    falls = [high / low for high, low in pairs]
    claim = "From temperature 100 to 1000 the smallest eigenvalue of H_o that counts falls a hundredfold"
    yield Claim(
        "smallest-falls-with-temperature",
        claim,
        all(50 < fall < 200 for fall in falls),
        f"by {min(falls):.0f} to {max(falls):.0f}",
    )


def _smallest(rows: Sequence[Row], like: Row, temperature: float) -> float:
    (found,) = (
        row["smallest"]["outer_product"]
        for row in rows
        if row["temperature"] == temperature and row["sizes"] == like["sizes"] and row["seed"] == like["seed"]
    )
    return float(found)


STUDY = Study(
    name="attention/softmax",
    question="What does softmax change in the ranks of self-attention, over its temperature?",
    reference="research/docs/attention-residual.md; not in print",
    cases=grid(sizes=_SIZES, temperature=_TEMPERATURES, seed=range(3)),
    measure=measure,
    claims=claims,
    view=View(
        figures=(
            Lines(
                title="smallest eigenvalue that counts, relative to $||H_L||$",
                x="temperature",
                x_scale="log",
                y_scale="log",
                series=tuple(Series(f"${name}$", points=f"smallest.{part}", part=part) for part, name in NAMES.items()),
            ),
        ),
        table=(
            "sizes",
            "temperature",
            *(Column(f"measured.{part}", f"{name} softmax") for part, name in NAMES.items()),
            *(Column(f"linear.{part}", f"{name} without") for part, name in NAMES.items()),
        ),
        group_by=("sizes", "temperature"),
    ),
    seconds=0.5,
    answered=Answer(
        "It adds one to the rank of H_o, the scaling of scores against values, and nothing to that of H_L; from"
        " temperature 100 to 1000 the smallest eigenvalue of H_o that counts falls a hundredfold.",
        num_claims=3,
    ),
)
