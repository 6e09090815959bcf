"""ReLU networks on as many samples as inputs: the sweeps over filters, channels and patches at n = d.

The paper does not state how many samples Figures 2c, 7, 8, 10, 11, 13 and 14 use. The other studies use 300, where
every sample contributes K new directions to H_o under ReLU. With n = d samples H_o has rank n K = d K at most, as that
of a linear network on inputs of rank d.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import le
from typing import Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Lines, Series, View
from hessmap_research.studies.cnn import locality, rank_vs_channels, rank_vs_filter, ranks
from hessmap_research.studies.hessian_ranks import NAMES, RANK_CHECKS, SYMBOLS, decidability_claims

SWEEPS = {
    "filter": (rank_vs_filter.cases, "one convolution (Figures 2c, 10, 11)"),
    "channels": (rank_vs_channels.cases, "two convolutions (Figures 7, 8)"),
    "patches": (locality.cases, "local connections (Figures 13, 14)"),
}


def cases(data: str) -> tuple[Case, ...]:
    """The ReLU cases of each sweep, with as many samples as the network has inputs."""
    return tuple(
        {"sweep": sweep, **case, "num_samples": _num_inputs(case["network"])}
        for sweep, (of_sweep, _) in SWEEPS.items()
        for case in of_sweep(data)
        if case["activation"] == "relu" and case.get("kind") != locality.FULL
    )


def _num_inputs(network: str) -> int:
    from hessmap.networks import parse_network

    return int(parse_network(network).input_dim)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from decidability_claims(rows)
    for sweep, (_, words) in SWEEPS.items():
        chosen = [row for row in rows if row["sweep"] == sweep]
        for part in PARTS:
            yield _within_claim(sweep, words, part, chosen)
    yield _wide_claim([row for row in rows if row["sweep"] == "filter"])


def _within_claim(sweep: str, words: str, part: Any, rows: Sequence[Row]) -> Claim:
    pairs = [(row.number(f"measured.{part}"), row[f"printed.{part}"]) for row in rows]
    num_reached = sum(measured == bound for measured, bound in pairs)
    excess = max((measured - bound for measured, bound in pairs), default=0)
    detail = f"{{right}} of {{total}} within it, {num_reached} reach it"
    detail += f", at most {excess:g} above it" if excess > 0 else ""
    claim = f"ReLU, {words}: {NAMES[part]} is within the bound of the linear network"
    return Claim.about(claim_id("within", sweep, part), claim, pairs, lambda pair: le(*pair), detail)


def _wide_claim(rows: Sequence[Row]) -> Claim:
    """What is above Theorem 7 has few filters of many taps: there the linear bound is below d K."""
    above = [row for row in rows if row.number("measured.outer_product") > row["printed.outer_product"]]
    detail = f"{{right}} of {{total}} cases above it; filters {sorted({row['filters'] for row in above})}"
    return Claim.about(
        "above-only-below-sample-rank",
        "ReLU, one convolution: H_o is above Theorem 7 only where that bound is below the number of samples times K",
        above,
        lambda row: row["printed.outer_product"] < _sample_bound(row),
        detail,
    )


def _sample_bound(row: Row) -> int:
    from hessmap.networks import parse_network
    from hessmap.theory import effective_output_dim

    return int(row["num_samples"] * effective_output_dim(parse_network(row["network"]).output_dim, row["loss"]))


def _figures() -> Iterator[Lines]:
    """H_o and H_L over each sweep, with the bounds of the linear network."""
    for data in ranks.DATA:
        loss = "squared"
        for filters in (2, 9) if data in ranks.EMBEDDED else (3, 12):
            yield Lines(
                title=f"one convolution, {filters} filters, {data.replace('_', '-')}",
                where={"data": data, "sweep": "filter", "loss": loss, "filters": filters},
                x="filter_size",
                series=ranks.SERIES["relu"],
                x_label="filter size",
                y_label="rank",
                reading=ranks.READING,
            )
        yield Lines(
            title=f"two convolutions, {data.replace('_', '-')}",
            where={"data": data, "sweep": "channels", "loss": loss},
            x="channels",
            series=ranks.SERIES["relu"],
            x_label="channels of both hidden layers",
            y_label="rank",
            reading=ranks.READING,
        )
        yield Lines(
            title=f"{SYMBOLS['loss']}, patches, {data.replace('_', '-')}",
            part="loss",
            where={"data": data, "sweep": "patches", "filters": 2 if data in ranks.EMBEDDED else 4},
            split="kind",
            x="patch_size",
            series=(Series("{kind}", points="measured.loss", dashed="printed.loss"),),
            x_label="patch size",
            y_label="rank",
            x_scale="log",
            reading=ranks.READING,
        )


STUDY = Study(
    name="cnn/samples-equal-inputs",
    question="Do the bounds of linear networks hold under ReLU with as many samples as inputs?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figures 2c, 7, 8, 10, 11, 13, 14",
    cases=cases,
    measure=ranks.measure,
    data=ranks.DATA,
    checks=RANK_CHECKS,
    claims=claims,
    seconds=ranks.seconds,
    families={f"within-{sweep}": f"ReLU, {words}: ranks are within the bounds" for sweep, (_, words) in SWEEPS.items()},
    view=View(tuple(_figures()), (*ranks.COLUMNS[:3], "num_samples", *ranks.COLUMNS[3:]), panels_in_a_row=2),
    answered=Answer(
        "It depends: H_L and H_f are within them in all of 622 cases, H_o for two convolutions in all, otherwise where"
        " there are enough filters.",
        num_claims=12,
        cases="undecidable",
        fails=("within-filter-outer-product", "within-patches-outer-product"),
    ),
)
