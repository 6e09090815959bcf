"""Loss and functional Hessian of deep linear convolutions: the kernels of single layers against exact arithmetic."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.deep_columns import functional_upper_bound, layer_upper_bounds
from hessmap.theory.convolutional.layer_kernels import loss_kernel_upper_bound
from hessmap_research.runner.claims import Answer, Check, Claim
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Heatmap, View
from hessmap_research.studies.cnn.deep_law import input_length

_MOST_PARAMETERS, _LONGEST_INPUT = 75, 60


def measure(case: Case) -> dict[str, Any]:
    """How many drawn networks reach the theorem's bound, the conjectured rank and the bound of H_f; what breaks any."""
    from hessmap.exact.generic import generic_hessian_ranks
    from hessmap.networks import Convolutional

    draw = random.Random(case_key(case))
    counts = dict.fromkeys(("held", "theorem_reached", "conjecture_right", "functional_reached"), 0)
    missed = []
    for _ in range(case["num_networks"]):
        chain = _drawn_chain(draw, case["num_layers"], case["largest_stride"])
        hidden, outputs = chain.channels[:-1], chain.channels[-1]
        network = Convolutional(input_length(chain), hidden, chain.kernels[:-1], chain.strides[:-1], outputs=outputs)
        exact = generic_hessian_ranks(network, seed=draw.randrange(2**32))
        loss, functional = exact["loss"].value, exact["functional"].value
        theorem, conjecture = loss_kernel_upper_bound(chain), sum(layer_upper_bounds(chain))
        columns = functional_upper_bound(chain)
        counts["held"] += loss <= min(theorem, conjecture) and functional <= columns
        counts["theorem_reached"] += loss == theorem
        counts["conjecture_right"] += loss == conjecture
        counts["functional_reached"] += functional == columns
        if (loss, functional) != (conjecture, columns):
            missed.append({"network": str(network), "exact": [functional, loss], "claimed": [columns, conjecture]})
    return {**counts, "missed": missed}


def _drawn_chain(draw: random.Random, num_layers: int, largest_stride: int) -> FilterChain:
    while True:
        channels = (draw.randint(1, 3), *(draw.randint(1, 5) for _ in range(num_layers)))
        kernels = tuple(draw.randint(1, 6) for _ in range(num_layers))
        strides = (*(draw.randint(1, largest_stride) for _ in range(num_layers - 1)), 1)
        chain = FilterChain(channels, kernels, strides)
        is_small = chain.num_parameters <= _MOST_PARAMETERS and input_length(chain) * channels[0] <= _LONGEST_INPUT
        if is_small and not (largest_stride > 1 and max(strides) == 1):
            return chain


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    total, held = (sum(row[name] for row in rows) for name in ("num_networks", "held"))
    yield Claim.counted("bounds-hold", "No rank exceeds a bound", held, total, f"{held:,} of {total:,} networks")
    plain = [row for row in rows if row["largest_stride"] == 1]
    of, right = (sum(row[name] for row in plain) for name in ("num_networks", "conjecture_right"))
    yield Claim.counted(
        "stride-1-kernel",
        "For stride 1 the kernel of H_L is that of its layers",
        right,
        of,
        f"{right:,} of {of:,} networks",
    )


STUDY = Study(
    name="cnn/layer-kernels",
    question="Is the kernel of the loss Hessian of deep linear convolutions that of its layers, as counted?",
    reference="research/docs/convolutional.md; not in print",
    cases=(
        *grid(num_layers=[3, 4, 5], largest_stride=[1], num_networks=[50], batch=range(14)),
        *grid(num_layers=[3, 4, 5], largest_stride=[3], num_networks=[50], batch=range(4)),
    ),
    measure=measure,
    checks=(Check("held", "num_networks", "equal"),),
    claims=claims,
    view=View(
        figures=(
            Heatmap(title="H_L right of 50", value="conjecture_right", x="batch", y="num_layers", limits=(0, 50)),
        ),
        table=(
            "largest_stride",
            "num_layers",
            Column("held", "within bounds"),
            Column("theorem_reached", "H_L, the theorem"),
            Column("conjecture_right", "H_L, conjecture"),
            Column("functional_reached", "H_f, bound"),
            Column("num_networks", "of"),
        ),
        group_by=("largest_stride", "num_layers"),
    ),
    seconds=20.0,
    answered=Answer(
        "Yes for stride 1, on 2,100 of 2,100 random networks (a conjecture); for larger strides the count gives"
        " an upper bound, which no rank exceeds.",
        num_claims=2,
        cases="agrees",
    ),
)
