"""The map in one call: ranks predicted and measured, spectra, layers, verdicts; above the dense limit, estimates."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from hessmap.curvature import Problem
from hessmap.curvature.losses import AnyLoss
from hessmap.errors import require
from hessmap.maps.curvature_map.estimates import curvature_estimates
from hessmap.maps.curvature_map.linear_twin import linear_twin
from hessmap.maps.curvature_map.network import MapPlan, Progress, network_curvature
from hessmap.maps.curvature_map.verdicts import verdicts
from hessmap.results.map_estimates import CurvatureEstimates
from hessmap.results.maps import CurvatureMap


def curvature_map(
    model: nn.Module | Problem,
    data: Any = None,
    loss: AnyLoss | None = None,
    *,
    twin: bool = True,
    certify: bool | None = None,
    title: str = "",
    progress: Progress | None = None,
    seed: int = 0,
) -> CurvatureMap | CurvatureEstimates:
    """Measure the three Hessians of a model on data, or of a Problem, beside what theory predicts of them.

    Where the model is a chain of linear layers with activations, its linear twin (same weights and data, no
    activations) is mapped too unless ``twin`` is False: the ranks of the twin are a theorem, and the measured
    ones must equal them. All Hessians are formed densely, in float64. Where they do not fit the memory, or the problem
    is in another number format, the result is a ``CurvatureEstimates``: sharpness, trace, density and the layers, from
    products with random vectors of ``seed``.

    ``certify`` asks for ranks in exact arithmetic as well, which networks of linear layers with identity, ReLU
    or polynomial activations under squared loss have: True for all, None for those whose measured value is not
    decidable while the network is small, False for none.
    ``data`` is all that a Problem takes; the ``loss`` is cross-entropy unless another is given. ``progress`` gets in
    words what is done next.

    >>> import hessmap as hm
    >>> model = hm.FullyConnected((6, 4, 3)).build(seed=0)
    >>> made = hm.map(model, hm.datasets.gaussian(30, 6, output_dim=3), loss="squared")
    >>> [part.rank == part.prediction.value for part in made.network.parts]
    [True, True, True]
    """
    say = progress or _no_progress
    problem = _problem(model, data, loss)
    reason = _why_not_dense(problem)
    if reason:
        return curvature_estimates(problem, reason, title, say, seed)
    network = network_curvature(problem, "network", say, certify)
    twin_problem = linear_twin(problem) if twin else None
    other = None
    if twin_problem is not None:
        other = network_curvature(twin_problem, "linear twin", say, certify, with_factors=False)
    return CurvatureMap(
        title=title or f"{network.description}, {network.loss} loss, {network.num_samples:,} samples",
        network=network,
        linear_twin=other,
        verdicts=verdicts(network, other),
        provenance=problem.provenance,
    )


def _problem(model: nn.Module | Problem, data: Any, loss: AnyLoss | None) -> Problem:
    if not isinstance(model, Problem):
        require(data is not None, "a map needs a Problem, or a model and data", "data is missing")
        return Problem(model, "cross_entropy" if loss is None else loss, data)
    given = " and ".join(name for name, value in (("data", data), ("loss", loss)) if value is not None)
    require(not given, "a Problem has its own data and loss", f"{given} was given as well", "Leave it out")
    return model


def _why_not_dense(problem: Problem) -> str:
    """Why the Hessians are not formed; empty where they are."""
    if problem.dtype != torch.float64:
        number_format = str(problem.dtype).removeprefix("torch.")
        return f"the problem is in {number_format}, and dense Hessians are in float64"
    return MapPlan(problem.num_parameters, problem.num_samples).excess


def _no_progress(text: str) -> None:
    """Nobody asked for it."""
