"""Residual networks with an activation: measured ranks beside the formulas of the linear network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.hessian_ranks import NAMES, SYMBOLS

_ACTIVATIONS = ("identity", "relu", "tanh", "gelu")
_WIDTH, _INPUTS, _OUTPUTS, _SAMPLES = 6, 4, 2, 40


_SERIES = (
    *(Series(SYMBOLS[part], line=f"linear.{part}", points=f"measured.{part}", part=part) for part in PARTS),
    Series("parameters", dashed="parameters"),
)


def measure(case: Case) -> dict[str, Any]:
    """Numerical ranks, the linear formula for inputs and residuals of the same ranks, and the parameters."""
    import torch

    from hessmap.networks import Residual
    from hessmap.problem.problem import Problem
    from hessmap.theory import predict_ranks
    from hessmap_research.studies.hessian_ranks import data_ranks, measured_ranks

    sizes: dict[str, Any] = {"inner_width": case["inner_width"], "input_dim": _INPUTS, "output_dim": _OUTPUTS}
    sizes |= {"train_input": True, "train_output": True}
    net = Residual(_WIDTH, case["num_blocks"], **sizes, activation=case["activation"])
    generator = torch.Generator().manual_seed(case["seed"])
    inputs = torch.randn(_SAMPLES, _INPUTS, dtype=torch.float64, generator=generator)
    targets = torch.randn(_SAMPLES, _OUTPUTS, dtype=torch.float64, generator=generator)
    problem = Problem(net.build(seed=case["seed"]), "squared", inputs, targets)
    known, _ = data_ranks(problem, bias=False)
    prediction = predict_ranks(
        Residual(_WIDTH, case["num_blocks"], **sizes),
        input_rank=known["input_rank"],
        residual_rank=known["residual_rank"],
    )
    measured = measured_ranks(problem)
    return {
        "measured": measured,
        "linear": {part: getattr(prediction, part).value for part in PARTS},
        "parameters": net.num_parameters,
        "share": {part: measured[part].value / net.num_parameters for part in PARTS},
    }


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    linear = [row for row in rows if row["activation"] == "identity"]
    other = [row for row in rows if row["activation"] != "identity"]
    if linear:
        same = [row.number(f"measured.{part}") == row["linear"][part] for row in linear for part in PARTS]
        claim = "Without activation the measured ranks are those of the formula"
        yield Claim.counted("linear-ranks", claim, sum(same), len(same), f"{sum(same)} of {len(same)} ranks")
    if other:
        above = [row.number("measured.loss") > row["linear"]["loss"] for row in other]
        claim = "With an activation H_L has a higher rank than the linear formula gives"
        yield Claim.counted("above-linear", claim, sum(above), len(above), f"in {sum(above)} of {len(above)} networks")
        shares = [row["share"]["loss"] for row in other]
        claim = "With an activation at least nine tenths of the parameters count in H_L"
        yield Claim(
            "nine-tenths", claim, min(shares) >= 0.9, f"rank / parameters from {min(shares):.2f} to {max(shares):.2f}"
        )
        held = [row.number("measured.outer_product") <= _SAMPLES * _OUTPUTS for row in other]
        claim = "H_o stays below samples times outputs, the one bound that needs no linear network"
        yield Claim.counted("samples-bound", claim, sum(held), len(held), f"in {sum(held)} of {len(held)} networks")


STUDY = Study(
    name="residual/activations",
    question="What does an activation change in the ranks of residual networks?",
    reference="research/docs/attention-residual.md; not in print",
    cases=grid(activation=_ACTIVATIONS, inner_width=[None, 3], num_blocks=[1, 2, 3], seed=range(2)),
    measure=measure,
    claims=claims,
    view=View(
        figures=tuple(
            Lines(
                title=f"rank, inner width {inner}",
                where={"inner_width": inner},
                x="num_blocks",
                facet="activation",
                series=_SERIES,
            )
            for inner in (None, 3)
        ),
        table=(
            "activation",
            "inner_width",
            "num_blocks",
            *(Column(f"measured.{part}", name) for part, name in NAMES.items()),
            *(Column(f"linear.{part}", f"{name} linear") for part, name in NAMES.items()),
            "parameters",
        ),
        group_by=("activation", "inner_width", "num_blocks"),
    ),
    seconds=0.6,
    answered=Answer(
        "Nearly all parameters count: at least nine tenths in H_L, more than the linear formula gives in 36 of 36"
        " networks, so that it is not a bound.",
        num_claims=4,
    ),
)
