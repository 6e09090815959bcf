"""One linear network on one data set: the ranks that theory gives for these data, and the ranks that are measured.

The ranks of the data that enter the formulas are measured on these data; none is assumed. Images are scaled down by
area means to the input dimension of the network. The first 300 samples are standardised pixel by pixel, and smaller
sample sizes are the first of these: rare pixels then weigh as much as common ones, and the smallest kept eigenvalues
stay clear of the threshold (on raw digits they come down to 1e-11 of the norm).
"""

from __future__ import annotations

from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS
from hessmap.studies import Case
from hessmap.studies.problem_ranks import data_ranks, mean_residual_is_zero, measured_ranks

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.networks import FullyConnected

NUM_SAMPLES = 300


def measure(case: Case) -> dict[str, Any]:
    """The record of a case with the fields data, widths, loss, init and seed, and perhaps bias and num_samples."""
    return rank_record(*network_and_problem(case))


def network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    """The network of a case with its weights, and its data: the first ``num_samples`` of a standardised pool."""
    from hessmap.curvature import Problem
    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected

    network = FullyConnected(case["widths"], bias=case.get("bias", False))
    side, classes = isqrt(network.input_dim), range(network.output_dim)
    pool = by_name(case["data"], num_samples=NUM_SAMPLES, side=side, classes=classes, standardise=True)
    count = case.get("num_samples", NUM_SAMPLES)
    model = network.build(seed=case["seed"], init=case["init"])
    return network, Problem(model, case["loss"], pool.inputs[:count], pool.targets[:count])


def seconds(case: Case) -> float:
    """Three dense spectra, cubic in the number of parameters."""
    num_parameters: int = sum(before * after for before, after in pairwise(case["widths"]))
    return 0.15 + 0.4 * float(num_parameters / 1000) ** 3


def rank_record(network: FullyConnected, problem: Problem) -> dict[str, Any]:
    """Predicted and measured ranks of the three Hessians, these over the number of parameters, and the data's ranks.

    ``data_ranks.are_decidable`` says whether the prediction stands on ranks of the data that are beyond doubt.
    """
    from hessmap.theory import predict_ranks

    found = data_ranks(problem, network.bias)
    known: dict[str, Any] = {name: rank.value for name, rank in found.items()}
    known["mean_residual_is_zero"] = network.bias and mean_residual_is_zero(problem)
    prediction = predict_ranks(network, problem.loss.name, **known)
    predicted = {part: int(getattr(prediction, part)) for part in PARTS}
    measured = measured_ranks(problem)
    return {
        "num_parameters": network.num_parameters,
        "data_ranks": {**known, "are_decidable": all(rank.decidable for rank in found.values())},
        "predicted": predicted,
        "measured": measured,
        "predicted_fraction": {part: rank / network.num_parameters for part, rank in predicted.items()},
        "measured_fraction": {part: rank.value / network.num_parameters for part, rank in measured.items()},
    }
