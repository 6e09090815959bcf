"""Random networks with a bias in some layers only, against the formulas of `theory.fully_connected.partial_bias`."""

from __future__ import annotations

import random
from typing import Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View
from hessmap_research.studies.fcn.random_settings import RIGHT_CHECKS, all_right_claims, random_setting, right_columns
from hessmap_research.studies.hessian_ranks import NAMES


def measure(case: Case) -> dict[str, Any]:
    """How many of the networks each formula gets right; every network that it does not."""
    from hessmap.exact import generic_rank
    from hessmap.networks import FullyConnected
    from hessmap.theory import predict_ranks

    draw = random.Random(case_key(case))
    right = dict.fromkeys(PARTS, 0)
    counterexamples = []
    for _ in range(case["num_networks"]):
        family = draw.choice(("deep, bias", "deep, bias, bottleneck"))
        setting = random_setting(draw, family, case["inputs"], case["residual"], case["loss"])
        layers = range(1, len(setting.widths))
        biased = tuple(sorted(draw.sample(layers, draw.randint(1, len(layers)))))
        network = FullyConnected(setting.widths, bias=[layer in biased for layer in layers])
        seed = draw.randrange(2**32)
        prediction = predict_ranks(network, setting.loss, **setting.data_ranks)
        claimed = {part: int(getattr(prediction, part)) for part in PARTS}
        exact = {
            part: generic_rank(network, part, setting.loss, **setting.data_ranks, seed=seed).value for part in PARTS
        }
        for part in PARTS:
            right[part] += exact[part] == claimed[part]
        if exact != claimed:
            counterexamples.append({"widths": setting.widths, "biased": biased, "exact": exact, "claimed": claimed})
    return {"right": right, "counterexamples": counterexamples}


STUDY = Study(
    name="fcn/bias-in-some-layers",
    question="Do the rank formulas for a bias in an arbitrary subset of layers survive random networks?",
    reference="beyond Singh, Bachmann & Hofmann 2021, who have a bias in every layer or in none",
    cases=grid(
        inputs=["rc = r", "rc = r - 1"],
        residual=["generic", "low rank", "zero mean"],
        loss=["squared", "cross_entropy", "log_cosh"],
        num_networks=[25],
        batch=range(4),
    ),
    measure=measure,
    checks=RIGHT_CHECKS,
    claims=all_right_claims,
    view=View(
        figures=tuple(
            Heatmap(title=f"${name}$: right of 25", value=f"right.{part}", x="residual", y="inputs", limits=(0, 25))
            for part, name in NAMES.items()
        ),
        table=("inputs", "residual", "loss", *right_columns("right", "right"), Column("num_networks", "of")),
        group_by=("inputs", "residual", "loss"),
    ),
    seconds=3.0,
    answered=Answer(
        "Yes: all three are right on 1,800 of 1,800 random networks.",
        num_claims=3,
        cases="agrees",
    ),
)
