"""Networks on images, padded and biased ones: how ranks grow with the channels.

The paper treats one dimension without padding and bias. Ranks are exact, of the generic network of an architecture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log
from typing import Any

from hessmap.networks import parse_network
from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Reading, Series, View
from hessmap_research.studies.cnn.rank_vs_channels import power_law
from hessmap_research.studies.hessian_ranks import NAMES, SYMBOLS

_CHANNELS = (1, 2, 3, 4, 6, 8, 10, 12)
_FAR = (1_000, 10_000)
# Two convolutions of as many channels each, on images small enough that channels and not positions are what grows.
_GROWING = {
    "images": "conv-1x4x4-{0}x2x2-{0}x2x2-2",
    "images, padded": "conv-1x3x3-{0}x3x3+1-{0}x3x3+1-2",
    "images with bias": "conv-1x4x4-{0}x2x2-{0}x2x2-2 bias",
    "padded": "conv-1x9-{0}x5+2-{0}x5+2-2",
    "with bias": "conv-1x12-{0}x5-{0}x5-2 bias",
}


def cases() -> tuple[Case, ...]:
    return tuple(
        {"kind": kind, "channels": channels, "network": text.format(channels)}
        for kind, text in _GROWING.items()
        for channels in _CHANNELS
    )


def measure(case: Case) -> dict[str, Any]:
    from hessmap.exact import generic_rank
    from hessmap.theory import predict_ranks

    network = parse_network(case["network"])
    prediction = predict_ranks(network)
    exact = {part: generic_rank(network, part).value for part in PARTS}
    claimed = {part: getattr(prediction, part) for part in PARTS}
    return {"num_parameters": network.num_parameters, "exact": exact, "claimed": claimed}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Section 6 asks for the growth in one dimension; the limits are those of cnn/rank-vs-channels."""
    for kind in _GROWING:
        curve = sorted((row for row in rows if row["kind"] == kind), key=lambda row: row.number("channels"))
        upper = curve[len(curve) // 2 :]
        if len(upper) >= 3:
            parameters = [row.number("num_parameters") for row in upper]
            found = power_law(parameters, [row["exact"]["loss"] for row in upper])
            added = {
                (after["exact"]["loss"] - before["exact"]["loss"]) / (after["channels"] - before["channels"])
                for before, after in pairwise(upper)
            }
            steps = "/".join(f"{step:g}" for step in sorted(added))
            detail = f"{found}; each further channel adds {steps}; of the bound at {_FAR[0]:,} to {_FAR[1]:,} channels "
            detail += f"{_far_exponent(kind):.3f}"
            where = f"{kind}, {upper[0]['channels']} to {upper[-1]['channels']} channels"
            claim = f"The rank of H_L grows with an exponent of the parameters from 0.4 to 0.6 ({where})"
            yield Claim(claim_id("exponent", kind), claim, 0.4 <= found.exponent <= 0.6, detail)


def _far_exponent(kind: str) -> float:
    """The exponent between networks far too large for exact ranks, from their bounds."""
    from hessmap.theory import predict_ranks

    small, large = (predict_ranks(parse_network(_GROWING[kind].format(channels))) for channels in _FAR)
    return log(large.loss.value / small.loss.value) / log(large.num_parameters / small.num_parameters)


STUDY = Study(
    name="cnn/growth-beyond-one-dimension",
    question="Do the ranks of two-dimensional, padded and biased networks grow as the square root of the parameters?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figure 1 and Section 6, beyond one dimension",
    cases=cases(),
    measure=measure,
    checks=tuple(Check(f"exact.{part}", f"claimed.{part}") for part in PARTS),
    claims=claims,
    view=View(
        figures=tuple(
            Lines(
                title=kind,
                where={"kind": kind},
                x="channels",
                series=(
                    *(
                        Series(SYMBOLS[part], dashed=f"claimed.{part}", points=f"exact.{part}", part=part)
                        for part in PARTS
                    ),
                    Series("parameters", line="num_parameters"),
                ),
                x_label="channels of both convolutions",
                y_label="rank",
                reading=Reading(points="exact ranks", dashed="bounds"),
            )
            for kind in _GROWING
        ),
        table=(
            "network",
            Column("num_parameters", "p"),
            *(
                Column(f"{what}.{part}", f"{name} {what}")
                for part, name in NAMES.items()
                for what in ("exact", "claimed")
            ),
        ),
    ),
    seconds=lambda case: 0.1 + 0.4 * (case["channels"] / 8) ** 4,
    answered=Answer(
        "It depends: from 6 to 12 channels H_L grows with exponents from 0.4 to 0.6 except for padded networks, a"
        " little above (0.604); the bounds at 1,000 to 10,000 channels grow by 0.500.",
        num_claims=5,
        cases="agrees",
        fails=("exponent-padded",),
    ),
)
