"""Random convolutional and locally connected networks against what is claimed of their ranks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from hessmap.errors import unknown_name
from hessmap.networks import Architecture, Convolutional, FullyConnected, ImageConvolutional, LocallyConnected
from hessmap.records import PARTS
from hessmap.theory.convolutional import deep_bounds, deep_columns, deep_law
from hessmap.theory.convolutional.chains import FilterChain
from hessmap.theory.convolutional.deep_law import is_free, product_dimension
from hessmap_research.formulas.printed_convolutional import theorem_6
from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, grid
from hessmap_research.runner.view import Cloud, Column, Mark, View
from hessmap_research.studies.hessian_ranks import NAMES
from hessmap_research.studies.random_networks import (
    CLAIM_FIELDS,
    HELD,
    OURS,
    Compared,
    Counted,
    Drawn,
    allowed,
    at_most,
    claims_view,
    count,
    count_all,
    counterexamples,
    counts_view,
    equal,
    every_claim_holds,
    exact_ranks,
    exact_ranks_of_own_seeds,
    first,
    predicted,
    random_networks,
    repeated,
)

_OF_NETWORKS = "{right:,} of {total:,} networks"


# One convolution, and networks of patches.

_ONE = "one convolution"
_OF_ONE_LAYER = ("residual of low rank", "inputs of low rank", "patches", "shared patches")


def _one_layer(case: Case, draw: random.Random) -> Drawn:
    """A network of one hidden layer; its data have low ranks where the family asks for them."""
    family = case["family"]
    network = first(lambda: _any_layer(draw, family), lambda net: net.num_parameters <= 110)
    input_rank = draw.randint(1, network.input_dim) if family == "inputs of low rank" else network.input_dim
    if family != "residual of low rank":
        return Drawn(network, {"input_rank": input_rank})
    largest = min(input_rank, network.output_dim - (case["loss"] == "cross_entropy"))
    return Drawn(network, {"input_rank": input_rank, "residual_rank": draw.randint(0, largest)})


def _any_layer(draw: random.Random, family: str) -> Architecture:
    if family.endswith("patches"):
        patches, size, filters, outputs = (draw.randint(1, 4) for _ in range(4))
        return LocallyConnected(patches, size, filters, outputs, shared_weights=family == "shared patches")
    length = draw.randint(1, 10)
    kernel, stride = draw.randint(1, length), draw.choice((1, 1, 2, 3))
    channels = draw.randint(1, 3), draw.randint(1, 5)
    return Convolutional(length, channels, (kernel,), (stride,), draw.randint(1, 6))


def _one_convolution_claim(rows: Sequence[Row]) -> Iterator[Claim]:
    own = [row for row in rows if row["family"] == _ONE]
    counts = sum((Counter(kinds) for row in rows for kinds in row["kinds"].values()), Counter[str]())
    claim = "The formula of H_L of one convolution is the rank of every network"
    detail = f"{sum(row['num_networks'] for row in own):,} networks of one convolution; claims of all: "
    detail += ", ".join(f"{number:,} {kind}" for kind, number in counts.most_common())
    is_right = all(row["met"]["loss"] == row["num_networks"] for row in own)
    yield Claim("one-convolution-loss", claim, is_right, detail)


CLAIMS = random_networks(
    name="cnn/claims",
    question="Do the claims about the ranks of convolutional and locally connected networks survive random ones?",
    reference="Singh, Hofmann & Schoelkopf 2023, Theorems 5 to 10, Facts 13 and 14, as corrected here",
    cases=tuple(
        case
        for families, num_batches in (([_ONE], 20), (_OF_ONE_LAYER, 2))
        for case in grid(
            family=families,
            loss=["squared", "cross_entropy", "log_cosh"],
            num_networks=[50],
            batch=range(num_batches),
        )
    ),
    networks=repeated(_one_layer),
    fields=CLAIM_FIELDS,
    checks=HELD,
    claims=(
        *every_claim_holds(),
        _one_convolution_claim,
    ),
    view=claims_view("met by 50 networks", ("family", "loss")),
    seconds=4.0,
    answer="Yes, all of them on 4,200 of 4,200 random networks: exact ranks, bounds and conjectures.",
    num_claims=4,
)


# Images, padding and bias.

_CONJECTURED = ("images", "first layer padded")
_BOUNDED = ("images, padded", "images with bias", "images, padded, with bias")
_ONE_DIMENSION = ("padded", "with bias", "padded, with bias")


def _on_images(case: Case, draw: random.Random) -> Drawn:
    family, num_hidden = case["family"], case["num_hidden"]
    return Drawn(first(lambda: _any_image_network(draw, family, num_hidden), lambda net: net.num_parameters <= 110))


def _any_image_network(draw: random.Random, family: str, num_hidden: int) -> Convolutional | ImageConvolutional:
    """Kernels of up to three taps along an axis, stride 1 or 2, up to five channels."""
    num_axes = 1 if family in _ONE_DIMENSION else 2
    sizes = [draw.randint(2, 9 if num_axes == 1 else 6) for _ in range(num_axes)]
    kernels: list[tuple[int, ...]] = []
    strides, paddings, current = [], [], sizes
    for layer in range(num_hidden):
        may_pad = "padded" in family and (layer == 0 or family != "first layer padded")
        padding = draw.randint(0, 1) if may_pad else 0
        kernels.append(tuple(draw.randint(1, min(3, size + 2 * padding)) for size in current))
        strides.append(draw.choice((1, 1, 1, 2)))
        current = [
            (size + 2 * padding - kernel) // strides[-1] + 1 for size, kernel in zip(current, kernels[-1], strict=True)
        ]
        paddings.append(padding)
    channels = [draw.randint(1, 2), *(draw.randint(1, 5) for _ in range(num_hidden))]
    biases = ["bias" in family and draw.random() < 0.7 for _ in range(num_hidden + 1)]
    shared: dict[str, Any] = {"outputs": draw.randint(1, 4), "bias": biases, "paddings": paddings}
    if num_axes == 1:
        return Convolutional(sizes[0], channels, [kernel for (kernel,) in kernels], strides, **shared)
    pairs = [(above, beside) for above, beside in kernels]
    return ImageConvolutional((sizes[0], sizes[1]), channels, pairs, strides, **shared)


def _images_claim(rows: Sequence[Row]) -> Iterator[Claim]:
    plain = [row for row in rows if row["family"] == "images"]
    if plain:
        total = sum(row["num_networks"] for row in plain)
        shares = {part: sum(row["met"][part] for row in plain) / total for part in PARTS}
        claim = "Images without padding and bias: the bounds are the ranks in at least 90 %"
        detail = ", ".join(f"{NAMES[part]} {share:.0%}" for part, share in shares.items()) + f" of {total:,} networks"
        yield Claim("bounds-are-ranks", claim, min(shares.values()) >= 0.9, detail)


_ON_IMAGES: dict[str, Any] = {"num_hidden": [1, 2, 3], "num_networks": [50]}
IMAGES = random_networks(
    name="cnn/images",
    question="Do the claims about two-dimensional, padded and biased convolutional networks survive random ones?",
    reference="Singh, Hofmann & Schoelkopf 2023, Theorems 5, 6 and 8, beyond one dimension",
    cases=grid(family=_CONJECTURED, loss=["squared", "cross_entropy"], **_ON_IMAGES, batch=range(2))
    + grid(family=(*_BOUNDED, *_ONE_DIMENSION), loss=["squared"], **_ON_IMAGES, batch=range(1)),
    networks=repeated(_on_images),
    fields=CLAIM_FIELDS,
    checks=HELD,
    claims=(
        *(
            Counted(
                claim_id("not-above", part),
                f"No rank of {NAMES[part]} is above what is claimed",
                f"held.{part}",
                detail="{right:,} of {total:,}; it is the rank itself for {met:,}",
                beside={"met": f"met.{part}"},
            )
            for part in PARTS
        ),
        _images_claim,
    ),
    view=claims_view("the claim is the rank, of 50", ("family", "num_hidden")),
    seconds=10.0,
    answer=(
        "Yes: no rank of 2,100 random networks is above what is claimed; on images without padding and bias the"
        " bounds are the ranks in at least 90 %."
    ),
    num_claims=4,
)


# Inputs that span less than all inputs.


def _patches(draw: random.Random) -> Architecture:
    return LocallyConnected(draw.randint(1, 5), draw.randint(1, 5), draw.randint(1, 4), draw.randint(1, 6))


def _convolutions(draw: random.Random) -> Architecture:
    num_hidden = draw.randint(1, 3)
    kernels = [draw.randint(1, 5) for _ in range(num_hidden)]
    length = sum(kernels) - num_hidden + draw.randint(1, 4)
    channels = (draw.randint(1, 2), *(draw.randint(1, 4) for _ in kernels))
    return Convolutional(length, channels, kernels, outputs=draw.randint(1, 5))


def _dense(draw: random.Random) -> Architecture:
    return FullyConnected(tuple(draw.randint(1, 6) for _ in range(draw.randint(3, 5))))


# Family -> a draw, and by how much the rank of the inputs is at least below their dimension.
_LOW: dict[str, tuple[Callable[[random.Random], Architecture], int]] = {
    "patches": (_patches, 0),
    "convolutions": (_convolutions, 1),
    "dense": (_dense, 1),
}


def _low_input_rank(case: Case, draw: random.Random) -> Drawn:
    drawn, less = _LOW[case["family"]]
    network = first(lambda: drawn(draw), lambda net: net.num_parameters <= 75 and net.input_dim > less)
    return Drawn(network, {"input_rank": draw.randint(1, network.input_dim - less)})


def _not_the_rank(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    return [
        {
            "network": str(one.drawn.network),
            **one.drawn.known,
            "claimed_and_exact": {part: [one.claimed[OURS][part].value, one.exact[part]] for part in PARTS},
        }
        for one in compared
        if any(one.claimed[OURS][part].value != one.exact[part] for part in PARTS)
    ]


def _mostly_exact_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for family in ("patches", "dense"):
        own = [row for row in rows if row["family"] == family]
        if own:
            total, exact = (sum(row[name] for row in own) for name in ("num_networks", "num_exact"))
            claim = f"Most ranks of {family} networks are exact"
            yield Claim(claim_id("mostly-exact", family), claim, exact > 2 * total, f"{exact:,} of {3 * total:,}")


LOW_INPUT_RANK = random_networks(
    name="cnn/low-input-rank",
    question="What are the ranks where the inputs span less than all inputs, and are the claims of them right?",
    reference="research/docs/convolutional.md; not in print",
    cases=(
        *grid(family=["patches"], num_networks=[100], batch=range(20)),
        *grid(family=["convolutions"], num_networks=[50], batch=range(20)),
        *grid(family=["dense"], num_networks=[50], batch=range(10)),
    ),
    networks=repeated(_low_input_rank),
    fields={
        "held": count_all(allowed),
        "num_exact": lambda compared: sum(
            claim.kind == "exact" for one in compared for claim in one.claimed[OURS].values()
        ),
        "equal": count(equal),
        "missed": _not_the_rank,
    },
    checks=["held"],
    claims=(
        Counted("holds", "Every claim holds for inputs of low rank", "held", detail=_OF_NETWORKS),
        _mostly_exact_claims,
    ),
    view=counts_view(
        ["family"],
        {"held": "", **{f"equal.{part}": f"{part.replace('_', ' ')} the rank" for part in PARTS}},
        100,
        {"claims that hold": "held"},
    ),
    seconds=8.0,
    answer=(
        "Those that are claimed, on 3,500 of 3,500 networks; the claim is exact for 5,552 of 6,000 ranks on"
        " patches and for all of dense networks."
    ),
    num_claims=3,
)


# One convolution with a bias.


def _biased(case: Case, draw: random.Random) -> Drawn:
    """Strides up to the kernel, and no more outputs than inputs."""

    def any_network() -> Convolutional:
        kernel, positions = draw.randint(1, 7), draw.randint(1, 5)
        stride = draw.randint(1, min(3, kernel))
        channels, outputs = (draw.randint(1, 3), draw.randint(1, 6)), draw.randint(1, 6)
        length = (positions - 1) * stride + kernel
        return Convolutional(length, channels, (kernel,), (stride,), outputs, bias=(True, case["has_last_bias"]))

    return Drawn(first(any_network, lambda net: net.num_parameters <= 100 and net.outputs <= net.input_dim))


BIASED_CONVOLUTION = random_networks(
    name="cnn/biased-convolution",
    question="What are the ranks of one linear convolution with a bias, where residuals do not sum to zero?",
    reference="research/docs/convolutional.md; not in print",
    cases=grid(has_last_bias=[True, False], num_networks=[100], batch=range(10)),
    networks=repeated(_biased),
    exact=exact_ranks("functional", "loss"),
    claimed=predicted("functional", "loss"),
    fields={"right": count(equal), "counterexamples": counterexamples(equal)},
    checks=["right.functional", "right.loss"],
    claims=tuple(
        Counted(
            claim_id("formula", part), f"The formula gives the rank of {name}", f"right.{part}", detail=_OF_NETWORKS
        )
        for part, name in (("functional", "H_f"), ("loss", "H_L"))
    ),
    view=counts_view(
        ["has_last_bias"], {"right.functional": "H_f", "right.loss": "H_L"}, 100, {"H_L right of 100": "right.loss"}
    ),
    seconds=15.0,
    answer="Those of the formula, on 2,000 of 2,000 random networks; for H_L it is a conjecture.",
    num_claims=2,
)


# Deep linear convolutions, as chains of filters.

_MOST_PARAMETERS = {"random": 110, "strides": 110, "rounding": 260}
FAMILIES = tuple(_MOST_PARAMETERS)
SIDES = {"printed": "paper", "columns": "paper, columns sharpened", OURS: "ours"}


def input_length(chain: FilterChain) -> int:
    """The shortest input of a chain: longer ones only add positions that no filter meets."""
    length = chain.kernels[-1]
    for kernel, stride in zip(chain.kernels[-2::-1], chain.strides[-2::-1], strict=True):
        length = (length - 1) * stride + kernel
    return length


def _of_chain(chain: FilterChain, loss: str = "squared") -> Drawn:
    """The network of a chain; a softmax needs one output more than the chain has."""
    *channels, outputs = chain.channels
    outputs += loss == "cross_entropy"
    network = Convolutional(input_length(chain), channels, chain.kernels[:-1], chain.strides[:-1], outputs)
    return Drawn(network, source=chain)


def _is_small(chain: FilterChain, most_parameters: int, longest_input: int) -> bool:
    return chain.num_parameters <= most_parameters and input_length(chain) * chain.channels[0] <= longest_input


def _small_and_random_chains(case: Case, draw: random.Random) -> Iterator[Drawn]:
    if case["family"] == "all small":
        sizes = (case[name] for name in ("num_hidden", "input_channels", "outputs", "positions"))
        yield from (_of_chain(chain, case["loss"]) for chain in small_chains(*sizes))
        return
    for _ in range(case["num_networks"]):
        yield _of_chain(random_chain(draw, case["family"], case["num_hidden"]), case["loss"])


def small_chains(num_hidden: int, input_channels: int, outputs: int, positions: int) -> Iterator[FilterChain]:
    """All networks of up to three channels and, for two hidden layers, three taps; two taps for more."""
    taps = range(1, 4 if num_hidden == 2 else 3)
    for hidden, kernels in product(product(range(1, 4), repeat=num_hidden), product(taps, repeat=num_hidden)):
        yield FilterChain((input_channels, *hidden, outputs), (*kernels, positions))


def random_chain(draw: random.Random, family: str, num_hidden: int) -> FilterChain:
    """A chain of a family: "random", "strides" (up to 3), or "rounding" (long filters whose degrees do not divide)."""
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    most = _MOST_PARAMETERS[family]
    return first(
        lambda: _any_chain(draw, family, num_hidden),
        lambda chain: chain.num_parameters <= most and (family != "rounding" or has_rounding(chain)),
    )


def _any_chain(draw: random.Random, family: str, num_hidden: int) -> FilterChain:
    most, last = (10, 3) if family == "rounding" else (5, 5)
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


def _bounds_of_sides(case: Case, drawn: Drawn) -> dict[str, dict[str, int]]:
    """What each side gives for the three ranks, nothing above the number of parameters."""
    chain = drawn.source
    *channels, outputs = chain.channels
    sizes, parameters = deep_bounds.convolutional_sizes(
        input_length(chain), channels, chain.kernels[:-1], outputs, chain.strides[:-1]
    )
    theorem_5 = deep_bounds.outer_product_upper_bound(sizes, parameters)
    columns = sum(deep_bounds.functional_column_upper_bounds(sizes, parameters))
    values = {
        "printed": (theorem_5, theorem_6(sizes, parameters), theorem_5 + theorem_6(sizes, parameters)),
        "columns": (theorem_5, columns, deep_bounds.loss_upper_bound(sizes, parameters)),
        OURS: (
            deep_law.outer_product_rank(chain),
            deep_columns.functional_upper_bound(chain),
            deep_columns.loss_upper_bound(chain),
        ),
    }
    most = chain.num_parameters
    return {side: dict(zip(PARTS, (min(most, value) for value in values[side]), strict=True)) for side in SIDES}


def _listed(compared: Sequence[Compared]) -> dict[str, list[int]]:
    return {part: [one.exact[part] for one in compared] for part in PARTS}


def _bounds(compared: Sequence[Compared]) -> dict[str, dict[str, list[int]]]:
    return {side: {part: [one.claimed[side][part] for one in compared] for part in PARTS} for side in SIDES}


def _reached(compared: Sequence[Compared]) -> dict[str, dict[str, float]]:
    counts = {side: count(equal, side)(compared) for side in SIDES}
    return {side: {part: 100 * counts[side][part] / len(compared) for part in PARTS} for side in SIDES}


def _against_law_or_bounds(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    """Ranks above a bound, and networks of which the law of H_o gives too much."""
    above: list[dict[str, Any]] = counterexamples(at_most, *SIDES)(compared)
    unequal = counterexamples(equal)(compared)
    return above + [one for one in unequal if one["part"] == "outer_product" and one["exact"] < one["claim"]]


def _excess(rows: Sequence[Row], side: str, part: str) -> list[int]:
    pairs = ((row["bounds"][side][part], row["exact"][part]) for row in rows)
    return [bound - rank for bounds, ranks in pairs for bound, rank in zip(bounds, ranks, strict=True)]


def _bound_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Every bound holds, and how often each is reached."""
    num_ranks = 3 * sum(row["num_networks"] for row in rows)
    for side, words in SIDES.items():
        below = sum(by < 0 for part in PARTS for by in _excess(rows, side, part))
        claim = f"No rank exceeds its bound ({words})"
        yield Claim(claim_id("bound", side), claim, below == 0, f"{below} of {num_ranks:,} ranks do")
    for part in ("functional", "loss"):
        found = {side: _excess(rows, side, part) for side in SIDES}
        shares = {side: 100 * excess.count(0) / len(excess) for side, excess in found.items()}
        detail = ", ".join(f"{SIDES[side]} {share:.1f} %" for side, share in shares.items())
        claim = f"Our bound of {NAMES[part]} is reached more often than the paper's"
        yield Claim(
            claim_id("reached-more", part), claim, shares[OURS] > shares["columns"] >= shares["printed"], detail
        )


