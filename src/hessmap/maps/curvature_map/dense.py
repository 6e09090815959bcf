"""One network on its data: the three Hessians formed and measured, and the predicted and certified ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require
from hessmap.hessians import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.linalg import frobenius_norm
from hessmap.maps.curvature_map.layers import blocks_of, curvature_spread, layer_rows, layer_spectra, measured_factors
from hessmap.maps.curvature_map.plan import optional_part, reason_of
from hessmap.measurement import effective_dimension, numerical_rank, spectrum, top_eigenpairs
from hessmap.networks import AttentionModule, Residual, SelfAttention, describe
from hessmap.problem import Problem
from hessmap.records import (
    PARTS,
    ClaimKind,
    DataRankMeasurement,
    FactorCurvature,
    LayerCurvature,
    NetworkCurvature,
    Part,
    PartCurvature,
    RankCertificate,
    RankMeasurement,
    RankPrediction,
    RankValue,
    Spectrum,
    WholeCurvature,
)
from hessmap.theory import predict_ranks

# Relative to the norm of the residuals; the same cut as for ranks.
_ZERO = 1e-12


def measured_data_ranks(problem: Problem) -> DataRankMeasurement:
    """Ranks of the inputs and of the moment of residuals and inputs, each from singular values.

    ``residual_rank`` is that of sum w delta x^T, ``residual_rank_with_bias`` that of [Omega_c, omega]: the moment
    against centred inputs, and the mean residual beside it. Samples of weight zero, or that the loss ignores, do not
    count, and the mean of the inputs is the weighted one. What cancels would be rounding against its own norm: centred
    inputs count relative to the inputs as they are, moments relative to the norms of residuals and inputs.

    Raises:
        InvalidInput: If the inputs are not one tensor of floating-point numbers. No weight matrix multiplies token
            ids or masks.
    """
    kind = problem.inputs.dtype if isinstance(problem.inputs, torch.Tensor) else type(problem.inputs).__name__
    is_real = isinstance(kind, torch.dtype) and kind.is_floating_point
    require(is_real, "the rank formulas require inputs in one tensor of floating-point numbers", f"got {kind}")
    weights = problem.weights * problem.loss.target_weights(problem.targets)
    inputs = problem.inputs.flatten(1)
    centred = inputs - weights @ inputs / weights.sum()
    roots = weights.sqrt()[:, None]
    residuals = problem.residuals()
    moments = residuals.T * problem.weights
    size_of_inputs, size_of_residuals = _norm(roots * inputs), _norm(problem.weights.sqrt()[:, None] * residuals)
    size = size_of_inputs * size_of_residuals
    mean_residual = moments.sum(1)
    with_bias = torch.column_stack([moments @ centred, size_of_inputs * mean_residual])
    return DataRankMeasurement(
        input_rank=numerical_rank(roots * inputs),
        centred_input_rank=numerical_rank(roots * centred, scale=size_of_inputs),
        residual_rank=numerical_rank(moments @ inputs, scale=size),
        residual_rank_with_bias=numerical_rank(with_bias, scale=size),
        mean_residual_is_zero=float(mean_residual.norm()) <= _ZERO * size_of_residuals,
    )


def _norm(matrix: torch.Tensor) -> float:
    """The spectral norm; 1 for a matrix of zeros, in whose units it does not matter."""
    return float(torch.linalg.matrix_norm(matrix, 2)) or 1.0


Progress = Callable[[str], object]


def network_curvature(
    problem: Problem,
    name: str,
    say: Progress,
    ranks: bool = False,
    certify: bool | None = None,
    with_factors: bool = True,
) -> NetworkCurvature:
    """All that a map contains of one network whose Hessians are formed; ``say`` is called with the next step in words.

    Without ``ranks`` H_f is not formed, and nothing is predicted or certified.
    """

    def say_of_network(text: str) -> None:
        say(f"{name}: {text}")

    spectra, layers, factors_gap, notes = _spectra_and_layers(problem, say_of_network, ranks, with_factors)
    measured = {part: numerical_rank(found) for part, found in spectra.items()}
    data_ranks, prediction, gap = _prediction(problem) if ranks else (None, None, "")
    certificates, refusal = certified_parts(problem, measured, certify, say_of_network) if ranks else ({}, "")
    dimension = effective_dimension(spectra["outer_product"], 1 / problem.num_samples)
    return NetworkCurvature(
        name=name,
        description=description(problem.model),
        loss=problem.loss.name,
        num_samples=problem.num_samples,
        num_parameters=problem.num_parameters,
        risk=problem.risk(),
        gradient_norm=frobenius_norm(problem.gradient().double().cpu().numpy()),
        parts=tuple(
            PartCurvature(part, measured[part], spectra[part], _claim(prediction, part), certificates.get(part))
            for part in PARTS
            if part in spectra
        ),
        layers=layers,
        effective_dimension=dimension,
        data_ranks=data_ranks,
        prediction=prediction,
        prediction_gap=gap,
        notes=notes + ((refusal,) if refusal else ()),
        factors_gap=factors_gap,
        whole=WholeCurvature.of_spectrum(spectra["loss"], dimension),
        spread=curvature_spread(layers, float(spectra["outer_product"].eigenvalues.sum())),
    )


def _prediction(problem: Problem) -> tuple[DataRankMeasurement | None, RankPrediction | None, str]:
    """The measured ranks of the data, the ranks predicted from them, and why there are none where there are none."""
    ranks, gap = optional_part(lambda: measured_data_ranks(problem))
    return (None, None, gap) if ranks is None else (ranks, *predicted_ranks(problem, ranks))


def _claim(prediction: RankPrediction | None, part: Part) -> RankValue | None:
    """What theory claims of a rank; a formula that is not a theorem, bound or conjecture for this network is not."""
    value: RankValue | None = None if prediction is None else getattr(prediction, part)
    return None if value is None or value.kind == "numerical" else value


def _spectra_and_layers(
    problem: Problem, say: Progress, with_functional: bool, with_factors: bool
) -> tuple[dict[Part, Spectrum], tuple[LayerCurvature, ...], str, tuple[str, ...]]:
    """The spectra, the layers, why there are no factors where there are none, and how the matrices were computed; one
    dense Hessian is in memory at a time."""
    say("spectrum of H_L and of its layers")
    hessian, blocks = loss_hessian(problem), blocks_of(problem)
    matrix, notes = hessian.to_dense(), hessian.notes
    del hessian
    loss = spectrum(matrix)
    of_layers = layer_spectra(blocks, matrix, loss.norm)
    direction, _ = optional_part(partial(_sharpest_direction, matrix)) if loss.norm > 0 else (None, "")
    factors, factors_gap = _factors(problem, matrix, say) if with_factors else ({}, "")
    say("spectrum of H_o")
    matrix = outer_product_hessian(problem).to_dense()
    diagonal = matrix.diagonal().clone()
    spectra: dict[Part, Spectrum] = {"loss": loss, "outer_product": spectrum(matrix, scale=loss.norm or None)}
    del matrix
    if with_functional:
        say("spectrum of H_f")
        spectra["functional"] = spectrum(functional_hessian(problem).to_dense(), scale=loss.norm or None)
    return spectra, tuple(layer_rows(blocks, of_layers, diagonal, direction, factors)), factors_gap, notes


def _sharpest_direction(loss: Tensor) -> NDArray[np.float64]:
    """The eigenvector of the largest eigenvalue, of length one."""
    vectors = top_eigenpairs(loss, 1, tolerance=1e-6).eigenvectors
    assert vectors is not None
    found: NDArray[np.float64] = vectors[:, 0]
    return found


def _factors(problem: Problem, loss: Tensor, say: Progress) -> tuple[dict[str, FactorCurvature], str]:
    say("factors of the layers")
    return measured_factors(problem, loss)


# Elimination costs about p^3: about ten seconds per Hessian at this size on one core.
_CHEAP_PARAMETERS = 2000


def certified_parts(
    problem: Problem,
    measured: Mapping[Part, RankMeasurement],
    certify: bool | None,
    say: Callable[[str], None],
) -> tuple[dict[Part, RankCertificate], str]:
    """The certificates that are wanted, and why there are none where exact arithmetic was asked for in vain.

    ``certify`` None asks only where the measured rank is not decidable and the network is small.
    """
    is_small = problem.num_parameters <= _CHEAP_PARAMETERS
    doubtful = tuple(part for part in PARTS if is_small and not measured[part].decidable)
    wanted = {True: PARTS, False: (), None: doubtful}[certify]
    if not wanted:
        return {}, ""
    from hessmap.exact import certified_rank

    found: dict[Part, RankCertificate] = {}
    try:
        for part in wanted:
            say(f"exact rank of the {part.replace('_', '-')} Hessian over a finite field")
            found[part] = certified_rank(problem, part)
    except Exception as error:
        is_expected = isinstance(error, UnsupportedNetwork) and not certify
        return found, "" if is_expected else f"no certified rank: {reason_of(error)}"
    return found, ""


def predicted_ranks(problem: Problem, ranks: DataRankMeasurement) -> tuple[RankPrediction | None, str]:
    """The predicted ranks for the measured data, or None and why there are none.

    The residual enters only where the formula is a theorem: for a network with activations the moment of residuals
    and inputs says nothing about the functional Hessian, and the generic value stands in.
    """
    reason = beyond_formulas(problem)
    if reason:
        return None, reason
    try:
        network = describe(problem.model)
        if isinstance(network, SelfAttention):
            return predict_ranks(network, loss=problem.loss.name, **_numbers_of_tokens(problem)), ""
        given: dict[str, Any] = {"input_rank": ranks.input_rank.value}
        if network.has_bias:
            given["centred_input_rank"] = ranks.centred_input_rank.value
        if network.is_linear:
            residual = ranks.residual_rank_with_bias if network.has_bias else ranks.residual_rank
            given["residual_rank"] = residual.value
            given["mean_residual_is_zero"] = network.has_bias and ranks.mean_residual_is_zero
            if network.has_bias and not all(network.biases):
                given["uncentred_residual_rank"] = ranks.residual_rank.value
        kind: ClaimKind | None = (
            None if network.is_linear else "numerical"
        )  # samples are few, and trained weights special
        return predict_ranks(network, loss=problem.loss.name, **given, kind=kind), ""
    except Exception as error:
        return None, reason_of(error)


def _numbers_of_tokens(problem: Problem) -> dict[str, Any]:
    """Samples and tokens; their ranks are taken for those of general position."""
    assert isinstance(problem.inputs, Tensor)
    return {"num_samples": problem.num_samples, "num_tokens": problem.inputs.shape[-2]}


def beyond_formulas(problem: Problem) -> str:
    """Why the rank formulas do not speak of a problem, whatever its network is; empty where they may."""
    fixed = [name for name, _ in problem.model.named_parameters() if name not in problem.layout.names]
    if fixed:
        return f"the formulas require all weights, but {fixed[0]} is frozen or left out"
    if problem.l2:
        return f"the formulas assume no penalty, but l2 is {problem.l2:g}"
    if problem.num_outputs != problem.output_dim and not isinstance(problem.model, AttentionModule):
        return f"the formulas assume one vector of outputs per sample, but there are {problem.output_shape}"
    return "" if problem.user_forward is None else "the formulas assume a model that is called with its inputs alone"


def description(model: nn.Module) -> str:
    """The architecture in words, or the name of the class where it is none that theory knows."""
    try:
        return str(describe(model))
    except UnsupportedNetwork:
        return type(model).__name__


def linear_counterpart(problem: Problem) -> Problem | None:
    """The network without activations: the same weights and data, and every activation replaced by the identity.

    Args:
        problem: The problem of the network.

    Returns:
        The problem of the linear network, with outputs scaled to unit mean square; None if the network is linear
        already, is not one that ``describe`` recognises, or the rank formulas do not apply to the problem.

    Notes:
        The rank formulas are theorems for it, and its weights are generic: they were trained with the activations,
        so neither residual nor gradient is small. The outputs are scaled by one factor common to all layers, which
        changes no generic rank. Without it the logits of a trained network saturate the softmax, and eigenvalues
        that are not zero are below rounding.
    """
    try:
        network = describe(problem.model)
    except UnsupportedNetwork:
        return None
    if isinstance(network, SelfAttention | Residual):
        return None
    if network.is_linear or beyond_formulas(problem) or not isinstance(problem.inputs, Tensor):
        return None
    linear = replace(network, activation="identity").build().to(problem.device)
    inputs = problem.inputs.flatten(1)
    with torch.no_grad():
        for mine, given in zip(linear.parameters(), problem.model.parameters(), strict=True):
            mine.copy_(given)
        size = float((problem.weights @ linear(inputs).square().mean(1)).sqrt())
    if size > 0:
        _scale_outputs(linear, 1 / size)
    return Problem(
        linear,
        problem.loss,
        inputs,
        problem.targets,
        weights=problem.weights,
        device=problem.device,
        memory_budget=problem.memory_budget,
    )


@torch.no_grad()
def _scale_outputs(network: nn.Sequential, factor: float) -> None:
    """Multiply the function of a linear network by a factor, evenly: each weight matrix by its L-th root, and the
    bias of layer l, which passes L - l more layers, by the power l of it."""
    layers = [layer for layer in network if isinstance(layer, nn.Linear | nn.Conv1d)]
    root = factor ** (1 / len(layers))
    for depth, layer in enumerate(layers, start=1):
        layer.weight.mul_(root)
        if layer.bias is not None:
            layer.bias.mul_(root**depth)
