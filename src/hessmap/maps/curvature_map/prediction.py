"""What theory says of a problem's network on its data."""

from __future__ import annotations

from typing import Any

from torch import nn

from hessmap.curvature import Problem
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.networks import describe
from hessmap.results import RankPrediction
from hessmap.results.maps import DataRankMeasurement
from hessmap.theory import predict_ranks


def predicted_ranks(problem: Problem, ranks: DataRankMeasurement) -> tuple[RankPrediction | None, str]:
    """The predicted ranks for the measured data, or None and why there are none.

    The residual enters only where the formula is a theorem: for a network with activations the moment of residuals
    and inputs says nothing about the functional Hessian, and the generic value stands in.
    """
    frozen = [name for name, _ in problem.model.named_parameters() if name not in problem.layout.names]
    if frozen:
        return None, f"the formulas are about all weights, and {frozen[0]} is frozen"
    try:
        network = describe(problem.model)
        given: dict[str, Any] = {"input_rank": ranks.input_rank.value}
        if network.bias:
            given["centred_input_rank"] = ranks.centred_input_rank.value
        if network.is_linear:
            residual = ranks.residual_rank_with_bias if network.bias else ranks.residual_rank
            given["residual_rank"] = residual.value
            given["mean_residual_is_zero"] = network.bias and ranks.mean_residual_is_zero
        return predict_ranks(network, loss=problem.loss.name, **given), ""
    except (UnsupportedNetwork, InvalidInput) as error:
        return None, str(error)


def description(model: nn.Module) -> str:
    """The architecture in words, or the name of the class where it is none that theory knows."""
    try:
        return str(describe(model))
    except UnsupportedNetwork:
        return type(model).__name__