def _excess_figures() -> Iterator[Cloud]:
    """By how much each formula is above the rank, in the same axes for both sides."""
    for side, words in (("printed", "the paper"), (OURS, "ours")):
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


_ENDS: dict[str, Any] = {"outputs": [1, 2, 3], "positions": [1, 2, 3], "family": ["all small"], "loss": ["squared"]}
_FRESH: dict[str, Any] = {"num_hidden": [2, 3, 4], "num_networks": [50]}
DEEP_LAW = random_networks(
    name="cnn/deep-law",
    question="What are the exact ranks of deep linear convolutional networks, and which formula gives them?",
    reference="beyond Singh, Hofmann & Schoelkopf 2023, whose Theorems 5 and 6 are upper bounds",
    cases=(
        *grid(num_hidden=[2], input_channels=[1, 2], **_ENDS, num_networks=[81]),
        *grid(num_hidden=[3], input_channels=[1], **_ENDS, num_networks=[216]),
        *grid(family=["random"], **_FRESH, loss=["squared", "cross_entropy"], batch=range(2)),
        *grid(family=["strides"], **_FRESH, loss=["squared"], batch=range(2)),
        *grid(family=["rounding"], **_FRESH, loss=["squared"], batch=range(1)),
    ),
    networks=_small_and_random_chains,
    exact=exact_ranks_of_own_seeds,
    claimed=_bounds_of_sides,
    fields={
        "networks": lambda compared: [str(one.drawn.network) for one in compared],
        "exact": _listed,
        "bounds": _bounds,
        "reached": _reached,
        "law_right": lambda compared: count(equal)(compared)["outer_product"],
        "held": count(at_most),
        "counterexamples": _against_law_or_bounds,
    },
    checks=["law_right", "held.functional", "held.loss"],
    claims=(Counted("law", "The law of H_o is right on every network that was tried", "law_right"), _bound_claims),
    view=View(
        figures=tuple(_excess_figures()),
        table=(
            *("family", "num_hidden", "loss"),
            *(
                Column(f"reached.{side}.{part}", f"{name} %, {SIDES[side]}", ".3g")
                for part, name in NAMES.items()
                for side in ("printed", OURS)
            ),
            Column("num_networks", "of"),
        ),
        group_by=("family", "num_hidden", "loss"),
    ),
    seconds=lambda case: 0.1 * case["num_networks"],
    answer=(
        "Those of H_o are given by a conjectured law, on 4,452 of 4,452 networks; of H_f and H_L there are"
        " bounds, ours reached by 99.9 % where the paper's are by 28.4 % and 33.4 %."
    ),
    num_claims=6,
)


