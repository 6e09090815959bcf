"""Random linear residual networks against everything that `predict_ranks` claims of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from hessmap.studies import Case, Study, grid
from hessmap.studies.attention.ranks import findings
from hessmap.studies.cnn.claims import claims_of_networks
from hessmap.studies.hessian_ranks import CLAIM_CHECKS, claims_view

if TYPE_CHECKING:
    from hessmap.networks import Residual

_ENDS = {
    "blocks of one layer": None,
    "two layers, no end trained": ((),),
    "two layers, one end trained": (("input",), ("output",)),
    "two layers, both ends trained": (("input", "output"),),
}


def measure(case: Case) -> dict[str, Any]:
    return claims_of_networks(case, lambda draw: _drawn(draw, case["family"]))


def _drawn(draw: random.Random, family: str) -> tuple[Residual, dict[str, Any]]:
    """A network, and the ranks of its inputs and of its residual moment."""
    from hessmap.networks import Residual

    ends = _ENDS[family]
    any_ends = ((), ("input",), ("output",), ("input", "output"))
    width = draw.randint(1, 6)
    net = Residual(
        width,
        draw.randint(1, 4),
        inner_width=None if ends is None else draw.randint(1, width + 1),
        input_dim=draw.choice((None, draw.randint(1, width + 2))),
        output_dim=draw.choice((None, draw.randint(1, width + 2))),
        trained_ends=draw.choice(any_ends if ends is None else ends),  # type: ignore[arg-type]
    )
    rank = draw.randint(1, net.input_dim)
    return net, {"input_rank": rank, "residual_rank": draw.randint(0, min(rank, net.output_dim))}


STUDY = Study(
    name="residual/ranks",
    question="Do the claims about the ranks of linear residual networks survive random ones?",
    reference="docs/attention-residual.md; not in print",
    cases=grid(family=list(_ENDS), loss=["squared"], num_networks=[50], batch=range(3)),
    measure=measure,
    checks=CLAIM_CHECKS,
    findings=findings,
    view=claims_view("met by 50 networks", "loss", ("family",), ("family",)),
    seconds=3.0,
)
