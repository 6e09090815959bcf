"""Generic data of given ranks, and generic derivatives of a loss by the outputs, drawn from the field.

Everything is a polynomial in independent uniform elements, so the rank of what is made from it is the generic real
one but with the probability that its height states.
"""

from __future__ import annotations

import numpy as np

from hessmap.curvature.finite_field.field_array import FieldArray, drawn, identity, joined, ones, zeros
from hessmap.curvature.finite_field.hessian import OutputDerivatives
from hessmap.curvature.finite_field.prime_field import PrimeField


def drawn_inputs(
    field: PrimeField, generator: np.random.Generator, num_samples: int, input_dim: int, rank: int, centred_rank: int
) -> FieldArray:
    """Inputs (num_samples, input_dim) of the given rank, in a subspace (centred_rank = rank) or in an affine space
    that misses the origin (centred_rank = rank - 1)."""
    codes = drawn(field, generator, num_samples, centred_rank)
    if centred_rank < rank:
        codes = joined([ones(field, num_samples, 1), codes], axis=1)
    return codes @ drawn(field, generator, rank, input_dim)


def drawn_residuals(
    field: PrimeField,
    generator: np.random.Generator,
    num_samples: int,
    output_dim: int,
    rank: int,
    *,
    mean_is_zero: bool,
    sum_is_zero: bool,
) -> FieldArray:
    """Residuals (num_samples, output_dim) that span ``rank`` directions; their sum over the samples
    (``mean_is_zero``) or over the outputs (``sum_is_zero``, softmax) vanishes where asked."""
    codes = drawn(field, generator, num_samples - mean_is_zero, rank)
    directions = drawn(field, generator, rank, output_dim - sum_is_zero)
    if mean_is_zero:
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