def _of_kernels(case: Case, draw: random.Random) -> Drawn:
    num_layers, largest = case["num_layers"], case["largest_stride"]

    def any_chain() -> FilterChain:
        channels = (draw.randint(1, 3), *(draw.randint(1, 5) for _ in range(num_layers)))
        kernels = tuple(draw.randint(1, 6) for _ in range(num_layers))
        return FilterChain(channels, kernels, (*(draw.randint(1, largest) for _ in range(num_layers - 1)), 1))

    return _of_chain(
        first(any_chain, lambda chain: _is_small(chain, 75, 60) and not (largest > 1 and max(chain.strides) == 1))
    )


def _kernel_bounds(case: Case, drawn: Drawn) -> dict[str, dict[str, int]]:
    return {
        "theorem": {"loss": deep_columns.loss_kernel_upper_bound(drawn.source)},
        "conjecture": {"loss": sum(deep_columns.layer_upper_bounds(drawn.source))},
        "columns": {"functional": deep_columns.functional_upper_bound(drawn.source)},
    }


def _not_reached(compared: Sequence[Compared]) -> list[dict[str, Any]]:
    found = []
    for one in compared:
        exact = [one.exact["functional"], one.exact["loss"]]
        claimed = [one.claimed["columns"]["functional"], one.claimed["conjecture"]["loss"]]
        if exact != claimed:
            found.append({"network": str(one.drawn.network), "exact": exact, "claimed": claimed})
    return found


