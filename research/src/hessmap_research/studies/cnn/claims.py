"""Random convolutional and locally connected networks against everything that `predict_ranks` claims of them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS, RankValue
from hessmap_research.runner.claims import Answer, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.studies.hessian_ranks import CLAIM_CHECKS, NAMES, claims_view

if TYPE_CHECKING:
    from hessmap.networks import Architecture, Convolutional

_MOST_PARAMETERS = 110
_ONE = "one convolution"
_FAMILIES = ("residual of low rank", "inputs of low rank", "patches", "shared patches")


def cases() -> tuple[Case, ...]:
    """Batches of random networks; most of them where the rank of H_L is a conjecture."""
    losses: dict[str, Any] = {"loss": ["squared", "cross_entropy", "log_cosh"], "num_networks": [50]}
    return (*grid(family=[_ONE], **losses, batch=range(20)), *grid(family=_FAMILIES, **losses, batch=range(2)))


def measure(case: Case) -> dict[str, Any]:
    def drawn(draw: random.Random) -> tuple[Architecture, dict[str, Any]]:
        network = _network(draw, case["family"])
        return network, _data(draw, case["family"], network, case["loss"])

    return claims_of_networks(case, drawn)


def claims_of_networks(
    case: Case, drawn: Callable[[random.Random], tuple[Architecture, dict[str, Any]]]
) -> dict[str, Any]:
    """How many claims hold and how many give the rank itself, by the kind of truth, and every counterexample.

    ``drawn`` makes a network and what is known of its data; ``num_networks`` of the case says how many.
    """
    from hessmap.exact import generic_hessian_ranks
    from hessmap.theory import predict_ranks

    draw = random.Random(case_key(case))
    kinds: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    held, met = dict.fromkeys(PARTS, 0), dict.fromkeys(PARTS, 0)
    counterexamples: list[dict[str, Any]] = []
    for _ in range(case["num_networks"]):
        network, known = drawn(draw)
        prediction = predict_ranks(network, case["loss"], **known)
        ranks = generic_hessian_ranks(network, case["loss"], **known, seed=draw.randrange(2**32))
        for part in PARTS:
            claim: RankValue = getattr(prediction, part)
            exact = ranks[part].value
            holds = exact <= claim.value if claim.relation == "at_most" else exact == claim.value
            kinds[part][claim.truth] += 1
            held[part] += holds
            met[part] += exact == claim.value
            if not holds:
                counterexamples.append({"network": str(network), **known, "part": part, "exact": exact, "claim": claim})
    return {
        "kinds": {part: dict(count) for part, count in kinds.items()},
        "held": held,
        "met": met,
        "counterexamples": counterexamples,
    }


def _network(draw: random.Random, family: str) -> Architecture:
    from hessmap.networks import LocallyConnected

    while True:
        network: Architecture
        if family.endswith("patches"):
            patches, size, filters, outputs = (draw.randint(1, 4) for _ in range(4))
            network = LocallyConnected(patches, size, filters, outputs, shared_weights=family == "shared patches")
        else:
            network = _convolutional(draw)
        if network.num_parameters <= _MOST_PARAMETERS:
            return network


def _convolutional(draw: random.Random) -> Convolutional:
    """One convolution."""
    from hessmap.networks import Convolutional

    length = draw.randint(1, 10)
    kernel, stride = draw.randint(1, length), draw.choice((1, 1, 2, 3))
    channels = draw.randint(1, 3), draw.randint(1, 5)
    return Convolutional(length, channels, (kernel,), (stride,), draw.randint(1, 6))


def _data(draw: random.Random, family: str, network: Architecture, loss: str) -> dict[str, Any]:
    """Ranks of the data where the family asks for low ones; all else is generic."""
    input_rank = draw.randint(1, network.input_dim) if family == "inputs of low rank" else network.input_dim
    outputs = network.output_dim - (loss == "cross_entropy")
    if family != "residual of low rank":
        return {"input_rank": input_rank}
    return {"input_rank": input_rank, "residual_rank": draw.randint(0, min(input_rank, outputs))}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    num_networks = sum(row["num_networks"] for row in rows)
    for part, name in NAMES.items():
        held = sum(row["held"][part] for row in rows)
        yield Claim.counted(
            claim_id("holds", part),
            f"Every claim of {name} holds",
            held,
            num_networks,
        )
    counts: Counter[str] = Counter()
    for row in rows:
        for kinds in row["kinds"].values():
            counts.update(kinds)
    conjectured = sum(row["num_networks"] for row in rows if row["family"] == _ONE)
    detail = f"{conjectured:,} networks of one convolution; claims of all: " + ", ".join(
        f"{number:,} {kind}" for kind, number in counts.most_common()
    )
    right = all(row["met"]["loss"] == row["num_networks"] for row in rows if row["family"] == _ONE)
    yield Claim(
        "one-convolution-loss",
        "The conjectured rank of H_L of one convolution is right on every network",
        right,
        detail,
    )


STUDY = Study(
    name="cnn/claims",
    question="Do the claims about the ranks of convolutional and locally connected networks survive random ones?",
    reference="Singh, Hofmann & Schoelkopf 2023, Theorems 5 to 10, Facts 13 and 14, as corrected here",
    cases=cases(),
    measure=measure,
    checks=CLAIM_CHECKS,
    claims=claims,
    view=claims_view("met by 50 networks", "loss", ("family", "loss"), ("family", "loss")),
    seconds=4.0,
    answered=Answer(
        "Yes, all of them on 4,200 of 4,200 random networks: exact ranks, bounds and conjectures.",
        num_claims=4,
        cases="agrees",
    ),
)
