"""Deep linear convolutions, cut at their narrowest vertices: the proved outer-product rank in exact arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.theory.convolutional import deep_law
from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.narrowest_vertices import proved_outer_product_rank
from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View

_MOST_PARAMETERS, _LONGEST_INPUT = 80, 48


def measure(case: Case) -> dict[str, Any]:
    """How many drawn networks have the rank that the theorem gives, and that the law gives; every other by its name."""
    from hessmap.exact import generic_rank
    from hessmap.networks import Convolutional

    draw = random.Random(case_key(case))
    held, law, wrong = 0, 0, []
    for _ in range(case["num_networks"]):
        chain, length, proved = _proved_chain(draw, case["num_layers"])
        hidden, outputs = chain.channels[:-1], chain.channels[-1]
        network = Convolutional(length, hidden, chain.kernels[:-1], chain.strides[:-1], outputs=outputs)
        exact = generic_rank(network, "outer_product", seed=draw.randrange(2**32)).value
        held += exact == proved
        law += exact == deep_law.outer_product_rank(chain)
        if exact != proved:
            wrong.append({"network": str(network), "exact": exact, "theorem": proved})
    return {"held": held, "law": law, "counterexamples": wrong}


def _proved_chain(draw: random.Random, num_layers: int) -> tuple[FilterChain, int, int]:
    """A chain that the theorem covers, of which several vertices are the narrowest; its input length and its rank."""
    while True:
        least = draw.randint(1, 3)
        channels = tuple(least + draw.choice((0, 0, 0, 1, 2)) for _ in range(num_layers + 1))
        kernels = tuple(draw.randint(1, 4) for _ in range(num_layers))
        strides = (*(draw.choice((1, 1, 2, 3)) for _ in range(num_layers - 1)), 1)
        chain = FilterChain(channels, kernels, strides)
        length = kernels[-1]
        for kernel, stride in zip(kernels[-2::-1], strides[-2::-1], strict=True):
            length = (length - 1) * stride + kernel
        proved = proved_outer_product_rank(chain)
        is_small = chain.num_parameters <= _MOST_PARAMETERS and length * channels[0] <= _LONGEST_INPUT
        if proved is not None and is_small:
            return chain, length, proved


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    total, held, law = (sum(row[name] for row in rows) for name in ("num_networks", "held", "law"))
    yield Claim.counted(
        "theorem-exact", "The theorem gives the exact rank of H_o", held, total, f"{held:,} of {total:,} networks"
    )
    yield Claim.counted(
        "law-exact", "There the conjectured law gives it as well", law, total, f"{law:,} of {total:,} networks"
    )


STUDY = Study(
    name="cnn/narrowest-vertices",
    question="Is the outer-product rank of deep linear convolutions, cut at their narrowest vertices, as proved?",
    reference="research/docs/convolutional.md; Singh, Hofmann & Schoelkopf 2023, Theorem 5, is the bound sharpened",
    cases=grid(num_layers=[2, 3, 4, 5], num_networks=[100], batch=range(5)),
    measure=measure,
    checks=(Check("held", "num_networks", "equal"),),
    claims=claims,
    view=View(
        figures=(Heatmap(title="right of 100", value="held", x="batch", y="num_layers", limits=(0, 100)),),
        table=("num_layers", Column("held"), Column("law"), Column("num_networks", "of")),
        group_by=("num_layers",),
    ),
    seconds=2.0,
    answered=Answer(
        "Yes: the theorem gives the rank of H_o on 2,000 of 2,000 random networks, and so does the conjectured law.",
        num_claims=2,
        cases="agrees",
    ),
)