LAYER_KERNELS = random_networks(
    name="cnn/layer-kernels",
    question="Is the kernel of the loss Hessian of deep linear convolutions that of its layers, as counted?",
    reference="research/docs/convolutional.md; not in print",
    cases=(
        *grid(num_layers=[3, 4, 5], largest_stride=[1], num_networks=[50], batch=range(14)),
        *grid(num_layers=[3, 4, 5], largest_stride=[3], num_networks=[50], batch=range(4)),
    ),
    networks=repeated(_of_kernels),
    exact=exact_ranks("functional", "loss"),
    claimed=_kernel_bounds,
    fields={
        "held": count_all(at_most, "theorem", "conjecture", "columns"),
        "theorem_reached": count_all(equal, "theorem"),
        "conjecture_right": count_all(equal, "conjecture"),
        "functional_reached": count_all(equal, "columns"),
        "missed": _not_reached,
    },
    checks=["held"],
    claims=(
        Counted("bounds-hold", "No rank exceeds a bound", "held", detail=_OF_NETWORKS),
        Counted(
            "stride-1-kernel",
            "For stride 1 the kernel of H_L is that of its layers",
            "conjecture_right",
            where={"largest_stride": 1},
            detail=_OF_NETWORKS,
        ),
    ),
    view=counts_view(
        ["largest_stride", "num_layers"],
        {
            "held": "within bounds",
            "theorem_reached": "H_L, the theorem",
            "conjecture_right": "H_L, conjecture",
            "functional_reached": "H_f, bound",
        },
        50,
        {"H_L right of 50": "conjecture_right"},
    ),
    seconds=20.0,
    answer=(
        "Yes for stride 1, on 2,100 of 2,100 random networks (a conjecture); for larger strides the count gives"
        " an upper bound, which no rank exceeds."
    ),
    num_claims=2,
)


