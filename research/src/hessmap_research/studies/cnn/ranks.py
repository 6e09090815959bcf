"""What the rank studies of convolutional networks share: cases, the measurement, the paper's bounds, claims, figures.

Images are scaled down by area means and flattened row by row; a network with fewer inputs than pixels leaves the last
ones out. The first 300 samples are standardised pixel by pixel, and smaller sample sizes are the first of these. The
ranks of the data that enter the formulas are measured on these data; none is assumed. The paper names data, loss and
depth, but no sizes: they are chosen so that the inputs have full rank, which the formulas ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import product
from math import ceil, sqrt
from operator import le
from typing import TYPE_CHECKING, Any

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.networks import Convolutional, FullyConnected, LocallyConnected
from hessmap.records import PARTS
from hessmap.theory import HessianRanks, effective_output_dim
from hessmap.theory import locally_connected as local
from hessmap.theory.convolutional import deep_bounds
from hessmap.theory.convolutional.one_layer import OneHiddenConvolution
from hessmap.theory.fully_connected import linear
from hessmap_research.formulas import printed_convolutional as printed
from hessmap_research.runner.claims import Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case
from hessmap_research.runner.view import Column, Lines, Reading, Series
from hessmap_research.studies.hessian_ranks import NAMES, SYMBOLS, data_ranks, hessian_spectra

if TYPE_CHECKING:
    from hessmap.datasets import Data
    from hessmap.networks import Architecture
    from hessmap.problem.problem import Problem

NUM_SAMPLES = 300
EMBEDDED = ("digits", "gaussian")
DATA = ("digits", "mnist", "fashion_mnist", "cifar10", "gaussian")
ACTIVATIONS = {"identity": "linear", "relu": "ReLU"}
LOSSES = {"squared": "squared", "cross_entropy": "cross-entropy"}

# Lines are our ranks or bounds, dashes the paper's bounds (of the linear network, under ReLU), circles measurements.
READING = Reading("measured", "predicted", "the paper's bounds of the linear network")
SERIES = {
    "identity": tuple(
        Series(SYMBOLS[part], line=f"predicted.{part}", dashed=f"printed.{part}", points=f"measured.{part}", part=part)
        for part in PARTS
    ),
    "relu": tuple(
        Series(SYMBOLS[part], dashed=f"printed.{part}", points=f"measured.{part}", part=part) for part in PARTS
    ),
}
COLUMNS: tuple[Column | str, ...] = (
    "data",
    "network",
    "loss",
    Column("num_parameters", "p"),
    *(
        Column(f"{kind}.{part}", label)
        for part in PARTS
        for kind, label in (("predicted", NAMES[part]), ("measured", "meas."))
    ),
    Column("printed.loss", "printed"),
)

RIGHT = "right in {right} of {total} cases"


def settings(data: str) -> tuple[dict[str, str], ...]:
    """Linear and ReLU, squared loss and cross-entropy; Gaussian data have no labels, and squared loss alone."""
    losses = ("squared",) if data == "gaussian" else tuple(LOSSES)
    return tuple({"activation": activation, "loss": loss} for activation, loss in product(ACTIVATIONS, losses))


def network_suffix(activation: str) -> str:
    """What stands behind the sizes of a network in its text."""
    return "" if activation == "identity" else f" {activation}"


def measure(case: Case) -> dict[str, Any]:
    """The record of a case with the fields data, network, loss and seed, and perhaps num_samples."""
    return rank_record(*network_and_problem(case))


def network_and_problem(case: Case) -> tuple[Architecture, Problem]:
    """The network of a case with Gaussian weights, and its data: the first ``num_samples`` of a standardised pool."""
    from hessmap.networks import parse_network
    from hessmap.problem.problem import Problem

    network = parse_network(case["network"])
    pool = _pool(case["data"], network, case["seed"])
    count = case.get("num_samples", NUM_SAMPLES)
    model = network.build(seed=case["seed"])
    return network, Problem(model, case["loss"], pool.inputs[:count], pool.targets[:count])


def _pool(data: str, network: Architecture, seed: int) -> Data:
    from hessmap.datasets import Data, by_name

    dim, outputs = network.input_dim, network.output_dim
    if data == "gaussian":
        return by_name(data, num_samples=NUM_SAMPLES, dim=dim, output_dim=outputs, seed=seed)
    side = ceil(sqrt(dim))
    images = by_name(data, num_samples=NUM_SAMPLES, side=side, classes=range(outputs), standardise=True)
    return Data(images.inputs[:, :dim], images.targets)


def rank_record(network: Architecture, problem: Problem) -> dict[str, Any]:
    """Predicted, printed and measured ranks of the three Hessians, and the ranks of the data.

    ``predicted`` has the kind of its truth: the strongest for linear networks, an upper bound for others.
    ``printed`` are the paper's bounds, those of the linear network for others too; ``error_at_printed`` is the relative
    Frobenius error of the best approximation of that rank.
    """
    from hessmap.measurement import numerical_rank, reconstruction_error
    from hessmap.theory import predict_ranks

    known, are_decidable = data_ranks(problem, bias=False)
    loss, size = problem.loss.name, network.num_parameters
    prediction = predict_ranks(network, loss, **known, kind=None if network.is_linear else "upper_bound")
    predicted = {part: getattr(prediction, part) for part in PARTS}
    bounds = printed_bounds(network, loss)._asdict()
    spectra = hessian_spectra(problem)
    measured = {part: numerical_rank(spectra[part]) for part in PARTS}
    errors = {part: reconstruction_error(spectra[part], [min(bounds[part], size)]).errors for part in PARTS}
    return {
        "num_parameters": size,
        "data_ranks": {**known, "are_decidable": are_decidable},
        "predicted": predicted,
        "printed": bounds,
        "measured": measured,
        "measured_fraction": {part: rank.value / size for part, rank in measured.items()},
        "error_at_printed": {part: float(error[0]) for part, error in errors.items()},
    }


def seconds(case: Case) -> float:
    """Three dense spectra, cubic in the number of parameters."""
    from hessmap.networks import parse_network

    return 0.2 + 0.8 * float(parse_network(case["network"]).num_parameters / 1000) ** 3


@singledispatch
def printed_bounds(network: object, loss: str) -> HessianRanks:
    """The bounds for a network without padding, K - 1 standing for the K outputs under cross-entropy."""
    must = "the paper's bounds are for fully connected, locally connected and convolutional networks"
    raise UnsupportedNetwork(sentence(must, f"got a {type(network).__name__}"))


@printed_bounds.register
def _(network: Convolutional, loss: str) -> HessianRanks:
    """Theorems 7 and 8 for one hidden layer, 5 and 6 for more; their sum for the loss Hessian (Section 6)."""
    outputs = effective_output_dim(network.outputs, loss)
    if len(network.kernels) == 1:
        net = OneHiddenConvolution(
            network.input_length,
            kernel=network.kernels[0],
            filters=network.channels[1],
            outputs=outputs,
            channels=network.channels[0],
            stride=network.strides[0],
        )
        outer, functional = printed.theorem_7(net), printed.theorem_8(net)
    else:
        sizes, parameters = deep_bounds.convolutional_sizes(
            network.input_length, network.channels, network.kernels, outputs, network.strides
        )
        outer = deep_bounds.outer_product_upper_bound(sizes, parameters)
        functional = printed.theorem_6(sizes, parameters)
    return HessianRanks(outer, functional, outer + functional)


@printed_bounds.register
def _(network: LocallyConnected, loss: str) -> HessianRanks:
    """Theorem 9 or, with shared weights, 10, and their sum."""
    ranks = local.shared_weights_ranks if network.shared_weights else local.locally_connected_ranks
    outputs = effective_output_dim(network.outputs, loss)
    outer, functional, _ = ranks(network.patches, network.patch_size, network.filters, outputs)
    return HessianRanks(outer, functional, outer + functional)


@printed_bounds.register
def _(network: FullyConnected, loss: str) -> HessianRanks:
    """The ranks that Appendix C.4.1 takes from Singh, Bachmann & Hofmann 2021."""
    dim, outputs = network.input_dim, effective_output_dim(network.output_dim, loss)
    return linear.hessian_ranks((*network.widths[:-1], outputs), input_rank=dim, residual_rank=min(dim, outputs))


def sweep_figures(
    x: str,
    x_label: str,
    series: Mapping[str, tuple[Series, ...]],
    where: Mapping[str, Any] | None = None,
    note: str = "",
    reading: Reading = READING,
    **options: Any,
) -> Iterator[Lines]:
    """The ranks over ``x``, a figure for each data set and setting; ``series`` has those of each activation.

    ``where`` keeps some of the rows, of which ``note`` says in the title what they are.
    """
    for data in DATA:
        for setting in settings(data):
            activation, loss = setting["activation"], setting["loss"]
            yield Lines(
                title=f"{ACTIVATIONS[activation]}, {LOSSES[loss]}, {data.replace('_', '-')}{note}",
                where={"data": data, **setting, **(where or {})},
                x=x,
                series=series[activation],
                x_label=x_label,
                y_label="rank",
                reading=reading,
                **options,
            )


def rows_with_activation(rows: Sequence[Row], activation: str) -> list[Row]:
    return [row for row in rows if row["activation"] == activation]


def is_equal(measured: str, printed: str) -> Callable[[Row], bool]:
    """Whether a measured rank of a row is the printed one."""
    return lambda row: row.number(measured) == row.number(printed)


def printed_bounds_claim(rows: Sequence[Row]) -> Claim:
    """Linear networks are within the paper's bounds; how many ranks reach them."""
    linear = rows_with_activation(rows, "identity")
    pairs = [(row.number(f"measured.{part}"), row[f"printed.{part}"]) for row in linear for part in PARTS]
    num_reached = sum(measured == bound for measured, bound in pairs)
    detail = f"{{right}} of {{total}} ranks are within them, {num_reached} reach them"
    return Claim.about("printed-bounds", "Linear: the paper's bounds hold", pairs, lambda pair: le(*pair), detail)


def above_linear_bounds_claim(rows: Sequence[Row]) -> Claim:
    """ReLU networks are not within them; ``error_at_printed`` says how much of the Hessian is beyond."""
    relu = rows_with_activation(rows, "relu")

    def is_beyond(row: Row, part: str) -> bool:
        return row.number(f"measured.{part}") > row.number(f"printed.{part}")

    beyond = {part: [row for row in relu if is_beyond(row, part)] for part in PARTS}
    counts = ", ".join(f"{NAMES[part]} in {len(found)}" for part, found in beyond.items())
    missed = max((row["error_at_printed.loss"] for row in beyond["loss"]), default=0.0)
    detail = f"{counts} of {len(relu)} cases; at most {100 * missed:.2g} % of H_L (Frobenius) is beyond"
    return Claim.about(
        "relu-above-linear-bounds",
        "ReLU: ranks are above the bounds of linear networks",
        relu,
        lambda row: any(is_beyond(row, part) for part in PARTS),
        detail,
        needs="some",
    )
