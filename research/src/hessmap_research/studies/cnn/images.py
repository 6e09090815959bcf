"""Networks on images, padded and biased ones: random ones against all claims, and how ranks grow with the channels.

The paper treats one dimension without padding and bias. Ranks are exact, of the generic network of an architecture.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log
from typing import Any

from hessmap.networks import Architecture, Convolutional, ImageConvolutional, parse_network
from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Reading, Series, View
from hessmap_research.studies.cnn.claims import claims_of_networks
from hessmap_research.studies.cnn.rank_vs_channels import power_law
from hessmap_research.studies.hessian_ranks import CLAIM_CHECKS, NAMES, SYMBOLS, claims_view

_MOST_PARAMETERS = 110
_CONJECTURED = ("images", "first layer padded")
_BOUNDED = ("images, padded", "images with bias", "images, padded, with bias")
_ONE_DIMENSION = ("padded", "with bias", "padded, with bias")
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


def claim_cases() -> tuple[Case, ...]:
    """Most of them where the bounds are conjectures."""
    shared: dict[str, Any] = {"num_hidden": [1, 2, 3], "num_networks": [50]}
    conjectured = grid(family=_CONJECTURED, loss=["squared", "cross_entropy"], **shared, batch=range(2))
    return (*conjectured, *grid(family=(*_BOUNDED, *_ONE_DIMENSION), loss=["squared"], **shared, batch=range(1)))


def measure_claims(case: Case) -> dict[str, Any]:
    def drawn(draw: random.Random) -> tuple[Architecture, dict[str, Any]]:
        while True:
            network = _random_network(draw, case["family"], case["num_hidden"])
            if network.num_parameters <= _MOST_PARAMETERS:
                return network, {}

    return claims_of_networks(case, drawn)


def _random_network(draw: random.Random, family: str, num_hidden: int) -> Convolutional | ImageConvolutional:
    """Kernels of up to three taps along an axis, stride 1 or 2, up to five channels."""
    num_axes = 1 if family in _ONE_DIMENSION else 2
    sizes = [draw.randint(2, 9 if num_axes == 1 else 6) for _ in range(num_axes)]
    kernels: list[tuple[int, ...]] = []
    strides, paddings, current = [], [], sizes
    for layer in range(num_hidden):
        may_pad = "padded" in family and (layer == 0 or family != "first layer padded")
        padding = draw.randint(0, 1) if may_pad else 0
        kernels.append(tuple(draw.randint(1, min(3, size + 2 * padding)) for size in current))
        strides.append(draw.choice((1, 1, 1, 2)))
        current = [
            (size + 2 * padding - kernel) // strides[-1] + 1 for size, kernel in zip(current, kernels[-1], strict=True)
        ]
        paddings.append(padding)
    channels = [draw.randint(1, 2), *(draw.randint(1, 5) for _ in range(num_hidden))]
    biases = ["bias" in family and draw.random() < 0.7 for _ in range(num_hidden + 1)]
    shared: dict[str, Any] = {"outputs": draw.randint(1, 4), "bias": biases, "paddings": paddings}
    if num_axes == 1:
        return Convolutional(sizes[0], channels, [kernel for (kernel,) in kernels], strides, **shared)
    pairs = [(above, beside) for above, beside in kernels]
    return ImageConvolutional((sizes[0], sizes[1]), channels, pairs, strides, **shared)


def claim_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    num_networks = sum(row["num_networks"] for row in rows)
    for part, name in NAMES.items():
        held = sum(row["held"][part] for row in rows)
        met = sum(row["met"][part] for row in rows)
        detail = f"{held:,} of {num_networks:,}; it is the rank itself for {met:,}"
        yield Claim.counted(
            claim_id("not-above", part), f"No rank of {name} is above what is claimed", held, num_networks, detail
        )
    plain = [row for row in rows if row["family"] == "images"]
    if plain:
        total = sum(row["num_networks"] for row in plain)
        shares = {part: sum(row["met"][part] for row in plain) / total for part in PARTS}
        detail = ", ".join(f"{NAMES[part]} {share:.0%}" for part, share in shares.items()) + f" of {total:,} networks"
        yield Claim(
            "bounds-are-ranks",
            "Images without padding and bias: the bounds are the ranks in at least 90 %",
            min(shares.values()) >= 0.9,
            detail,
        )


def growth_cases() -> tuple[Case, ...]:
    return tuple(
        {"kind": kind, "channels": channels, "network": text.format(channels)}
        for kind, text in _GROWING.items()
        for channels in _CHANNELS
    )


def measure_growth(case: Case) -> dict[str, Any]:
    from hessmap.exact import generic_rank
    from hessmap.theory import predict_ranks

    network = parse_network(case["network"])
    prediction = predict_ranks(network)
    exact = {part: generic_rank(network, part).value for part in PARTS}
    claimed = {part: getattr(prediction, part) for part in PARTS}
    return {"num_parameters": network.num_parameters, "exact": exact, "claimed": claimed}


def growth_claims(rows: Sequence[Row]) -> Iterator[Claim]:
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


CLAIMS = Study(
    name="cnn/images",
    question="Do the claims about two-dimensional, padded and biased convolutional networks survive random ones?",
    reference="Singh, Hofmann & Schoelkopf 2023, Theorems 5, 6 and 8, beyond one dimension",
    cases=claim_cases(),
    measure=measure_claims,
    checks=CLAIM_CHECKS,
    claims=claim_claims,
    view=claims_view(
        title="the claim is the rank, of 50",
        x="num_hidden",
        columns=("family", Column("num_hidden", "hidden")),
        group_by=("family", "num_hidden"),
    ),
    seconds=10.0,
    answered=Answer(
        "Yes: no rank of 2,100 random networks is above what is claimed; on images without padding and bias the"
        " bounds are the ranks in at least 90 %.",
        num_claims=4,
        cases="agrees",
    ),
)
GROWTH = Study(
    name="cnn/growth-beyond-one-dimension",
    question="Do the ranks of two-dimensional, padded and biased networks grow as the square root of the parameters?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figure 1 and Section 6, beyond one dimension",
    cases=growth_cases(),
    measure=measure_growth,
    checks=tuple(Check(f"exact.{part}", f"claimed.{part}") for part in PARTS),
    claims=growth_claims,
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
        "It depends: from 6 to 12 channels H_L grows with exponents from 0.4 to 0.6 but for padded networks, a"
        " little above (0.604); the bounds at 1,000 to 10,000 channels grow by 0.500.",
        num_claims=5,
        cases="agrees",
        fails=("exponent-padded",),
    ),
)
