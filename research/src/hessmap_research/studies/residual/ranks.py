"""Random linear residual networks against everything that `predict_ranks` claims of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hessmap_research.runner.claims import Answer
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.studies.attention.ranks import claims
from hessmap_research.studies.cnn.claims import claims_of_networks
from hessmap_research.studies.hessian_ranks import CLAIM_CHECKS, claims_view

if TYPE_CHECKING:
    from hessmap.networks import Residual

_MOST_PARAMETERS = 90
_ENDS = {
    "blocks of one layer": None,
    "two layers, no end trained": ((),),
    "two layers, one end trained": (("input",), ("output",)),
    "two layers, both ends trained": (("input", "output"),),
}


def measure(case: Case) -> dict[str, Any]:
    return claims_of_networks(case, lambda draw: _drawn(draw, case["family"], case["loss"]))


def _drawn(draw: random.Random, family: str, loss: str) -> tuple[Residual, dict[str, Any]]:
    """A network, and the ranks of its inputs and of its residual moment."""
    from hessmap.networks import Residual

    ends = _ENDS[family]
    any_ends = ((), ("input",), ("output",), ("input", "output"))
    while True:
        width = draw.choice((1, 2, 3, 3, 4, 4, 5, 6))
        net = Residual(
            width,
            draw.choice((1, 2, 2, 3, 3, 4, 6)),
            inner_width=None if ends is None else draw.choice((1, draw.randint(1, width + 2))),
            input_dim=draw.choice((None, draw.randint(1, width + 3))),
            output_dim=draw.choice((None, draw.randint(1, width + 3))),
            trained_ends=draw.choice(any_ends if ends is None else ends),  # type: ignore[arg-type]
        )
        if net.num_parameters <= _MOST_PARAMETERS:
            break
    rank = draw.randint(1, net.input_dim)
    most = min(rank, net.output_dim - (loss == "cross_entropy"))
    return net, {"input_rank": rank, "residual_rank": draw.randint(0, most)}


STUDY = Study(
    name="residual/ranks",
    question="Do the claims about the ranks of linear residual networks survive random ones?",
    reference="research/docs/attention-residual.md; not in print",
    cases=grid(batch=range(10), loss=["squared"], num_networks=[200], family=list(_ENDS))
    + grid(batch=[0], loss=["cross_entropy"], num_networks=[200], family=list(_ENDS)),
    measure=measure,
    checks=CLAIM_CHECKS,
    claims=claims,
    view=claims_view("met by 200 networks", "loss", ("family", "loss"), ("family", "loss"), most=200),
    seconds=3.0,
    answered=Answer(
        "Yes: every claimed value, exact or conjectured, is the rank on 2,200 of 2,200 random networks of each kind.",
        num_claims=4,
        cases="agrees",
    ),
)