def _narrow_chain(case: Case, draw: random.Random) -> Drawn:
    """A chain that the theorem covers, of which several vertices are the narrowest."""
    num_layers = case["num_layers"]

    def any_chain() -> FilterChain:
        least = draw.randint(1, 3)
        channels = tuple(least + draw.choice((0, 0, 0, 1, 2)) for _ in range(num_layers + 1))
        kernels = tuple(draw.randint(1, 4) for _ in range(num_layers))
        return FilterChain(channels, kernels, (*(draw.choice((1, 1, 2, 3)) for _ in range(num_layers - 1)), 1))

    def is_wanted(chain: FilterChain) -> bool:
        return _is_small(chain, 80, 48) and deep_law.proved_outer_product_rank(chain) is not None

    return _of_chain(first(any_chain, is_wanted))


def _theorem_and_law(case: Case, drawn: Drawn) -> dict[str, dict[str, int | None]]:
    return {
        "theorem": {"outer_product": deep_law.proved_outer_product_rank(drawn.source)},
        "law": {"outer_product": deep_law.outer_product_rank(drawn.source)},
    }


NARROWEST_VERTICES = random_networks(
    name="cnn/narrowest-vertices",
    question="Is the outer-product rank of deep linear convolutions, cut at their narrowest vertices, as proved?",
    reference="research/docs/convolutional.md; Singh, Hofmann & Schoelkopf 2023, Theorem 5, is the bound sharpened",
    cases=grid(num_layers=[2, 3, 4, 5], num_networks=[100], batch=range(5)),
    networks=repeated(_narrow_chain),
    exact=exact_ranks("outer_product"),
    claimed=_theorem_and_law,
    fields={
        "held": count_all(equal, "theorem"),
        "law": count_all(equal, "law"),
        "counterexamples": counterexamples(equal, "theorem"),
    },
    checks=["held"],
    claims=(
        Counted("theorem-exact", "The theorem gives the exact rank of H_o", "held", detail=_OF_NETWORKS),
        Counted("law-exact", "There the conjectured law gives it as well", "law", detail=_OF_NETWORKS),
    ),
    view=counts_view(["num_layers"], {"held": "", "law": ""}, 100, {"right of 100": "held"}),
    seconds=2.0,
    answer="Yes: the theorem gives the rank of H_o on 2,000 of 2,000 random networks, and so does the conjectured law.",
    num_claims=2,
)
