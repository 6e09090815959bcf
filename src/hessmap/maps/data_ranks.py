"""The integers that the rank formulas need of the data, measured."""

from __future__ import annotations

import torch

from hessmap.errors import require
from hessmap.measurement import numerical_rank
from hessmap.problem import Problem
from hessmap.records import DataRankMeasurement

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
    weights = problem.weights * problem.loss.mass(problem.targets)
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
