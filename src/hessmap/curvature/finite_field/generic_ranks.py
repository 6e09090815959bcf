"""The ranks of generic data: those that were asked for, the generic value for the others, and whether they can be."""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.curvature.finite_field.chain import Chain
from hessmap.curvature.finite_field.field_array import FieldArray
from hessmap.errors import require


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
        "residual_rank is for linear networks: elsewhere the Hessian is no function of sum residual input^T",
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
