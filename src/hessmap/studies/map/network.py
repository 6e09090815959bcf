"""One network on its data: the three Hessians measured, and what theory says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from hessmap.curvature import Problem, functional_hessian, loss_hessian, outer_product_hessian
from hessmap.curvature.memory import readable_bytes
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.measurement import effective_dimension, numerical_rank, spectrum
from hessmap.networks import describe
from hessmap.results import PARTS, RankPrediction
from hessmap.results.maps import DataRankMeasurement, LayerCurvature, NetworkCurvature, PartCurvature
from hessmap.studies.map.certificates import certified_parts
from hessmap.studies.map.data_ranks import measured_data_ranks
from hessmap.theory import predict_ranks

Progress = Callable[[str], None]

_HESSIANS = {"outer_product": outer_product_hessian, "functional": functional_hessian, "loss": loss_hessian}


def network_curvature(
    problem: Problem, name: str, say: Progress, certify: bool | None = None
) -> NetworkCurvature:
    """Everything the map holds of one network; ``say`` is told in words what is done next."""
    size = readable_bytes(8 * problem.num_parameters**2)
    say(f"{name}: three dense Hessians of {problem.num_parameters:,} parameters, {size} each")
    dense = {part: _HESSIANS[part](problem).to_dense() for part in PARTS}
    say(f"{name}: all eigenvalues of the three")
    loss = spectrum(dense["loss"])
    spectra = {part: spectrum(dense[part], scale=loss.norm) if part != "loss" else loss for part in PARTS}
    say(f"{name}: the block of each layer")
    layers = tuple(_layers(problem, dense["loss"], dense["outer_product"], loss.norm))
    prediction, gap = _prediction(problem, ranks := measured_data_ranks(problem))
    measured = {part: numerical_rank(spectra[part]) for part in PARTS}
    certificates, refusal = certified_parts(problem, measured, certify, lambda text: say(f"{name}: {text}"))
    return NetworkCurvature(
        name=name,
        description=_description(problem.model),
        loss=problem.loss.name,
        num_samples=problem.num_samples,
        num_parameters=problem.num_parameters,
        risk=problem.risk(),
        gradient_norm=float(problem.gradient().norm()),
        parts=tuple(
            PartCurvature(
                part,
                measured[part],
                spectra[part],
                None if prediction is None else getattr(prediction, part),
                certificates.get(part),
            )
            for part in PARTS
        ),
        layers=layers,
        effective_dimension=effective_dimension(spectra["outer_product"], 1 / problem.num_samples),
        data_ranks=ranks,
        prediction=prediction,
        prediction_gap=gap,
        notes=problem.notes + ((refusal,) if refusal else ()),
    )


def _layers(problem: Problem, loss: Tensor, outer_product: Tensor, scale: float) -> Iterator[LayerCurvature]:
    """One row per module that holds parameters, its weights and biases together."""
    places: dict[str, list[int]] = {}
    shapes: dict[str, list[str]] = {}
    for name, place in problem.layout:
        layer = name.rpartition(".")[0] or name
        places.setdefault(layer, []).extend(range(place.start, place.stop))
        shapes.setdefault(layer, []).append("×".join(map(str, problem.layout.shape(name))))
    whole = float(outer_product.trace())
    for layer, indices in places.items():
        block = loss[indices][:, indices]
        found = spectrum(block, scale=scale or None)
        yield LayerCurvature(
            name=layer,
            shape=" + ".join(shapes[layer]),
            num_parameters=len(indices),
            rank=numerical_rank(found),
            top_eigenvalue=float(found.eigenvalues[0]),
            trace=float(block.trace()),
            curvature_share=float(outer_product.diagonal()[indices].sum()) / whole if whole > 0 else 0.0,
        )


def _description(model: nn.Module) -> str:
    try:
        return str(describe(model))
    except UnsupportedNetwork:
        return type(model).__name__


def _prediction(problem: Problem, ranks: DataRankMeasurement) -> tuple[RankPrediction | None, str]:
    """The predicted ranks for the measured data, or why there are none."""
    frozen = [name for name, _ in problem.model.named_parameters() if name not in problem.layout.names]
    if frozen:
        return None, f"the formulas are about all weights, and {frozen[0]} is frozen"
    try:
        network = describe(problem.model)
        given: dict[str, Any] = {"input_rank": ranks.input_rank.value}
        if network.bias:
            given = {"centred_input_rank": ranks.centred_input_rank.value}
            given["mean_residual_is_zero"] = ranks.mean_residual_is_zero
        if network.is_linear:
            residual = ranks.residual_rank_with_bias if network.bias else ranks.residual_rank
            given["residual_rank"] = residual.value
        return predict_ranks(network, loss=problem.loss.name, **given), ""
    except (UnsupportedNetwork, InvalidInput) as error:
        return None, str(error)
