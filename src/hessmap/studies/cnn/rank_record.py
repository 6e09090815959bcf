"""One network on one data set: the ranks that theory gives, the paper's bounds, and the ranks that are measured.

Images are scaled down by area means and flattened row by row; a network with fewer inputs than pixels leaves the last
ones out. The first 300 samples are standardised pixel by pixel, and smaller sample sizes are the first of these. The
ranks of the data that enter the formulas are measured on these data; none is assumed. The paper names data, loss and
depth, but no sizes: they are chosen so that the inputs have full rank, which the formulas ask for.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS
from hessmap.studies import Case
from hessmap.studies.cnn.printed_bounds import printed_bounds
from hessmap.studies.hessian_spectra import hessian_spectra
from hessmap.studies.problem_ranks import data_ranks

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.datasets import Data
    from hessmap.networks import Architecture

NUM_SAMPLES = 300


def measure(case: Case) -> dict[str, Any]:
    """The record of a case with the fields data, network, loss and seed, and perhaps num_samples."""
    return rank_record(*network_and_problem(case))


def network_and_problem(case: Case) -> tuple[Architecture, Problem]:
    """The network of a case with Gaussian weights, and its data: the first ``num_samples`` of a standardised pool."""
    from hessmap.curvature import Problem
    from hessmap.networks import parse_network

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

    ``predicted`` has the kind of its truth: exact or an upper bound for linear networks, an upper bound for others.
    ``printed`` are the paper's bounds, those of the linear network for others too; ``error_at_printed`` is the relative
    Frobenius error of the best approximation of that rank.
    """
    from hessmap.measurement import numerical_rank, reconstruction_error
    from hessmap.theory import predict_ranks

    found = data_ranks(problem, bias=False)
    known: dict[str, Any] = {name: rank.value for name, rank in found.items()}
    loss, size = problem.loss.name, network.num_parameters
    prediction = predict_ranks(network, loss, **known, kind=None if network.is_linear else "upper_bound")
    predicted = {part: getattr(prediction, part) for part in PARTS}
    printed = printed_bounds(network, loss)._asdict()
    spectra = hessian_spectra(problem)
    measured = {part: numerical_rank(spectra[part]) for part in PARTS}
    errors = {part: reconstruction_error(spectra[part], [min(printed[part], size)]).errors for part in PARTS}
    return {
        "num_parameters": size,
        "data_ranks": {**known, "are_decidable": all(rank.decidable for rank in found.values())},
        "predicted": {part: {"value": rank.value, "kind": rank.kind} for part, rank in predicted.items()},
        "printed": printed,
        "measured": measured,
        "measured_fraction": {part: rank.value / size for part, rank in measured.items()},
        "error_at_printed": {part: float(error[0]) for part, error in errors.items()},
    }


def seconds(case: Case) -> float:
    """Three dense spectra, cubic in the number of parameters."""
    from hessmap.networks import parse_network

    return 0.2 + 0.8 * float(parse_network(case["network"]).num_parameters / 1000) ** 3
