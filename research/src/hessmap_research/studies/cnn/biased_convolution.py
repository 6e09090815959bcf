"""One linear convolution with a bias: functional and loss rank against exact arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.networks import Convolutional
from hessmap.theory import predict_ranks
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View

_MOST_PARAMETERS = 100


def measure(case: Case) -> dict[str, Any]:
    """How many drawn networks have the functional and the loss rank that are claimed; every other by its name."""
    from hessmap.exact.generic import generic_hessian_ranks

    draw = random.Random(case_key(case))
    right, wrong = {"functional": 0, "loss": 0}, []
    for _ in range(case["num_networks"]):
        network = _drawn_network(draw, case["has_last_bias"])
        claimed = predict_ranks(network)
        found = generic_hessian_ranks(network, seed=draw.randrange(2**32))
        pairs = {"functional": claimed.functional, "loss": claimed.loss}
        for part, exact in (("functional", found["functional"].value), ("loss", found["loss"].value)):
            right[part] += exact == pairs[part].value
            if exact != pairs[part].value:
                wrong.append({"network": str(network), "part": part, "exact": exact, "claimed": pairs[part].value})
    return {"right": right, "counterexamples": wrong}


def _drawn_network(draw: random.Random, has_last_bias: bool) -> Convolutional:
    """Strides up to the kernel, and no more outputs than inputs."""
    while True:
        kernel, positions = draw.randint(1, 7), draw.randint(1, 5)
        stride = draw.randint(1, min(3, kernel))
        channels, outputs = (draw.randint(1, 3), draw.randint(1, 6)), draw.randint(1, 6)
        length = (positions - 1) * stride + kernel
        net = Convolutional(length, channels, (kernel,), (stride,), outputs, bias=(True, has_last_bias))
        if net.num_parameters <= _MOST_PARAMETERS and outputs <= net.input_dim:
            return net


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    total = sum(row["num_networks"] for row in rows)
    for part, name in (("functional", "H_f"), ("loss", "H_L")):
        right = sum(row["right"][part] for row in rows)
        yield Claim.counted(
            claim_id("formula", part),
            f"The formula gives the rank of {name}",
            right,
            total,
            f"{right:,} of {total:,} networks",
        )


STUDY = Study(
    name="cnn/biased-convolution",
    question="What are the ranks of one linear convolution with a bias, where residuals do not sum to zero?",
    reference="research/docs/convolutional.md; not in print",
    cases=grid(has_last_bias=[True, False], num_networks=[100], batch=range(10)),
    measure=measure,
    checks=(Check("right.functional", "num_networks", "equal"), Check("right.loss", "num_networks", "equal")),
    claims=claims,
    view=View(
        figures=(Heatmap(title="H_L right of 100", value="right.loss", x="batch", y="has_last_bias", limits=(0, 100)),),
        table=(
            "has_last_bias",
            Column("right.functional", "H_f"),
            Column("right.loss", "H_L"),
            Column("num_networks", "of"),
        ),
        group_by=("has_last_bias",),
    ),
    seconds=15.0,
    answered=Answer(
        "Those of the formula, on 2,000 of 2,000 random networks; for H_L it is a conjecture.",
        num_claims=2,
        cases="agrees",
    ),
)
