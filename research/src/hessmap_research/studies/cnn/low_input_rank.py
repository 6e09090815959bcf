"""Inputs that span less than all inputs: what is claimed of the ranks, in exact arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.networks import Architecture, Convolutional, FullyConnected, LocallyConnected
from hessmap.records import PARTS
from hessmap.theory import predict_ranks
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View

_MOST_PARAMETERS = 75


def measure(case: Case) -> dict[str, Any]:
    """How many claims hold (a rank equal, a bound not exceeded), and of each Hessian how many values are the rank."""
    from hessmap.exact.generic import generic_hessian_ranks

    draw = random.Random(case_key(case))
    equal, missed = dict.fromkeys(PARTS, 0), []
    held = num_exact = 0
    for _ in range(case["num_networks"]):
        network, rank = _DRAWN[case["family"]](draw)
        claimed = predict_ranks(network, input_rank=rank)
        found = generic_hessian_ranks(network, input_rank=rank, seed=draw.randrange(2**32))
        pairs = {part: (getattr(claimed, part), found[part].value) for part in PARTS}
        is_right = {
            part: value == claim.value if claim.relation == "equal" else value <= claim.value
            for part, (claim, value) in pairs.items()
        }
        held += all(is_right.values())
        num_exact += sum(claim.kind == "exact" for claim, _ in pairs.values())
        for part, (claim, value) in pairs.items():
            equal[part] += value == claim.value
        if any(value != claim.value for claim, value in pairs.values()):
            ranks = {part: [claim.value, value] for part, (claim, value) in pairs.items()}
            missed.append({"network": str(network), "input_rank": rank, "claimed_and_exact": ranks})
    return {"held": held, "num_exact": num_exact, "equal": equal, "missed": missed}


def _patches(draw: random.Random) -> tuple[Architecture, int]:
    while True:
        net = LocallyConnected(draw.randint(1, 5), draw.randint(1, 5), draw.randint(1, 4), draw.randint(1, 6))
        if net.num_parameters <= _MOST_PARAMETERS:
            return net, draw.randint(1, net.input_dim)


def _convolutions(draw: random.Random) -> tuple[Architecture, int]:
    while True:
        num_hidden = draw.randint(1, 3)
        kernels = [draw.randint(1, 5) for _ in range(num_hidden)]
        length = sum(kernels) - num_hidden + draw.randint(1, 4)
        channels = (draw.randint(1, 2), *(draw.randint(1, 4) for _ in kernels))
        net = Convolutional(length, channels, kernels, outputs=draw.randint(1, 5))
        if net.num_parameters <= _MOST_PARAMETERS and net.input_dim > 1:
            return net, draw.randint(1, net.input_dim - 1)


def _dense(draw: random.Random) -> tuple[Architecture, int]:
    while True:
        widths = tuple(draw.randint(1, 6) for _ in range(draw.randint(3, 5)))
        net = FullyConnected(widths)
        if net.num_parameters <= _MOST_PARAMETERS and widths[0] > 1:
            return net, draw.randint(1, widths[0] - 1)


_DRAWN = {"patches": _patches, "convolutions": _convolutions, "dense": _dense}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    total, held = (sum(row[name] for row in rows) for name in ("num_networks", "held"))
    yield Claim.counted(
        "holds", "Every claim holds for inputs of low rank", held, total, f"{held:,} of {total:,} networks"
    )
    for family in _DRAWN:
        chosen = [row for row in rows if row["family"] == family]
        if family != "convolutions" and chosen:
            of = sum(row["num_networks"] for row in chosen)
            exact = sum(row["num_exact"] for row in chosen)
            yield Claim(
                claim_id("mostly-exact", family),
                f"Most ranks of {family} networks are exact",
                exact > 2 * of,
                f"{exact:,} of {3 * of:,}",
            )


STUDY = Study(
    name="cnn/low-input-rank",
    question="What are the ranks where the inputs span less than all inputs, and are the claims of them right?",
    reference="research/docs/convolutional.md; not in print",
    cases=(
        *grid(family=["patches"], num_networks=[100], batch=range(20)),
        *grid(family=["convolutions"], num_networks=[50], batch=range(20)),
        *grid(family=["dense"], num_networks=[50], batch=range(10)),
    ),
    measure=measure,
    checks=(Check("held", "num_networks", "equal"),),
    claims=claims,
    view=View(
        figures=(Heatmap(title="claims that hold", value="held", x="batch", y="family", limits=(0, 100)),),
        table=(
            "family",
            Column("held"),
            *(Column(f"equal.{part}", f"{part.replace('_', ' ')} the rank") for part in PARTS),
            Column("num_networks", "of"),
        ),
        group_by=("family",),
    ),
    seconds=8.0,
    answered=Answer(
        "Those that are claimed, on 3,500 of 3,500 networks; the claim is exact for 5,552 of 6,000 ranks on"
        " patches and for all of dense networks.",
        num_claims=3,
        cases="agrees",
    ),
)
