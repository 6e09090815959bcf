"""Deep linear convolutional networks in exact arithmetic, against the paper's bounds, the law of H_o and new bounds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from hessmap.errors import unknown_name
from hessmap.networks import Convolutional
from hessmap.records import PARTS
from hessmap.theory.convolutional import deep_bounds, deep_columns, deep_law
from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.deep_law import is_free, product_dimension
from hessmap_research.formulas.printed_convolutional import theorem_6
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.encoding import case_key
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Cloud, Column, Mark, View
from hessmap_research.studies.hessian_ranks import NAMES

_MOST_PARAMETERS = {"random": 110, "strides": 110, "rounding": 260}
FAMILIES = tuple(_MOST_PARAMETERS)
SIDES = {"printed": "paper", "columns": "paper, columns sharpened", "ours": "ours"}


def cases() -> tuple[Case, ...]:
    """Every small network, one case for each kind of input and output, and batches of fresh ones."""
    ends: dict[str, Any] = {"outputs": [1, 2, 3], "positions": [1, 2, 3], "family": ["all small"], "loss": ["squared"]}
    fresh: dict[str, Any] = {"num_hidden": [2, 3, 4], "num_networks": [50]}
    return (
        *grid(num_hidden=[2], input_channels=[1, 2], **ends, num_networks=[81]),
        *grid(num_hidden=[3], input_channels=[1], **ends, num_networks=[216]),
        *grid(family=["random"], **fresh, loss=["squared", "cross_entropy"], batch=range(2)),
        *grid(family=["strides"], **fresh, loss=["squared"], batch=range(2)),
        *grid(family=["rounding"], **fresh, loss=["squared"], batch=range(1)),
    )


def measure(case: Case) -> dict[str, Any]:
    """The exact ranks, what each side says of them, and every network on which it says too little."""
    from hessmap.exact import generic_rank

    draw = random.Random(case_key(case))
    networks: list[str] = []
    exact: dict[str, list[int]] = {part: [] for part in PARTS}
    bounds: dict[str, dict[str, list[int]]] = {side: {part: [] for part in PARTS} for side in SIDES}
    for chain in _chains(case, draw):
        network = _network(chain, case["loss"])
        networks.append(str(network))
        values = _values(chain)
        for part in PARTS:
            exact[part].append(generic_rank(network, part, case["loss"], seed=draw.randrange(2**32)).value)
            for side in SIDES:
                bounds[side][part].append(values[side][part])
    excess: dict[str, dict[str, list[int]]] = {
        side: {part: _differences(bounds[side][part], exact[part]) for part in PARTS} for side in SIDES
    }
    return {
        "networks": networks,
        "exact": exact,
        "bounds": bounds,
        "reached": {side: {part: _percent(excess[side][part]) for part in PARTS} for side in SIDES},
        "law_right": excess["ours"]["outer_product"].count(0),
        "held": {part: sum(by >= 0 for by in excess["ours"][part]) for part in PARTS},
        "counterexamples": _counterexamples(networks, exact, excess),
    }


def _chains(case: Case, draw: random.Random) -> Iterator[FilterChain]:
    if case["family"] == "all small":
        yield from small_chains(*(case[name] for name in ("num_hidden", "input_channels", "outputs", "positions")))
        return
    for _ in range(case["num_networks"]):
        yield random_chain(draw, case["family"], case["num_hidden"])


def small_chains(num_hidden: int, input_channels: int, outputs: int, positions: int) -> Iterator[FilterChain]:
    """All networks of up to three channels and, for two hidden layers, three taps; two taps for more."""
    taps = range(1, 4 if num_hidden == 2 else 3)
    for hidden, kernels in product(product(range(1, 4), repeat=num_hidden), product(taps, repeat=num_hidden)):
        yield FilterChain((input_channels, *hidden, outputs), (*kernels, positions))


def random_chain(draw: random.Random, family: str, num_hidden: int) -> FilterChain:
    """A chain of a family: "random", "strides" (up to 3), or "rounding" (long filters whose degrees do not divide)."""
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    while True:
        chain = _random_draw(draw, family, num_hidden)
        if chain.num_parameters <= _MOST_PARAMETERS[family] and (family != "rounding" or has_rounding(chain)):
            return chain


def _random_draw(draw: random.Random, family: str, num_hidden: int) -> FilterChain:
    is_long = family == "rounding"
    most, last = (10, 3) if is_long else (5, 5)
    channels = [draw.randint(1, 3), *(draw.randint(1, 5) for _ in range(num_hidden)), draw.randint(1, most)]
    kernels = [*(draw.randint(1, most) for _ in range(num_hidden)), draw.randint(1, last)]
    strides = [draw.randint(1, 3) if family == "strides" else 1 for _ in range(num_hidden)]
    return FilterChain(tuple(channels), tuple(kernels), (*strides, 1))


def has_rounding(chain: FilterChain) -> bool:
    """Whether some part of the chain has a smaller dimension than the count of its weights less its gauge."""
    last = chain.num_layers
    return any(
        product_dimension(chain, i, j) < _count(chain, i, j) for i in range(last) for j in range(i + 2, last + 1)
    )


def _count(chain: FilterChain, first: int, last: int) -> int:
    """The first two lines of the law for R(first, last)."""
    counts = [chain.weights(first, last)]
    for vertex in range(first + 1, last):
        if is_free(chain, vertex, first, last):
            parts = product_dimension(chain, first, vertex) + product_dimension(chain, vertex, last)
            counts.append(parts - chain.channels[vertex] ** 2)
    return min(counts)


def input_length(chain: FilterChain) -> int:
    """The shortest input of a chain: longer ones only add positions that no filter meets."""
    length = chain.kernels[-1]
    for kernel, stride in zip(chain.kernels[-2::-1], chain.strides[-2::-1], strict=True):
        length = (length - 1) * stride + kernel
    return length


def _network(chain: FilterChain, loss: str) -> Convolutional:
    """The network of a chain; a softmax needs one output more than the chain has."""
    *channels, outputs = chain.channels
    outputs += loss == "cross_entropy"
    return Convolutional(input_length(chain), channels, chain.kernels[:-1], chain.strides[:-1], outputs)


def _values(chain: FilterChain) -> dict[str, dict[str, int]]:
    """What each side says of the three ranks, nothing above the number of parameters."""
    *channels, outputs = chain.channels
    sizes, parameters = deep_bounds.convolutional_sizes(
        input_length(chain), channels, chain.kernels[:-1], outputs, chain.strides[:-1]
    )
    theorem_5 = deep_bounds.outer_product_upper_bound(sizes, parameters)
    columns = sum(deep_bounds.functional_column_upper_bounds(sizes, parameters))
    values = {
        "printed": (theorem_5, theorem_6(sizes, parameters), theorem_5 + theorem_6(sizes, parameters)),
        "columns": (theorem_5, columns, deep_bounds.loss_upper_bound(sizes, parameters)),
        "ours": (
            deep_law.outer_product_rank(chain),
            deep_columns.functional_upper_bound(chain),
            deep_columns.loss_upper_bound(chain),
        ),
    }
    most = chain.num_parameters
    return {side: dict(zip(PARTS, (min(most, value) for value in values[side]), strict=True)) for side in SIDES}


def _differences(bounds: Sequence[int], ranks: Sequence[int]) -> list[int]:
    return [bound - rank for bound, rank in zip(bounds, ranks, strict=True)]


def _percent(excess: Sequence[int]) -> float:
    """How many percent of the bounds are the rank itself."""
    return 100 * list(excess).count(0) / len(excess)


def _counterexamples(
    networks: Sequence[str], exact: dict[str, list[int]], excess: dict[str, dict[str, list[int]]]
) -> list[dict[str, Any]]:
    """Networks on which the law is wrong, or a rank above a bound."""
    return [
        {
            "network": network,
            "part": part,
            "side": side,
            "exact": exact[part][place],
            "claimed": exact[part][place] + by,
        }
        for side in SIDES
        for part in PARTS
        for place, (network, by) in enumerate(zip(networks, excess[side][part], strict=True))
        if by < 0 or (by > 0 and side == "ours" and part == "outer_product")
    ]


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """The law is exact, every bound holds, and how often each is reached."""
    num_networks = sum(row["num_networks"] for row in rows)
    right = sum(row["law_right"] for row in rows)
    yield Claim.counted(
        "law",
        "The law of H_o is right on every network that was tried",
        right,
        num_networks,
    )
    for side, words in SIDES.items():
        below = sum(by < 0 for part in PARTS for by in _excess(rows, side, part))
        yield Claim(
            claim_id("bound", side),
            f"No rank exceeds its bound ({words})",
            below == 0,
            f"{below} of {3 * num_networks:,} ranks do",
        )
    for part in ("functional", "loss"):
        shares = {side: _percent(_excess(rows, side, part)) for side in SIDES}
        detail = ", ".join(f"{SIDES[side]} {share:.1f} %" for side, share in shares.items())
        claim = f"Our bound of {NAMES[part]} is reached more often than the paper's"
        yield Claim(
            claim_id("reached-more", part), claim, shares["ours"] > shares["columns"] >= shares["printed"], detail
        )


def _excess(rows: Sequence[Row], side: str, part: str) -> list[int]:
    return [by for row in rows for by in _differences(row["bounds"][side][part], row["exact"][part])]


def _figures() -> Iterator[Cloud]:
    """By how much each formula is above the rank, in the same axes for both sides."""
    for side, words in (("printed", "the paper"), ("ours", "ours")):
        for part in PARTS:
            yield Cloud(
                title=f"${NAMES[part]}$, {words}",
                part=part,
                x=f"exact.{part}",
                y=f"bounds.{side}.{part} - exact.{part}",
                colour="num_hidden",
                x_label="exact rank",
                y_label="formula - exact rank",
                y_scale="symlog",
                y_limits=(-0.3, 300.0),
                marks=(Mark(0.0, "formula = rank", "y"),),
            )


STUDY = Study(
    name="cnn/deep-law",
    question="What are the exact ranks of deep linear convolutional networks, and which formula gives them?",
    reference="beyond Singh, Hofmann & Schoelkopf 2023, whose Theorems 5 and 6 are upper bounds",
    cases=cases(),
    measure=measure,
    checks=tuple(Check(name, "num_networks", "equal") for name in ("law_right", "held.functional", "held.loss")),
    claims=claims,
    view=View(
        figures=tuple(_figures()),
        table=(
            *("family", "num_hidden", "loss"),
            *(
                Column(f"reached.{side}.{part}", f"{name} %, {SIDES[side]}", ".3g")
                for part, name in NAMES.items()
                for side in ("printed", "ours")
            ),
            Column("num_networks", "of"),
        ),
        group_by=("family", "num_hidden", "loss"),
    ),
    seconds=lambda case: 0.1 * case["num_networks"],
    answered=Answer(
        "Those of H_o are given by a conjectured law, on 4,452 of 4,452 networks; of H_f and H_L there are"
        " bounds, ours reached by 99.9 % where the paper's are by 28.4 % and 33.4 %.",
        num_claims=6,
        cases="agrees",
    ),
)
