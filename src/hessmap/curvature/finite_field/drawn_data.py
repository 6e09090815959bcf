"""Generic data of given ranks, and generic derivatives of a loss by the outputs, drawn from the field.

Everything is a polynomial in independent uniform elements, so the rank of what is made from it is the generic real
one but with the probability that its height states.
"""

from __future__ import annotations

import numpy as np

from hessmap.curvature.finite_field.field_array import FieldArray, drawn, identity, joined, ones, zeros
from hessmap.curvature.finite_field.generic_ranks import GenericRanks
from hessmap.curvature.finite_field.hessian import OutputDerivatives
from hessmap.curvature.finite_field.prime_field import PrimeField


def drawn_inputs(ranks: GenericRanks, input_dim: int, field: PrimeField, generator: np.random.Generator) -> FieldArray:
    """Inputs (num_samples, input_dim) in a subspace (centred rank = rank), or in an affine space that misses the
    origin (centred rank = rank - 1)."""
    codes = drawn(field, generator, ranks.num_samples, ranks.centred_input_rank)
    if ranks.centred_input_rank < ranks.input_rank:
        codes = joined([ones(field, ranks.num_samples, 1), codes], axis=1)
    return codes @ drawn(field, generator, ranks.input_rank, input_dim)


def drawn_residuals(
    ranks: GenericRanks, output_dim: int, sum_is_zero: bool, field: PrimeField, generator: np.random.Generator
) -> FieldArray:
    """Residuals (num_samples, output_dim) with as many directions as the residual rank, all of them if it is generic.

    Their sum over the samples vanishes where asked; ``sum_is_zero``: so does that over the outputs (softmax).
    """
    num_free = output_dim - sum_is_zero
    num_directions = num_free if ranks.is_residual_generic else ranks.residual_rank
    codes = drawn(field, generator, ranks.num_samples - ranks.mean_residual_is_zero, num_directions)
    directions = drawn(field, generator, num_directions, num_free)
    if ranks.mean_residual_is_zero:
        codes = joined([codes, _minus_sum(codes.mT).mT], axis=0)
    if sum_is_zero:
        directions = joined([directions, _minus_sum(directions)], axis=1)
    return codes @ directions


def drawn_derivatives(
    loss: str, field: PrimeField, generator: np.random.Generator, residuals: FieldArray
) -> OutputDerivatives:
    """Residuals with the output Hessians that the loss gives them.

    squared: the identity. log_cosh: diag(1 - residual^2), because tanh' = 1 - tanh^2. cross_entropy: diag(p) - p p^T
    with drawn p of sum one, independent of the residuals (targets may be any distribution over the classes).
    """
    if loss == "squared":
        return OutputDerivatives(residuals)
    num_samples, output_dim = residuals.shape
    if loss == "log_cosh":
        diagonal = ones(field, 1, 1) - residuals * residuals
        return OutputDerivatives(residuals, identity(field, output_dim) * diagonal[:, None, :])
    some = drawn(field, generator, num_samples, output_dim - 1)
    probabilities = joined([some, ones(field, num_samples, 1) + _minus_sum(some)], axis=1)
    outer = probabilities[:, :, None] * probabilities[:, None, :]
    return OutputDerivatives(residuals, identity(field, output_dim) * probabilities[:, None, :] - outer)


def _minus_sum(rows: FieldArray) -> FieldArray:
    """Minus the sum of every row, as a column."""
    return zeros(rows.field, len(rows), 1) - rows @ ones(rows.field, rows.shape[1], 1)
