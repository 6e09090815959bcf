"""Generic data of given ranks, and generic derivatives of a loss by the outputs, drawn from the field.

Everything is a polynomial in independent uniform elements, so the rank of what is made from it is the generic real
one except with the probability that its height states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hessmap.errors import require
from hessmap.exact.field import FieldArray, PrimeField, concatenate, identity, ones, random_array, zeros
from hessmap.exact.hessian import OutputDerivatives
from hessmap.exact.network import Chain


@dataclass(frozen=True)
class GenericRanks:
    """Numbers that fix generic data: samples, rank of the inputs, of the centred inputs, and of the residual moment
    (Omega, or [Omega_c, omega] for a network with bias), each at most what the others allow."""

    num_samples: int
    input_rank: int
    centred_input_rank: int
    residual_rank: int
    is_residual_generic: bool
    mean_residual_is_zero: bool


def generic_ranks(
    chain: Chain[FieldArray],
    num_residuals: int,
    *,
    input_rank: int | None,
    centred_input_rank: int | None,
    residual_rank: int | None,
    mean_residual_is_zero: bool,
    num_samples: int | None,
) -> GenericRanks:
    """The given ranks, completed by generic ones; InvalidInput where no data can have them.

    ``num_residuals`` is the number of free residuals of a sample: the outputs, one less for softmax.
    """
    require(
        residual_rank is None or chain.is_linear,
        "residual_rank is for linear networks: elsewhere the Hessian is not a function of sum residual input^T",
        f"residual_rank is {residual_rank}",
        "Leave it out, and the residuals are generic",
    )
    samples = _num_samples(chain, num_samples, input_rank, centred_input_rank)
    rank = _input_rank(chain.input_dim, samples, input_rank, centred_input_rank)
    centred = min(rank, samples - 1) if centred_input_rank is None else centred_input_rank
    require(
        0 <= centred <= rank <= centred + 1 <= samples,
        "centred inputs have the rank of the inputs or one less, and at most num_samples - 1",
        f"the ranks are {centred} and {rank}, of {samples} samples",
    )
    reach = centred if mean_residual_is_zero else centred + 1 if chain.has_bias else rank
    highest = min(num_residuals, reach)
    residual = highest if residual_rank is None else residual_rank
    require(
        0 <= residual <= highest,
        f"residual_rank can be at most {highest} here, by the outputs and the rank of the inputs",
        f"it is {residual}",
    )
    return GenericRanks(samples, rank, centred, residual, residual == highest, mean_residual_is_zero)


def _num_samples(chain: Chain[FieldArray], given: int | None, input_rank: int | None, centred: int | None) -> int:
    if given is not None:
        require(given >= 1, "num_samples must be at least 1", f"it is {given}")
        return given
    largest = max(chain.input_dim, input_rank or 0, centred or 0) + chain.output_dim + 1
    return largest if chain.is_linear else max(largest, chain.num_parameters)


def _input_rank(input_dim: int, num_samples: int, given: int | None, centred: int | None) -> int:
    highest = min(input_dim, num_samples)
    if given is None:
        return highest if centred is None else min(centred + 1, highest)
    require(
        0 <= given <= highest,
        f"input_rank can be at most {highest}, for {input_dim} inputs and {num_samples} samples",
        f"it is {given}",
    )
    return given


def random_inputs(ranks: GenericRanks, input_dim: int, field: PrimeField, generator: np.random.Generator) -> FieldArray:
    """Inputs (num_samples, input_dim) in a subspace (centred rank = rank), or in an affine space that misses the
    origin (centred rank = rank - 1)."""
    codes = random_array(field, generator, ranks.num_samples, ranks.centred_input_rank)
    if ranks.centred_input_rank < ranks.input_rank:
        codes = concatenate([ones(field, ranks.num_samples, 1), codes], axis=1)
    return codes @ random_array(field, generator, ranks.input_rank, input_dim)


def random_residuals(
    ranks: GenericRanks, output_dim: int, sum_is_zero: bool, field: PrimeField, generator: np.random.Generator
) -> FieldArray:
    """Residuals (num_samples, output_dim) with as many directions as the residual rank, all of them if it is generic.

    Their sum over the samples vanishes where asked; ``sum_is_zero``: so does that over the outputs (softmax).
    """
    num_free = output_dim - sum_is_zero
    num_directions = num_free if ranks.is_residual_generic else ranks.residual_rank
    codes = random_array(field, generator, ranks.num_samples - ranks.mean_residual_is_zero, num_directions)
    directions = random_array(field, generator, num_directions, num_free)
    if ranks.mean_residual_is_zero:
        codes = concatenate([codes, minus_sum(codes.mT).mT], axis=0)
    if sum_is_zero:
        directions = concatenate([directions, minus_sum(directions)], axis=1)
    return codes @ directions


def random_derivatives(
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
    some = random_array(field, generator, num_samples, output_dim - 1)
    probabilities = concatenate([some, ones(field, num_samples, 1) + minus_sum(some)], axis=1)
    outer = probabilities[:, :, None] * probabilities[:, None, :]
    return OutputDerivatives(residuals, identity(field, output_dim) * probabilities[:, None, :] - outer)


def minus_sum(rows: FieldArray) -> FieldArray:
    """Minus the sum of every row, as a column."""
    return zeros(rows.field, len(rows), 1) - rows @ ones(rows.field, rows.shape[1], 1)
