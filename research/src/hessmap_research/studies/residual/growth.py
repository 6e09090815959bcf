"""How the rank of the loss Hessian grows with the parameters: fully connected, residual and attention families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Series, View

if TYPE_CHECKING:
    from hessmap.networks import Architecture

_WIDTHS = (4, 6, 16, 64, 256, 1024, 4096)
_LARGEST_CHECKED = 6
_INPUTS, _RESIDUALS = 4, 2
# The power of the number of parameters that the ranks tend to as the width grows.
_POWERS = {
    "fully connected": 0.5,
    "residual, one layer a block": 0.5,
    "residual, inner width 2": 1.0,
    "residual, inner width half the width": 0.5,
    "attention, many samples": 1.0,
    "attention, 4 samples of 4 tokens": 0.5,
}
_DATA: dict[str, int | None] = {"input_rank": _INPUTS, "residual_rank": _RESIDUALS}


def measure(case: Case) -> dict[str, Any]:
    """The predicted rank and, of small networks, the exact one."""
    from hessmap.exact import generic_rank
    from hessmap.theory import predict_ranks

    network, data = _network(case["family"], case["width"])
    claim = predict_ranks(network, **data).loss
    known = {"parameters": network.num_parameters, "rank": claim}
    if case["width"] > _LARGEST_CHECKED or claim.relation != "equal":
        return known
    return known | {"exact": generic_rank(network, "loss", **data).value}


def _network(family: str, width: int) -> tuple[Architecture, dict[str, Any]]:
    """A network of the family, and its data, of fixed ranks: only the width grows."""
    from hessmap.networks import FullyConnected, Residual, SelfAttention

    ends: dict[str, Any] = {"input_dim": _INPUTS, "output_dim": _INPUTS, "trained_ends": ("input", "output")}
    if family == "fully connected":
        return FullyConnected((_INPUTS, width, width, width, _INPUTS)), _DATA
    if family.startswith("residual"):
        inner = {"2": 2, "width": width // 2}.get(family.split()[-1])
        return Residual(width, 2, inner_width=inner, **ends), _DATA
    if family == "attention, many samples":
        return SelfAttention(width, width, 2), {"num_samples": None, "num_tokens": 2}
    return SelfAttention(width, width, 2), {"num_samples": 4, "num_tokens": 4}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for family, power in _POWERS.items():
        own = sorted((row for row in rows if row["family"] == family), key=lambda row: row.number("width"))
        if len(own) < 2:
            continue
        before, last = own[-2:]
        grown = log(last.number("rank") / before.number("rank")) / log(last["parameters"] / before["parameters"])
        claim = f"{family}: rank(H_L) grows as the parameters to the power {power:g}"
        yield Claim(
            claim_id("power", family),
            claim,
            abs(grown - power) < 0.02,
            f"{grown:.3f} from width {before['width']} to {last['width']}",
        )


STUDY = Study(
    name="residual/growth",
    question="Does the rank grow as the square root of the parameters in residual networks and in attention?",
    reference="Singh, Hofmann & Schoelkopf 2023: square-root growth of convolutional and fully connected networks",
    cases=grid(family=list(_POWERS), width=_WIDTHS),
    measure=measure,
    checks=(Check("exact", "rank", "equal"),),
    claims=claims,
    view=View(
        figures=(
            Lines(
                title="$H_L$",
                part="loss",
                x="width",
                facet="family",
                series=(
                    Series("$H_L$", line="rank", points="exact", part="loss"),
                    Series("parameters", dashed="parameters"),
                ),
                x_scale="log",
                y_scale="log",
                y_label="rank",
            ),
        ),
        table=("family", "width", "parameters", Column("rank"), Column("exact")),
        group_by=("family", "width"),
    ),
    seconds=0.5,
    answered=Answer(
        "It depends: it does in fully connected networks, in blocks whose inner width grows with the width and in"
        " attention with few samples; not with inner width 2 and in attention with many samples, which grow as the"
        " parameters.",
        num_claims=6,
        cases="agrees",
    ),
)
