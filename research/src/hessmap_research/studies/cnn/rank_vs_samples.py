"""Rank against sample size: one and two convolutions, from one sample to far more than inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Mark, Reading, View
from hessmap_research.studies.cnn import ranks
from hessmap_research.studies.hessian_ranks import NAMES, RANK_CHECKS, RANKS, curves_of, decidability_claims

_NUM_SAMPLES = (1, 2, 4, 6, 8, 10, 12, 14, 16, 20, 25, 30, 60, 100, 200, 300)
# One and two hidden layers; at most 930 parameters on the embedded data, 1,432 elsewhere.
_SMALL = {1: "conv-1x16-6x7-10", 2: "conv-1x16-10x7-10x7-4"}
_LARGE = {1: "conv-1x25-8x9-10", 2: "conv-1x25-10x9-10x9-4"}


def cases(data: str) -> tuple[Case, ...]:
    networks = _SMALL if data in ranks.EMBEDDED else _LARGE
    return tuple(
        {
            "num_samples": count,
            "num_hidden": num_hidden,
            **setting,
            "network": f"{network}{ranks.network_suffix(setting['activation'])}",
            "seed": 0,
        }
        for (num_hidden, network), setting, count in product(networks.items(), ranks.settings(data), _NUM_SAMPLES)
    )


def measure(case: Case) -> dict[str, Any]:
    """The record of ranks, and the older bound N K of the outer-product Hessian."""
    from hessmap.theory import effective_output_dim
    from hessmap.theory.data_ranks import outer_product_sample_upper_bound

    network, problem = ranks.network_and_problem(case)
    outputs = effective_output_dim(network.output_dim, case["loss"])
    bound = outer_product_sample_upper_bound(problem.num_samples, outputs)
    return {**ranks.rank_record(network, problem), "num_inputs": network.input_dim, "sample_bound": bound}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from decidability_claims(rows)
    linear = ranks.rows_with_activation(rows, "identity")
    for num_hidden in sorted({row["num_hidden"] for row in linear}):
        yield _reached_claim([row for row in linear if row["num_hidden"] == num_hidden], num_hidden)
    yield from _unchanged_claims(linear)
    yield from _relu_claims(ranks.rows_with_activation(rows, "relu"))


def _reached_claim(linear: Sequence[Row], num_hidden: int) -> Claim:
    """How many measured ranks are what is predicted, where that is only a bound as well."""
    counts = {
        part: sum(row.number(f"measured.{part}") == row.number(f"predicted.{part}") for row in linear) for part in PARTS
    }
    detail = ", ".join(f"{NAMES[part]} {count}" for part, count in counts.items())
    claim = f"Linear, hidden layers: {num_hidden}: H_o is all that the rank of the inputs allows"
    holds = counts["outer_product"] == len(linear)
    return Claim(
        claim_id("input-rank-limits", num_hidden),
        claim,
        holds,
        f"of {len(linear)} cases reach the prediction: {detail}",
    )


def _unchanged_claims(linear: Sequence[Row]) -> Iterator[Claim]:
    """Figure 6: once the ranks of the data are full, further samples change nothing, and H_f far earlier."""
    steps = [
        step for curve in curves_of(linear, "num_samples", by=("data", "network", "loss")) for step in pairwise(curve)
    ]
    settled = [step for step in steps if step[0]["data_ranks"] == step[1]["data_ranks"]]
    if settled:
        num_equal = sum(all(_is_equal(step, part) for part in PARTS) for step in settled)
        detail = f"in {num_equal} of {len(settled)} steps"
        yield Claim.counted(
            "samples-change-nothing",
            "Linear: more samples of the same ranks change no rank",
            num_equal,
            len(settled),
            detail,
        )
    changed = [before for before, after in steps if not _is_equal((before, after), "functional")]
    last = max((row["num_samples"] for row in changed), default=0)
    detail = f"{len(changed)} of {len(steps)} steps change it, the last one from {last} samples on"
    yield Claim("functional-unaffected", "Linear: from 10 samples on the rank of H_f is constant", last < 10, detail)


def _is_equal(step: tuple[Row, Row], part: str) -> bool:
    return step[0].number(f"measured.{part}") == step[1].number(f"measured.{part}")


def _relu_claims(relu: Sequence[Row]) -> Iterator[Claim]:
    """Under ReLU each sample brings K new directions, until all but the rescalings of the filters are taken."""
    if not relu:
        return
    num_equal = sum(
        row.number("measured.outer_product") == min(row["sample_bound"], row.number("predicted.outer_product"))
        for row in relu
    )
    claim = "ReLU: H_o has rank N K up to the bound by rescaling, in nine of ten cases or more"
    yield Claim("relu-sample-rank", claim, num_equal >= 0.9 * len(relu), f"in {num_equal} of {len(relu)} cases")
    is_above = [row.number("measured.outer_product") > row["printed.outer_product"] for row in relu]
    has_more = [row["num_samples"] > row["num_inputs"] for row in relu]
    detail = f"above it in {sum(is_above)} of {len(relu)} cases; {sum(has_more)} have more samples than inputs"
    claim = "ReLU: H_o leaves the bound of linear networks as soon as there are more samples than inputs"
    yield Claim("relu-leaves-linear-bound", claim, is_above == has_more, detail)


# For two hidden layers what is predicted are bounds.
_LINEAR = {1: RANKS, 2: tuple(replace(series, line="", dashed=series.line) for series in RANKS)}


def _figures() -> Iterator[Lines]:
    """For each setting one hidden layer beside two."""
    by_depth = [
        ranks.sweep_figures(
            "num_samples",
            "number of samples",
            {"identity": _LINEAR[num_hidden], "relu": ranks.SERIES["relu"]},
            where={"num_hidden": num_hidden},
            note=f", {num_hidden} hidden {'layer' if num_hidden == 1 else 'layers'}",
            reading=Reading("measured", "predicted", "bounds of the linear network"),
            marks=(Mark("num_inputs", "inputs"),),
            x_scale="log",
        )
        for num_hidden in _LINEAR
    ]
    for pair in zip(*by_depth, strict=True):
        yield from pair


_COLUMNS = (*ranks.COLUMNS[:3], Column("num_samples", "N"), Column("data_ranks.input_rank", "r"), *ranks.COLUMNS[3:])

STUDY = Study(
    name="cnn/rank-vs-samples",
    question="How do the ranks of convolutional networks grow with the number of samples?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figure 6",
    cases=cases,
    measure=measure,
    data=ranks.DATA,
    checks=(*RANK_CHECKS, Check("measured.outer_product", "sample_bound", "at_most")),
    claims=claims,
    seconds=ranks.seconds,
    view=View(tuple(_figures()), _COLUMNS, panels_in_a_row=2),
    answered=Answer(
        "In linear networks H_o grows with the rank of the inputs and no further; under ReLU it is above that"
        " bound as soon as there are more samples than inputs.",
        num_claims=8,
        cases="agrees",
    ),
)
