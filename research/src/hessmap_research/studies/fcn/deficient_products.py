"""Random networks whose products of weights lose rank, against theorems about them and the printed formulas."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View
from hessmap_research.studies.fcn.random_settings import (
    RIGHT_CHECKS,
    Setting,
    all_right_claims,
    printed_ranks,
    right_columns,
)
from hessmap_research.studies.hessian_ranks import NAMES

if TYPE_CHECKING:
    from hessmap_research.studies.fcn.interval_networks import SumOfIntervals

_WIDEST = 6


def measure(case: Case) -> dict[str, Any]:
    """How many of the networks each side gets right; every network that ours does not."""
    draw = random.Random(case_key(case))
    right, printed_right = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    counterexamples = []
    for _ in range(case["num_networks"]):
        network = _random_network(draw, case["num_layers"])
        outputs = network.widths[-1] - (case["loss"] == "cross_entropy")
        residual_rank = draw.randint(0, min(network.widths[0], outputs))
        setting = Setting(
            network.widths, False, case["loss"], network.widths[0], network.widths[0], residual_rank, False
        )
        exact = _exact_ranks(network, setting, draw.randrange(2**32))
        claimed, printed = _claimed_ranks(network, setting), printed_ranks(setting)
        for part in PARTS:
            right[part] += exact[part] == claimed[part]
            printed_right[part] += exact[part] in printed[part]
        if exact != claimed:
            counterexamples.append({"intervals": network.intervals, "exact": exact, "claimed": claimed})
    return {"right": right, "printed_right": printed_right, "counterexamples": counterexamples}


def _random_network(draw: random.Random, num_layers: int) -> SumOfIntervals:
    """A sum of random intervals with at least one unit at every vertex; those from input to output are likelier."""
    from hessmap_research.studies.fcn.interval_networks import SumOfIntervals

    every = [(first, last) for first in range(num_layers + 1) for last in range(first, num_layers + 1)]
    while True:
        candidates = every + [(0, num_layers)] * draw.randint(0, 3)
        intervals = sorted(draw.choices(candidates, k=draw.randint(3, 4 + 2 * num_layers)))
        network = SumOfIntervals(num_layers, tuple(intervals))
        if min(network.widths) >= 1 and max(network.widths) <= _WIDEST:
            return network


def _exact_ranks(network: SumOfIntervals, setting: Setting, seed: int) -> dict[str, int]:
    from hessmap.exact import generic_rank

    return {part: generic_rank(network, part, setting.loss, **setting.data_ranks, seed=seed).value for part in PARTS}


def _claimed_ranks(network: SumOfIntervals, setting: Setting) -> dict[str, int]:
    from hessmap.theory.fully_connected import deficient_products

    *rows, last = network.product_ranks
    # The softmax direction lies in the image of a product of these weights only if that is everything.
    table = [*rows, [min(rank, setting.effective_output_dim) for rank in last]]
    return {
        "outer_product": deficient_products.outer_product_rank(table),
        "functional": deficient_products.functional_rank(table, setting.residual_rank),
        "loss": deficient_products.loss_rank(table, setting.residual_rank),
    }


STUDY = Study(
    name="fcn/deficient-products",
    question="Do the rank formulas for any weights, given the ranks of their products, survive random networks?",
    reference="beyond Singh, Bachmann & Hofmann 2021, whose Theorems 3 and 5 need products of maximal rank",
    cases=grid(
        num_layers=[1, 2, 3, 4, 5],
        loss=["squared", "cross_entropy", "log_cosh"],
        num_networks=[25],
        batch=range(4),
    ),
    measure=measure,
    checks=RIGHT_CHECKS,
    claims=all_right_claims,
    view=View(
        figures=tuple(
            Lines(
                title=f"${name}$",
                part=part,
                x="num_layers",
                series=(Series("printed", points=f"printed_right.{part}"), Series("ours", points=f"right.{part}")),
                y_label="networks of 25 that are right",
                y_limits=(0, 26),
            )
            for part, name in NAMES.items()
        ),
        table=(
            "num_layers",
            "loss",
            *right_columns("right", "ours"),
            *right_columns("printed_right", "printed"),
            Column("num_networks", "of"),
        ),
        group_by=("num_layers", "loss"),
    ),
    seconds=3.0,
    answered=Answer(
        "Yes: all three are right on 1,500 of 1,500 random networks.",
        num_claims=3,
        cases="agrees",
    ),
)
