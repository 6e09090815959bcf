"""Rank against the number of channels: two convolutions of as many channels each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import log, sqrt

from hessmap.errors import require
from hessmap.networks import Convolutional
from hessmap.records import PARTS
from hessmap.theory import effective_output_dim, predict_ranks
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Lines, Series, Slope, View
from hessmap_research.studies.cnn import ranks
from hessmap_research.studies.hessian_ranks import NAMES, RANK_CHECKS, curves_of, decidability_claims

# Inputs, filter size and channels: at most 1,482 parameters on the embedded data, 3,726 elsewhere. Four classes: with K
# outputs Theorem 6 says less than the number of parameters from about K (d1 + d2) / k channels on, 20 for all ten.
_SMALL = (16, 7, (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13))
_LARGE = (25, 9, (4, 6, 8, 10, 12, 14, 16, 18))
_OUTPUTS = 4
_FAR = (500, 1000)


def cases(data: str) -> tuple[Case, ...]:
    length, kernel, channels = _SMALL if data in ranks.EMBEDDED else _LARGE

    def network(count: int, activation: str) -> str:
        layer = f"{count}x{kernel}"
        return f"conv-1x{length}-{layer}-{layer}-{_OUTPUTS}{ranks.network_suffix(activation)}"

    return tuple(
        {"channels": count, **setting, "network": network(count, setting["activation"]), "seed": 0}
        for setting, count in product(ranks.settings(data), channels)
    )


@dataclass(frozen=True)
class PowerLaw:
    """y = c x^exponent by least squares of logarithms; the interval holds the exponent with 95 % probability.

    The interval is Student's for independent errors of one variance. Counts of a formula have no errors: it then says
    how far the curve bends within the points that were fitted.
    """

    exponent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.exponent:.3f} ({self.low:.3f} to {self.high:.3f})"


def power_law(x: Sequence[float], y: Sequence[float]) -> PowerLaw:
    """The fit to at least three points.

    >>> print(power_law([1, 4, 9, 25], [2, 4, 6, 10]))
    0.500 (0.500 to 0.500)
    """
    import numpy as np
    from scipy.special import stdtrit

    require(len(x) == len(y) >= 3, "a power law needs three points or more", f"got {len(x)} and {len(y)}")
    along, above = (np.log(values) - np.mean(np.log(values)) for values in (x, y))
    square = float(along @ along)
    slope = float(along @ above) / square
    margin = float(stdtrit(len(x) - 2, 0.975) * np.linalg.norm(above - slope * along) / sqrt((len(x) - 2) * square))
    return PowerLaw(slope, slope - margin, slope + margin)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Growth is judged by the upper half of each curve, where the channels are no bottleneck any more."""
    yield from decidability_claims(rows)
    yield ranks.printed_bounds_claim(rows)
    linear = ranks.rows_with_activation(rows, "identity")
    for part in PARTS:
        claim = f"Linear: our law or bound of {NAMES[part]} is the rank"
        is_predicted = ranks.is_equal(f"measured.{part}", f"predicted.{part}")
        yield Claim.about(claim_id("prediction-is-rank", part), claim, linear, is_predicted, ranks.RIGHT)
    yield ranks.above_linear_bounds_claim(rows)
    for curve in curves_of(rows, "channels", by=("activation", "loss", "data")):
        judged = [row for row in curve if row["activation"] == "identity" or _has_samples(row)]
        if len(judged) >= 3:
            yield from _growth_claims(judged[-max(3, len(judged) - len(judged) // 2) :])


def _has_samples(row: Row) -> bool:
    """Whether there are as many derivatives of outputs as parameters: with fewer they, and not ReLU, limit the rank."""
    return bool(ranks.NUM_SAMPLES * effective_output_dim(_OUTPUTS, row["loss"]) >= row["num_parameters"])


def _growth_claims(upper: Sequence[Row]) -> Iterator[Claim]:
    """About the square root of the parameters for linear networks; under ReLU as the parameters themselves."""
    first = upper[0]
    channels = f"{first['channels']} to {upper[-1]['channels']} channels"
    where = f"{ranks.LOSSES[first['loss']]}, {first['data'].replace('_', '-')}, {channels}"
    whole, functional = (_exponent(upper, part) for part in ("loss", "functional"))
    detail = f"exponent of H_L {whole}, of H_f {functional}"
    if first["activation"] != "identity":
        claim = f"ReLU: the rank of H_L grows as the number of parameters ({where})"
        yield Claim(claim_id("relu-linear-growth", first["loss"], first["data"]), claim, whole.exponent > 0.9, detail)
        return
    claim = f"Linear: the rank of H_L grows with an exponent of the parameters from 0.4 to 0.6 ({where})"
    far = f"; of the bound at {_FAR[0]} to {_FAR[1]} channels {_far_exponent(first['network'], first['loss']):.3f}"
    yield Claim(
        claim_id("linear-exponent", first["loss"], first["data"]), claim, 0.4 <= whole.exponent <= 0.6, detail + far
    )
    steps = {part: _added_per_channel(upper, part) for part in PARTS}
    added = ", ".join(f"{NAMES[part]} {'/'.join(f'{step:g}' for step in steps[part])}" for part in PARTS)
    claim = f"Linear: H_o has stopped growing, and each further channel adds the same to H_f ({where})"
    yield Claim(
        claim_id("linear-steps", first["loss"], first["data"]),
        claim,
        steps["outer_product"] == [0] and len(steps["functional"]) == 1,
        f"added: {added}",
    )


def _exponent(curve: Sequence[Row], part: str) -> PowerLaw:
    return power_law([row["num_parameters"] for row in curve], [row.number(f"measured.{part}") for row in curve])


def _far_exponent(text: str, loss: str) -> float:
    """The exponent between networks far too large to measure, from their bounds."""
    net = Convolutional.parse(text)
    far = [Convolutional(net.input_length, (1, m, m), net.kernels, outputs=net.outputs) for m in _FAR]
    small, large = ((predict_ranks(wide, loss).loss.value, wide.num_parameters) for wide in far)
    return log(large[0] / small[0]) / log(large[1] / small[1])


def _added_per_channel(curve: Sequence[Row], part: str) -> list[float]:
    """What one more channel adds to a rank: the different values at the steps."""
    name = f"measured.{part}"
    return sorted(
        {
            (wide.number(name) - narrow.number(name)) / (wide["channels"] - narrow["channels"])
            for narrow, wide in pairwise(curve)
        }
    )


def _figures() -> Iterator[Lines]:
    """The growth of both kinds of networks with their parameters; then Figures 1, 2a, 7 and 8."""
    slopes = (
        Slope(0.5, "slope 1/2, as the root of the parameters", "measured.loss", {"activation": "identity"}),
        Slope(1.0, "slope 1, as the parameters", "measured.loss", {"activation": "relu"}, through="first"),
    )
    parameters = Series("parameters", line="num_parameters")
    series = {activation: (*shown, parameters) for activation, shown in ranks.SERIES.items()}
    by_channels = list(ranks.sweep_figures("channels", "channels of both hidden layers", series))
    for data in ranks.DATA:
        for loss in dict.fromkeys(setting["loss"] for setting in ranks.settings(data)):
            yield Lines(
                title=f"growth, {ranks.LOSSES[loss]}, {data.replace('_', '-')}",
                part="loss",
                where={"data": data, "loss": loss},
                x="num_parameters",
                split="activation",
                series=(Series("$H_L$, {activation}", points="measured.loss", part="loss"),),
                x_label="parameters",
                y_label="rank of $H_L$",
                x_scale="log",
                y_scale="log",
                slopes=slopes,
            )
        yield from (figure for figure in by_channels if figure.where["data"] == data)


STUDY = Study(
    name="cnn/rank-vs-channels",
    question="How do the ranks of a network with two convolutions grow with its channels?",
    reference="Singh, Hofmann & Schoelkopf 2023, Figures 1, 2a, 7, 8; Theorems 5 and 6",
    cases=cases,
    measure=ranks.measure,
    data=ranks.DATA,
    checks=RANK_CHECKS,
    claims=claims,
    seconds=ranks.seconds,
    families={
        "prediction-is-rank": "Linear: our law or bound is the rank",
        "linear-exponent": "Linear: the rank of H_L grows with an exponent of the parameters from 0.4 to 0.6",
        "linear-steps": "Linear: H_o has stopped growing, and each further channel adds the same to H_f",
        "relu-linear-growth": "ReLU: the rank of H_L grows as the number of parameters",
    },
    view=View(tuple(_figures()), ranks.COLUMNS, panels_in_a_row=2),
    answered=Answer(
        "As the channels in linear networks, so nearly as the square root of the parameters (exponents from 0.4"
        " to 0.6); under ReLU as the parameters.",
        num_claims=31,
        cases="agrees",
    ),
)
