"""Random linear residual networks against everything that `predict_ranks` claims of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from hessmap_research.runner.study import Case, grid
from hessmap_research.studies.random_networks import (
    CLAIM_FIELDS,
    HELD,
    Drawn,
    claims_view,
    first,
    holds_by_family,
    random_networks,
    repeated,
)

if TYPE_CHECKING:
    from hessmap.networks import Residual

_ENDS: dict[str, tuple[tuple[str, ...], ...] | None] = {
    "blocks of one layer": None,
    "two layers, no end trained": ((),),
    "two layers, one end trained": (("input",), ("output",)),
    "two layers, both ends trained": (("input", "output"),),
}


def _network(case: Case, draw: random.Random) -> Drawn:
    """A network, and the ranks of its inputs and of its residual moment."""
    net = first(lambda: _any_network(draw, _ENDS[case["family"]]), lambda found: found.num_parameters <= 90)
    rank = draw.randint(1, net.input_dim)
    most = min(rank, net.output_dim - (case["loss"] == "cross_entropy"))
    return Drawn(net, {"input_rank": rank, "residual_rank": draw.randint(0, most)})


def _any_network(draw: random.Random, ends: tuple[tuple[str, ...], ...] | None) -> Residual:
    from hessmap.networks import Residual

    any_ends = ((), ("input",), ("output",), ("input", "output"))
    width = draw.choice((1, 2, 3, 3, 4, 4, 5, 6))
    num_blocks = draw.choice((1, 2, 2, 3, 3, 4, 6))
    inner = None if ends is None else draw.choice((1, draw.randint(1, width + 2)))
    inputs, outputs = (draw.choice((None, draw.randint(1, width + 3))) for _ in range(2))
    trained = draw.choice(any_ends if ends is None else ends)
    return Residual(
        width,
        num_blocks,
        inner_width=inner,
        input_dim=inputs,
        output_dim=outputs,
        train_input="input" in trained,
        train_output="output" in trained,
    )


RANKS = random_networks(
    name="residual/ranks",
    question="Do the claims about the ranks of linear residual networks survive random ones?",
    reference="research/docs/attention-residual.md; not in print",
    cases=grid(batch=range(10), loss=["squared"], num_networks=[200], family=list(_ENDS))
    + grid(batch=[0], loss=["cross_entropy"], num_networks=[200], family=list(_ENDS)),
    networks=repeated(_network),
    fields=CLAIM_FIELDS,
    checks=HELD,
    claims=(holds_by_family,),
    view=claims_view("met by 200 networks", ("family", "loss"), most=200),
    seconds=3.0,
    answer=(
        "Yes: every claimed value, exact or conjectured, is the rank on 2,200 of 2,200 random networks of each kind."
    ),
    num_claims=4,
)
