"""The ranks of one problem, of any network: those of its data that formulas take, and of its three Hessians."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hessmap.results import PARTS, Part
from hessmap.studies.hessian_spectra import hessian_spectra

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.results import RankMeasurement


def measured_ranks(problem: Problem) -> dict[Part, RankMeasurement]:
    """The numerical ranks of the three Hessians, relative to the norm of the loss Hessian."""
    from hessmap.measurement import numerical_rank

    spectra = hessian_spectra(problem)
    return {part: numerical_rank(spectra[part]) for part in PARTS}


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
