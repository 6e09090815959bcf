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
from hessmap.studies import Case, Check

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.networks import FullyConnected
    from hessmap.results import RankMeasurement

NUM_SAMPLES = 300
SYMBOLS = {"outer_product": "$H_o$", "functional": "$H_f$", "loss": "$H_L$"}
RANK_CHECKS = tuple(Check(f"measured.{part}", f"predicted.{part}") for part in PARTS)


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


def measured_ranks(problem: Problem) -> dict[str, RankMeasurement]:
    """The numerical ranks of the three Hessians, relative to the norm of the loss Hessian."""
    from hessmap.curvature import functional_hessian, loss_hessian, outer_product_hessian
    from hessmap.measurement import numerical_rank

    hessians = (outer_product_hessian, functional_hessian, loss_hessian)
    return {part: numerical_rank(hessian(problem)) for part, hessian in zip(PARTS, hessians, strict=True)}


def data_ranks(problem: Problem, bias: bool) -> dict[str, RankMeasurement]:
    """What ``predict_ranks`` asks of the data: ranks of the inputs, of the centred inputs, and of the residual moment.

    The residual moment is the mean of residual x^T; with bias, of residual (x - mean, 1)^T.
    """
    import torch

    from hessmap.measurement import numerical_rank

    inputs, residuals = problem.inputs, problem.weights[:, None] * problem.residuals()
    centred = inputs - problem.weights @ inputs
    moment = residuals.T @ (torch.column_stack([centred, inputs.new_ones(len(inputs))]) if bias else inputs)
    matrices = {"input_rank": inputs, "centred_input_rank": centred, "residual_rank": moment}
    return {name: numerical_rank(matrix) for name, matrix in matrices.items()}


def mean_residual_is_zero(problem: Problem) -> bool:
    """Whether the residuals cancel over the samples, to rounding: the last bias is then stationary."""
    from hessmap.measurement import numerical_rank

    residuals = problem.weights[:, None] * problem.residuals()
    return numerical_rank(residuals.sum(0)[:, None], scale=float(residuals.norm())).value == 0
