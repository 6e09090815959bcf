"""One network on its data: the three Hessians formed and measured, and the predicted and certified ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require
from hessmap.hessians import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.linalg import frobenius_norm
from hessmap.maps.curvature_map.blocks import blocks_of
from hessmap.maps.curvature_map.layers import curvature_spread, layer_rows, layer_spectra, measured_factors
from hessmap.maps.curvature_map.plan import optional_part, reason_of
from hessmap.measurement import effective_dimension, numerical_rank, spectrum, top_eigenpairs
from hessmap.networks import AttentionModule, SelfAttention, describe
from hessmap.problem import Problem
from hessmap.records import (
    PARTS,
    DataRankMeasurement,
    FactorCurvature,
    LayerCurvature,
    NetworkCurvature,
    Part,
    PartCurvature,
    RankCertificate,
    RankMeasurement,
    RankPrediction,
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
    require(is_real, "the rank formulas are about inputs that are one tensor of floating-point numbers", f"got {kind}")
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
    problem: Problem, name: str, say: Progress, certify: bool | None = None, with_factors: bool = True
) -> NetworkCurvature:
    """Everything the map holds of one network whose Hessians are formed; ``say`` gets in words what is done next."""

    def say_of_network(text: str) -> None:
        say(f"{name}: {text}")

    spectra, layers, factors_gap, notes = _spectra_and_layers(problem, say_of_network, with_factors)
    ranks, gap = optional_part(lambda: measured_data_ranks(problem))
    prediction: RankPrediction | None = None
    if ranks is not None:
        prediction, gap = predicted_ranks(problem, ranks)
    measured = {part: numerical_rank(spectra[part]) for part in PARTS}
    certificates, refusal = certified_parts(problem, measured, certify, say_of_network)
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
        effective_dimension=dimension,
        data_ranks=ranks,
        prediction=prediction,
        prediction_gap=gap,
        notes=notes + ((refusal,) if refusal else ()),
        factors_gap=factors_gap,
        whole=WholeCurvature.of_spectrum(spectra["loss"], dimension),
        spread=curvature_spread(layers, float(spectra["outer_product"].eigenvalues.sum())),
    )


def _spectra_and_layers(
    problem: Problem, say: Progress, with_factors: bool
) -> tuple[dict[Part, Spectrum], tuple[LayerCurvature, ...], str, tuple[str, ...]]:
    """The three spectra, the layers, why there are no factors where there are none, and how the matrices were found;
    one dense Hessian is held at a time."""
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
    outer_product = spectrum(matrix, scale=loss.norm or None)
    del matrix
    say("spectrum of H_f")
    functional = spectrum(functional_hessian(problem).to_dense(), scale=loss.norm or None)
    spectra: dict[Part, Spectrum] = {"outer_product": outer_product, "functional": functional, "loss": loss}
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


# Elimination costs about p^3: some ten seconds per Hessian here, on one core.
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
        return predict_ranks(network, loss=problem.loss.name, **given), ""
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
        return f"the formulas are about all weights, and {fixed[0]} is frozen or left out"
    if problem.l2:
        return f"the formulas are about the risk without a penalty, and l2 is {problem.l2:g}"
    if problem.num_outputs != problem.output_dim and not isinstance(problem.model, AttentionModule):
        return f"the formulas are about one vector of outputs a sample, and there are {problem.output_shape}"
    return "" if problem.user_forward is None else "the formulas are about a model that is called with its inputs alone"


def description(model: nn.Module) -> str:
    """The architecture in words, or the name of the class where it is none that theory knows."""
    try:
        return str(describe(model))
    except UnsupportedNetwork:
        return type(model).__name__
