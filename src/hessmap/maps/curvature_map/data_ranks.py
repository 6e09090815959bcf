"""The integers that the rank formulas need of the data, measured."""

from __future__ import annotations

import torch

from hessmap.curvature import Problem
from hessmap.measurement import numerical_rank
from hessmap.results.maps import DataRankMeasurement

# Relative to the root mean square of the residuals; the same cut as for ranks.
_ZERO = 1e-12


def measured_data_ranks(problem: Problem) -> DataRankMeasurement:
    """Ranks of the inputs and of the moment of residuals and inputs, each from singular values.

    ``residual_rank`` is that of sum w delta x^T, ``residual_rank_with_bias`` that of [Omega_c, omega]: the
    moment against centred inputs, and the mean residual beside it.
    """
    inputs = problem.inputs.flatten(1)
    weights = problem.weights[:, None]
    residuals = problem.residuals()
    centred = inputs - (weights * inputs).sum(0)
    mean_residual = (weights * residuals).sum(0)
    spread = float((weights * residuals.square()).sum().sqrt())
    return DataRankMeasurement(
        input_rank=numerical_rank(weights.sqrt() * inputs),
        centred_input_rank=numerical_rank(weights.sqrt() * centred, scale=_norm(weights.sqrt() * inputs)),
        residual_rank=numerical_rank(residuals.T @ (weights * inputs)),
        residual_rank_with_bias=numerical_rank(
            torch.hstack([residuals.T @ (weights * centred), mean_residual[:, None]])
        ),
        mean_residual_is_zero=float(mean_residual.norm()) <= _ZERO * spread,
    )


def _norm(matrix: torch.Tensor) -> float | None:
    """The spectral norm, None where it is zero and a matrix must be its own scale."""
    return float(torch.linalg.matrix_norm(matrix, 2)) or None
