"""Ranks of small LeNets: two-dimensional convolutions and pooling, with the bounds of their Toeplitz matrices.

The paper treats one dimension and leaves two to flattened filters. Few classes, so that the bounds lie below the number
of parameters.

The linear network with average pooling is a product of Toeplitz matrices, and so a dense linear network with restricted
layers; the bounds of deep linear networks hold for it as they do in one dimension. Averages commute with convolutions:
all pooling can be done first, which blurs the image, and leaves convolutions with a stride.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from hessmap.records import PARTS, Part
from hessmap_research.runner.claims import Answer, Check, Claim, claim_id
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study
from hessmap_research.runner.view import Column, Lines, Reading, Series, View
from hessmap_research.studies.hessian_ranks import (
    NAMES,
    SYMBOLS,
    certified_rank_claim,
    certified_ranks,
    measured_ranks,
)

if TYPE_CHECKING:
    from hessmap.problem.problem import Problem
    from hessmap.records import RankValue
if TYPE_CHECKING:
    from torch import Tensor, nn


KERNELS = (3, 2)
POOLED = 2


@dataclass(frozen=True)
class SmallLeNet:
    """3x3 filters, pooling by 2, twice as many 2x2 filters, pooling by 2, a dense hidden layer, a dense output layer.

    ``pooling`` is "average" or "max"; the activation ("identity", "relu", "tanh") follows all layers but the last.

    >>> net = SmallLeNet(side=8, filters=3, pooling="average", activation="identity", hidden=12, outputs=4)
    >>> net.linear == net, net.num_filters
    (True, 21)
    """

    side: int
    filters: int
    pooling: str
    activation: str
    hidden: int
    outputs: int

    @property
    def linear(self) -> SmallLeNet:
        """The network with the same weights whose layers are all linear."""
        return replace(self, pooling="average", activation="identity")

    @property
    def num_filters(self) -> int:
        """Hidden filters and units: each can be scaled up and what leaves it down."""
        return 3 * self.filters + self.hidden

    def build(self, seed: int = 0, init: str = "gaussian") -> nn.Sequential:
        """A float64 model on flat inputs, its weights drawn from ``seed`` alone."""
        from torch import nn

        from hessmap.networks import activation_module

        first, second, hidden, last = self._layers(seed, init)
        pool = {"average": nn.AvgPool2d, "max": nn.MaxPool2d}[self.pooling]
        shape = nn.Unflatten(1, (1, self.side, self.side))
        activations = [activation_module(self.activation) for _ in range(3)]
        convolutions = (first, activations[0], pool(POOLED), second, activations[1], pool(POOLED))
        return nn.Sequential(shape, *convolutions, nn.Flatten(), hidden, activations[2], last)

    def build_after_blurring(self, seed: int = 0, init: str = "gaussian") -> nn.Sequential:
        """The linear network with its poolings in front, as a model on ``blurred`` inputs."""
        from torch import nn

        first, second, hidden, last = self._layers(seed, init, stride=POOLED)
        side = self.side - POOLED**2 + 1
        return nn.Sequential(nn.Unflatten(1, (1, side, side)), first, second, nn.Flatten(), hidden, last)

    def blurred(self, inputs: Tensor) -> Tensor:
        """Flat images averaged over every square of 4x4 pixels: two averages of 2, the second over pixels of 2."""
        from torch.nn.functional import avg_pool2d

        images = inputs.reshape(-1, 1, self.side, self.side)
        return avg_pool2d(images, POOLED**2, stride=1).flatten(1)

    def _layers(self, seed: int, init: str, stride: int = 1) -> tuple[nn.Conv2d | nn.Linear, ...]:
        import torch
        from torch import nn

        from hessmap.networks import initialise

        first, second, units = self.filters, 2 * self.filters, 2 * self.filters * self._last_length() ** 2
        layers: tuple[nn.Conv2d | nn.Linear, ...] = (
            nn.Conv2d(1, first, KERNELS[0], stride, bias=False, device="meta", dtype=torch.float64),
            nn.Conv2d(first, second, KERNELS[1], stride, bias=False, device="meta", dtype=torch.float64),
            nn.Linear(units, self.hidden, bias=False, device="meta", dtype=torch.float64),
            nn.Linear(self.hidden, self.outputs, bias=False, device="meta", dtype=torch.float64),
        )
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            initialise(layer.to_empty(device="cpu"), init, generator)
        return layers

    def _last_length(self) -> int:
        length = self.side
        for kernel in KERNELS:
            length = (length - kernel + 1) // POOLED
        return length


class ToeplitzChain(NamedTuple):
    """A linear network as matrices: ``sizes`` of input, hidden layers and output, ``layer_parameters``, the layers.

    A pooling is taken together with the layer before it: ``sizes`` count what is left after it.
    """

    sizes: tuple[int, ...]
    layer_parameters: tuple[int, ...]
    matrices: tuple[Tensor, ...]

    def outputs(self, inputs: Tensor) -> Tensor:
        for matrix in self.matrices:
            inputs = inputs @ matrix.T
        return inputs


def toeplitz_chain(model: nn.Sequential) -> ToeplitzChain:
    """The layers of a linear model as matrices on flattened inputs."""
    from torch import nn

    from hessmap_research.toeplitz import toeplitz_layer

    shape: tuple[int, ...] = ()
    sizes: list[int] = []
    parameters: list[int] = []
    matrices: list[Tensor] = []
    for module in model:
        if isinstance(module, nn.Unflatten):
            shape = tuple(module.unflattened_size)
            sizes.append(prod(shape))
        elif isinstance(module, nn.Flatten):
            shape = (prod(shape),)
        elif not isinstance(module, nn.Identity):
            layer = toeplitz_layer(module, shape)
            shape = layer.output_shape
            matrices.append(layer.matrix)
            if layer.num_weights:
                parameters.append(layer.num_weights)
                sizes.append(prod(shape))
            else:
                sizes[-1] = prod(shape)
    return ToeplitzChain(tuple(sizes), tuple(parameters), tuple(matrices))


DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
_KINDS = (("identity", "average"), ("relu", "average"), ("relu", "max"), ("tanh", "average"))
_FILTERS = tuple(range(1, 9))
_SIDES = tuple(range(8, 16))
_HIDDEN, _CLASSES, _NUM_SAMPLES = 12, 4, 150


def cases(data: str) -> tuple[Case, ...]:
    """Growing numbers of filters on 8x8 pixels and, where the images are larger, growing images."""
    shapes = [(8, filters) for filters in _FILTERS]
    if data != "digits":
        shapes += [(side, 4) for side in _SIDES[1:]]
    return tuple(
        {"activation": activation, "pooling": pooling, "side": side, "filters": filters, "seed": 0}
        for activation, pooling in _KINDS
        for side, filters in shapes
    )


def measure(case: Case) -> dict[str, Any]:
    from hessmap.datasets import by_name
    from hessmap.problem.problem import Problem
    from hessmap.theory.data_ranks import outer_product_sample_upper_bound

    side, classes = case["side"], range(_CLASSES)
    network = SmallLeNet(side, case["filters"], case["pooling"], case["activation"], _HIDDEN, _CLASSES)
    data = by_name(case["data"], num_samples=_NUM_SAMPLES, side=side, classes=classes, standardise=True)
    problem = Problem(network.build(seed=case["seed"]), "squared", *data)
    is_linear, is_exact = network == network.linear, network.activation != "tanh"
    measured, certified = measured_ranks(problem), certified_ranks(problem) if is_exact else {}
    counted = {part: certified[part].value if is_exact else measured[part].value for part in PARTS}
    record = {"num_parameters": problem.num_parameters, **_linear_bounds(network, problem, case["seed"])}
    return record | {
        "measured": measured,
        "rank": counted,
        "sample_bound": outer_product_sample_upper_bound(_NUM_SAMPLES, _CLASSES),
        "bound": record["blurred_bound"] if is_linear else _bounds_of_any(network, record["layer_parameters"]),
        **({"certified": certified} if is_exact else {}),
        **({"exact": counted} if is_linear else {}),
    }


def _linear_bounds(network: SmallLeNet, problem: Problem, seed: int) -> dict[str, Any]:
    """Of the linear network: from its Toeplitz matrices, and from those of the same network on blurred images.

    ``toeplitz_error`` is by how much the products of the matrices miss the model, relative to its outputs.
    """
    import torch

    from hessmap.measurement import numerical_rank

    linear, inputs = network.linear.build(seed=seed), problem.inputs
    blurred = network.blurred(inputs)
    chain, strided = toeplitz_chain(linear), toeplitz_chain(network.build_after_blurring(seed=seed))
    with torch.no_grad():
        outputs = linear(inputs)
    misses = [chain.outputs(inputs) - outputs, strided.outputs(blurred) - outputs]
    ranks = {"inputs": numerical_rank(inputs).value, "blurred": numerical_rank(blurred).value}
    return {
        "layer_parameters": chain.layer_parameters,
        "input_ranks": ranks,
        "toeplitz_error": max(float(miss.abs().max()) for miss in misses) / float(outputs.abs().max()),
        "toeplitz_bound": _upper_bounds(chain, ranks["inputs"]),
        "blurred_bound": _upper_bounds(strided, ranks["blurred"]),
    }


def _upper_bounds(chain: ToeplitzChain, input_rank: int) -> dict[Part, RankValue]:
    """Theorems 5 and 6, sharpened, and the columns of H_L, for the matrices of the layers; for any residual."""
    from hessmap.records import RankValue
    from hessmap.theory.convolutional import deep_bounds as deep
    from hessmap.theory.convolutional.deep_bounds import loss_column_upper_bounds

    sizes, parameters = chain.sizes, chain.layer_parameters
    columns = loss_column_upper_bounds(sizes, parameters, input_rank=input_rank)
    values = (
        deep.outer_product_upper_bound(sizes, parameters, input_rank),
        sum(deep.functional_column_upper_bounds(sizes, parameters, input_rank=input_rank)),
        min(deep.loss_upper_bound(sizes, parameters, input_rank=input_rank), sum(columns)),
    )
    reference = "Singh, Hofmann & Schoelkopf 2023, Theorems 5 and 6, on Toeplitz matrices"
    return {part: RankValue(value, "upper_bound", reference) for part, value in zip(PARTS, values, strict=True)}


def _bounds_of_any(network: SmallLeNet, layer_parameters: Sequence[int]) -> dict[Part, RankValue]:
    """All parameters; under ReLU less one direction of H_o for each filter and hidden unit, which can be rescaled."""
    from hessmap.theory.convolutional.prediction import non_linear_claims
    from hessmap.theory.prediction import strongest_claim

    claims = non_linear_claims(network.activation, layer_parameters, network.num_filters, None)
    return {part: strongest_claim(found) for part, found in zip(PARTS, claims, strict=True)}


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    linear, others = ([row for row in rows if (row["activation"] == "identity") == kind] for kind in (True, False))
    if linear:
        yield from _of_linear(linear)
    relu = [row for row in others if row["activation"] == "relu"]
    if relu:
        above = [
            sum(row.number(f"rank.{part}") > row.number(f"blurred_bound.{part}") for row in relu) for part in PARTS
        ]
        names = [f"{NAMES[part]} in {number}" for part, number in zip(PARTS, above, strict=True)]
        detail = f"{', '.join(names)} of {len(relu)} cases, by exact arithmetic"
        claim = "ReLU: ranks are above the bounds of the linear network"
        yield Claim("relu-above-linear-bounds", claim, all(above), detail)
    yield certified_rank_claim(rows)


def _of_linear(rows: Sequence[Row]) -> Iterator[Claim]:
    worst = max(row["toeplitz_error"] for row in rows)
    claim = "Linear: the Toeplitz matrices give the outputs, and with the pooling in front the same"
    yield Claim("toeplitz-outputs", claim, worst < 1e-12, f"to {worst:.1e} in {len(rows)} networks")
    for part in PARTS:
        symbol = NAMES[part]
        names = ("rank", "toeplitz_bound", "blurred_bound")
        ranks, plain, blurred = ([row.number(f"{name}.{part}") for row in rows] for name in names)
        sharper = sum(low < high for low, high in zip(blurred, plain, strict=True))
        reached = sum(rank == low for rank, low in zip(ranks, blurred, strict=True))
        detail = f"lower in {sharper}, reached in {reached} of {len(rows)} cases"
        holds = sharper > 0 and all(low <= high for low, high in zip(blurred, plain, strict=True))
        yield Claim(
            claim_id("pooled-bound-lower", part),
            f"Linear: the bound of {symbol} is lower with the pooling in front, never higher",
            holds,
            detail,
        )


def _figure(activation: str, pooling: str, x: str, where: dict[str, Any], data: str) -> Lines:
    """Circles are ranks, lines the bounds of the linear network with the pooling in front, dashes as it stands."""
    name = {"identity": "linear", "relu": "ReLU"}.get(activation, activation)
    return Lines(
        title=f"{name}, {pooling} pooling, {data.replace('_', '-')}",
        where={"data": data, "activation": activation, "pooling": pooling, **where},
        x=x,
        series=tuple(
            Series(
                SYMBOLS[part],
                line=f"blurred_bound.{part}",
                points=f"rank.{part}",
                dashed=f"toeplitz_bound.{part}",
                part=part,
            )
            for part in PARTS
        ),
        x_label={"filters": "filters of the first layer", "side": "pixels of a side"}[x],
        y_label="rank",
        reading=Reading(
            points="measured",
            line="bounds of the linear network with the pooling in front",
            dashed="bounds of the linear network as it stands",
        ),
    )


def _figures(data: str) -> Iterator[Lines]:
    for kind in _KINDS:
        yield _figure(*kind, "filters", {"side": 8}, data)
    if data != "digits":
        for kind in _KINDS:
            yield _figure(*kind, "side", {"filters": 4}, data)


STUDY = Study(
    name="cnn/lenet",
    question="What are the ranks of small LeNets, and what do the bounds of their Toeplitz matrices say of them?",
    reference="Singh, Hofmann & Schoelkopf 2023, Section 5: Theorems 5 and 6 for flattened 2D convolutions",
    cases=cases,
    measure=measure,
    data=DATA,
    checks=(
        *(Check(f"rank.{part}", f"bound.{part}") for part in PARTS),
        Check("rank.outer_product", "sample_bound", "at_most"),
        *(Check(f"measured.{part}", f"exact.{part}", "equal") for part in PARTS),
    ),
    claims=claims,
    seconds=lambda case: 0.5 + 0.06 * case["filters"] ** 2 * (case["activation"] != "tanh"),
    view=View(
        figures=tuple(figure for data in DATA for figure in _figures(data)),
        table=(
            "data",
            "activation",
            "pooling",
            "side",
            "filters",
            Column("num_parameters", "p"),
            *(
                Column(f"{name}.{part}", label)
                for part in PARTS
                for name, label in (("rank", NAMES[part]), ("blurred_bound", "bound"))
            ),
            Column("toeplitz_bound.loss", "Toeplitz"),
        ),
    ),
    answered=Answer(
        "Linear ones lie within the bounds, which are never higher with the pooling in front and which H_L then"
        " reaches in 31 of 38 cases; under ReLU more than half of the ranks are above the bounds of linear networks.",
        num_claims=6,
        cases="agrees",
    ),
)
