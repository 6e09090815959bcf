"""The map in one call: ranks predicted and measured, spectra, layers, verdicts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from hessmap.curvature import Problem
from hessmap.curvature.losses import AnyLoss
from hessmap.maps.curvature_map.linear_twin import linear_twin
from hessmap.maps.curvature_map.network import Progress, network_curvature
from hessmap.maps.curvature_map.verdicts import verdicts
from hessmap.results.maps import CurvatureMap


def curvature_map(
    model: nn.Module,
    data: tuple[Tensor, Tensor] | Iterable[Any],
    loss: AnyLoss = "cross_entropy",
    *,
    twin: bool = True,
    certify: bool | None = None,
    title: str = "",
    progress: Progress | None = None,
) -> CurvatureMap:
    """Measure the three Hessians of a model on data, beside what theory predicts of them.

    Where the model is a chain of linear layers with activations, its linear twin (same weights and data, no
    activations) is mapped too unless ``twin`` is False: the ranks of the twin are a theorem, and the measured
    ones must equal them. All Hessians are formed densely; a model too large for it is refused with the bytes.

    ``certify`` asks for ranks in exact arithmetic as well, which networks of linear layers with identity, ReLU
    or polynomial activations under squared loss have: True for all, None for those whose measured value is not
    decidable while the network is small, False for none.
    ``data`` is (inputs, targets) or a loader; ``progress`` is told in words what is done next.
    """
    say = progress or _silent
    problem = _problem(model, loss, data)
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


def _problem(model: nn.Module, loss: AnyLoss, data: tuple[Tensor, Tensor] | Iterable[Any]) -> Problem:
    """A pair of tensors is inputs and targets; anything else is read as a loader."""
    if isinstance(data, tuple | list) and len(data) == 2 and all(isinstance(item, Tensor) for item in data):
        return Problem(model, loss, *data)
    return Problem(model, loss, data)


def _silent(text: str) -> None:
    pass
