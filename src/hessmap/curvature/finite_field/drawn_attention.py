"""The generic layer of linear self-attention: weights, tokens and residuals drawn from the field."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np

from hessmap.curvature.finite_field.attention import MATRICES, attention_hessian, attention_rows
from hessmap.curvature.finite_field.field_array import FieldArray, concatenate, identity, random_array
from hessmap.curvature.finite_field.generic_data import drawn_derivatives, minus_sum
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.curvature.memory import require_memory
from hessmap.errors import checked_count, require
from hessmap.networks.self_attention import SelfAttention
from hessmap.records import Part


def drawn_attention_hessians(
    net: SelfAttention,
    loss: str,
    *,
    num_samples: int | None,
    num_tokens: int | None,
    input_rank: int | None,
    field: PrimeField,
    generator: np.random.Generator,
) -> tuple[Callable[[Part], FieldArray], str]:
    """The Hessians of the drawn layer on drawn tokens, by their part, and the sizes that were drawn in words.

    Residuals are drawn for every output that is read, independently of the outputs.
    """
    samples, tokens = _sizes(net, num_samples, num_tokens)
    rank = min(net.width, samples * tokens) if input_rank is None else checked_count("input_rank", input_rank, 0)
    highest = min(net.width, samples * tokens)
    must = f"input_rank can be at most {highest}, for tokens of width {net.width} and {samples * tokens} of them"
    require(rank <= highest, must, f"it is {rank}")
    num_rows = samples * (tokens if net.read == "all" else 1)
    require_memory(f"{num_rows} drawn rows", 24 * num_rows * net.width**2, "Use fewer samples or tokens")
    drawn = random_array(field, generator, samples * tokens, rank) @ random_array(field, generator, rank, net.width)
    rows = attention_rows(net, drawn.reshape(samples, tokens, net.width))
    residuals = _drawn_residuals(num_rows, net.output_dim, loss, field, generator)
    derivatives = drawn_derivatives(loss, field, generator, residuals)
    heads = [_drawn_head(net, place, field, generator) for place in range(net.heads)]
    trained = trained_matrices(net)
    words = f"{samples} samples of {tokens} tokens, of rank {rank}"
    return lambda part: attention_hessian(heads, trained, rows, derivatives, part), words


def trained_matrices(net: SelfAttention) -> tuple[str, ...]:
    """Which of ``MATRICES`` are parameters: a merged query and key is a query whose keys are the tokens themselves."""
    is_fixed = (False, net.merged_query_key, net.frozen_value, net.outputs is None)
    return tuple(name for name, fixed in zip(MATRICES, is_fixed, strict=True) if not fixed)


def output_selection(net: SelfAttention, place: int, field: PrimeField) -> FieldArray:
    """The outputs of a head among those of all, where there is no projection of them."""
    size = net.value_width
    return identity(field, net.heads * size)[place * size : (place + 1) * size]


def _sizes(net: SelfAttention, num_samples: int | None, num_tokens: int | None) -> tuple[int, int]:
    """Unless given: tokens that span the width, and samples that fix the layer as a polynomial of its tokens."""
    if num_tokens is None:
        num_tokens = 2 if num_samples is None else max(2, net.width)
    tokens = checked_count("num_tokens", num_tokens)
    if num_samples is not None:
        return checked_count("num_samples", num_samples), tokens
    width = net.width
    return (comb(width + 2, 3) if tokens == 1 else width * comb(width + 1, 2)) + 2, tokens


def _drawn_head(
    net: SelfAttention, place: int, field: PrimeField, generator: np.random.Generator
) -> dict[str, FieldArray]:
    width, keys, values = net.width, net.key_width, net.value_width
    return {
        "query": random_array(field, generator, width, keys),
        "key": identity(field, width) if net.merged_query_key else random_array(field, generator, width, keys),
        "value": random_array(field, generator, width, values),
        "output": output_selection(net, place, field)
        if net.outputs is None
        else random_array(field, generator, values, net.outputs),
    }


def _drawn_residuals(
    num_rows: int, outputs: int, loss: str, field: PrimeField, generator: np.random.Generator
) -> FieldArray:
    """One for each row and output; those of a softmax sum to zero over the outputs."""
    if loss != "cross_entropy":
        return random_array(field, generator, num_rows, outputs)
    free = random_array(field, generator, num_rows, outputs - 1)
    return concatenate([free, minus_sum(free)], axis=1)
