"""Linear self-attention over GF(P): the Hessians of one layer, given or generic.

A row t is a token whose output is read, with what it attends to: x_t and G_t = sum x_j x_j^T over the tokens j that
it sees. Its output is the sum over the heads of x_t^T Q K^T G_t V O, linear in each of the four matrices, so that
first derivatives leave one of them out and second derivatives two.

The generic layer has weights, tokens and residuals drawn from the field.

A layer on given data is read from its module, or raises with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb

import numpy as np
from torch import Tensor, nn

from hessmap.errors import InvalidInput, UnsupportedNetwork, checked_count, require, sentence
from hessmap.exact.field import FieldArray, Height, PrimeField, concatenate, from_floats, identity, random_array
from hessmap.exact.hessian import OutputDerivatives
from hessmap.exact.network import Floats
from hessmap.exact.random_data import minus_sum, random_derivatives
from hessmap.exact.reading import RULES, tensor_inputs
from hessmap.linalg import require_memory
from hessmap.networks import AttentionModule, SelfAttention, sequential_layers
from hessmap.problem import Problem
from hessmap.records import Part

MATRICES = ("query", "key", "value", "output")


@dataclass(frozen=True, eq=False)
class AttentionRows:
    """x_t (num_rows, width) and G_t (num_rows, width, width) of the tokens that are read, sample by sample."""

    tokens: FieldArray
    moments: FieldArray


def attention_rows(net: SelfAttention, samples: FieldArray) -> AttentionRows:
    """The rows of samples (num_samples, num_tokens, width)."""
    width = samples.shape[2]
    if net.read == "last":
        return AttentionRows(samples[:, -1], samples.mT @ samples)
    num_tokens = samples.shape[1]
    if net.causal:
        moments = concatenate(
            [(samples[:, :seen].mT @ samples[:, :seen])[:, None] for seen in range(1, num_tokens + 1)], axis=1
        )
    else:
        moments = concatenate([(samples.mT @ samples)[:, None]] * num_tokens, axis=1)
    return AttentionRows(samples.reshape(-1, width), moments.reshape(-1, width, width))


@dataclass(frozen=True, eq=False)
class Head:
    """Q and K (width, key_width), V (width, value_width), O (value_width, outputs) on the given rows."""

    rows: AttentionRows
    query: FieldArray
    key: FieldArray
    value: FieldArray
    output: FieldArray

    @cached_property
    def _queries(self) -> FieldArray:
        """Q^T x_t, (num_rows, key_width)."""
        return self.rows.tokens @ self.query

    @cached_property
    def _value_inputs(self) -> FieldArray:
        """G_t K Q^T x_t, (num_rows, width): what V is applied to."""
        return (self.rows.moments @ (self._queries @ self.key.mT)[:, :, None])[:, :, 0]

    @cached_property
    def _values(self) -> FieldArray:
        """G_t V, (num_rows, width, value_width)."""
        return self.rows.moments @ self.value

    @cached_property
    def _leaving(self) -> FieldArray:
        """G_t V O, (num_rows, width, outputs)."""
        return self._values @ self.output

    @cached_property
    def _keyed_moments(self) -> FieldArray:
        """K^T G_t, (num_rows, key_width, width)."""
        return self.key.mT @ self.rows.moments

    def jacobian(self, matrix: str) -> FieldArray:
        """(num_rows * outputs, size of the matrix), its entries row by row."""
        leaving = self._leaving
        num_rows, _, outputs = leaving.shape
        if matrix == "query":
            keyed = (self.key.mT @ leaving).transpose(0, 2, 1)
            found = self.rows.tokens[:, None, :, None] * keyed[:, :, None, :]
        elif matrix == "key":
            found = leaving.transpose(0, 2, 1)[:, :, :, None] * self._queries[:, None, None, :]
        elif matrix == "value":
            found = self._value_inputs[:, None, :, None] * self.output.mT[None, :, None, :]
        else:
            passed = self._value_inputs @ self.value
            found = passed[:, None, :, None] * identity(passed.field, outputs)[None, :, None, :]
        return found.reshape(num_rows * outputs, -1)

    def second_derivatives(self, first: str, second: str, residuals: FieldArray) -> FieldArray:
        """The block of two of the matrices, in the order of ``MATRICES``, contracted with residuals (num_rows,
        outputs)."""
        entering = residuals @ self.output.mT  # (t, value_width)
        tokens, queries, values = self.rows.tokens, self._queries, self._values
        if (first, second) == ("query", "key"):
            gradient = tokens.mT @ (values @ entering[:, :, None])[:, :, 0]
            return _kronecker_with_unit(gradient, identity(gradient.field, queries.shape[1]))
        if (first, second) == ("query", "value"):
            return _token_sum(_pairs(tokens, entering), self._keyed_moments, (0, 2, 3, 1))
        if (first, second) == ("key", "value"):
            return _token_sum(_pairs(queries, entering), self.rows.moments, (2, 0, 3, 1))
        if (first, second) == ("query", "output"):
            return _token_sum(_pairs(tokens, residuals), self.key.mT @ values, (0, 2, 3, 1))
        if (first, second) == ("key", "output"):
            return _token_sum(_pairs(queries, residuals), values, (2, 0, 3, 1))
        gradient = self._value_inputs.mT @ residuals
        return _kronecker_with_unit(gradient, identity(gradient.field, entering.shape[1]), is_second_transposed=True)


def _pairs(left: FieldArray, right: FieldArray) -> FieldArray:
    """left[t, i] right[t, j]."""
    return left[:, :, None] * right[:, None, :]


def _token_sum(first: FieldArray, second: FieldArray, order: Sequence[int]) -> FieldArray:
    """sum_t first[t, i, j] second[t, k, l] as a matrix, its axes (i, j, k, l) in the given order, two and two."""
    num_rows = len(first)
    total = first.reshape(num_rows, -1).mT @ second.reshape(num_rows, -1)
    ordered = total.reshape(*first.shape[1:], *second.shape[1:]).transpose(*order)
    return ordered.reshape(ordered.shape[0] * ordered.shape[1], -1)


def _kronecker_with_unit(matrix: FieldArray, unit: FieldArray, is_second_transposed: bool = False) -> FieldArray:
    """matrix[a, c] unit[b, d] with rows (a, b) and columns (c, d), or (d, c)."""
    total = (matrix[:, None, :, None] * unit[None, :, None, :]).transpose(0, 1, 2, 3)
    total = total.transpose(0, 1, 3, 2) if is_second_transposed else total
    return total.reshape(total.shape[0] * total.shape[1], -1)


def attention_hessian(
    heads: Sequence[Mapping[str, FieldArray]],
    trained: Sequence[str],
    rows: AttentionRows,
    derivatives: OutputDerivatives,
    part: Part,
) -> FieldArray:
    """The Hessian in the trained ones of ``MATRICES``, head by head; one residual for each row."""
    layers = [Head(rows, **head) for head in heads]
    size = sum(int(np.prod(head[name].shape)) for head in heads for name in trained)
    num_rows, outputs = derivatives.residuals.shape
    require_memory(f"the exact Hessian of {size} parameters", 40 * size * (size + num_rows * outputs), "Use fewer rows")
    if part == "outer_product":
        return _outer_product(layers, trained, derivatives)
    functional = _functional(layers, trained, derivatives)
    return functional if part == "functional" else functional + _outer_product(layers, trained, derivatives)


def _outer_product(layers: Sequence[Head], trained: Sequence[str], derivatives: OutputDerivatives) -> FieldArray:
    jacobian = concatenate([layer.jacobian(name) for layer in layers for name in trained], axis=1)
    num_rows, outputs = derivatives.residuals.shape
    curved = jacobian.reshape(num_rows, outputs, -1)
    if derivatives.hessians is not None:
        curved = derivatives.hessians @ curved
    if derivatives.weights is not None:
        curved = curved * derivatives.weights[:, None, None]
    return jacobian.mT @ curved.reshape(num_rows * outputs, -1)


def _functional(layers: Sequence[Head], trained: Sequence[str], derivatives: OutputDerivatives) -> FieldArray:
    """Block diagonal over the heads: no term holds weights of two."""
    residuals = derivatives.residuals
    if derivatives.weights is not None:
        residuals = residuals * derivatives.weights[:, None]
    sizes = [int(np.prod(getattr(layer, name).shape)) for layer in layers for name in trained]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    total = np.zeros((starts[-1], starts[-1]), dtype=np.int64)
    height = Height()
    for place, layer in enumerate(layers):
        for (i, first), (j, second) in combinations(enumerate(trained), 2):
            block = layer.second_derivatives(first, second, residuals)
            height = Height.largest((height, block.height))
            here, there = (slice(*starts[place * len(trained) + k :][:2]) for k in (i, j))
            total[here, there], total[there, here] = block.residues, block.residues.T
    return FieldArray(residuals.field, total, height)


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
    derivatives = random_derivatives(loss, field, generator, residuals)
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
    """Defaults: tokens that span the width, and enough samples to fix the layer as a polynomial of its tokens."""
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


_NAMES = {"query": "q_proj_weight", "key": "k_proj_weight", "value": "v_proj_weight", "output": "out_proj.weight"}


def exact_attention_hessian(problem: Problem, part: Part, field: PrimeField) -> FieldArray:
    """A multiple of the Hessian of the risk, of the parameters of the problem, head by head."""
    model = problem.model
    assert isinstance(model, AttentionModule)
    _require_readable(problem, model)
    net = model.architecture
    samples = from_floats(field, _numbers(tensor_inputs(problem, RULES)))
    rows = attention_rows(net, samples)
    heads = _heads(model, field)
    outputs = _outputs(heads, rows.tokens, rows.moments)
    targets = from_floats(field, _numbers(problem.targets)).reshape(*outputs.shape)
    names = _NAMES | ({"query": "qk_proj_weight"} if net.merged_query_key else {})
    trained = [name for name in trained_matrices(net) if names[name] in problem.layout.names]
    derivatives = OutputDerivatives(outputs - targets, None, _row_weights(problem, len(outputs), field))
    return attention_hessian(heads, trained, rows, derivatives, part)


def _require_readable(problem: Problem, model: AttentionModule) -> None:
    """Nothing that may change what the layer computes, and no penalty: its weight against the risk is not read."""
    for child in (model, *model.children()):
        sequential_layers(child, RULES)
    must = "exact arithmetic needs linear self-attention, without softmax"
    remedy = "Use numerical_rank, or build the layer without a temperature"
    if model.temperature is not None:
        raise UnsupportedNetwork(sentence(must, f"the model is {model.extra_repr()}", remedy))
    is_plain = model.out_proj is None or (type(model.out_proj) is nn.Linear and model.out_proj.bias is None)
    shapes = {name: tuple(value.shape) for name, value in model.named_parameters()}
    has_its_sizes = all(shapes.get(name) == shape for name, shape in model.architecture.parameter_shapes.items())
    if not (is_plain and has_its_sizes):
        raise UnsupportedNetwork(sentence(must, f"the weights are not those of {model.architecture}", remedy))
    if problem.l2 != 0:
        raise InvalidInput(sentence("the exact rank of self-attention needs l2 = 0", f"it is {problem.l2}"))


def _heads(model: AttentionModule, field: PrimeField) -> list[dict[str, FieldArray]]:
    net = model.architecture
    weights = {name: from_floats(field, _numbers(value)) for name, value in model.named_parameters()}
    found = []
    for place in range(net.heads):
        keys = slice(place * net.key_width, (place + 1) * net.key_width)
        values = slice(place * net.value_width, (place + 1) * net.value_width)
        query = weights["qk_proj_weight" if net.merged_query_key else "q_proj_weight"][keys]
        key = identity(field, net.width) if net.merged_query_key else weights["k_proj_weight"][keys].mT
        output = weights["out_proj.weight"][:, values].mT if net.outputs else output_selection(net, place, field)
        found.append(dict(zip(MATRICES, (query.mT, key, weights["v_proj_weight"][values].mT, output), strict=True)))
    return found


def _outputs(heads: list[dict[str, FieldArray]], tokens: FieldArray, moments: FieldArray) -> FieldArray:
    """(num_rows, outputs), summed over the heads."""
    parts = [
        (tokens @ head["query"] @ head["key"].mT)[:, None, :] @ moments @ head["value"] @ head["output"]
        for head in heads
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total[:, 0]


def _row_weights(problem: Problem, num_rows: int, field: PrimeField) -> FieldArray | None:
    """The weights of the samples, one for each row; None where they are equal."""
    weights = _numbers(problem.weights)
    if bool((weights == weights[0]).all()):
        return None
    return concatenate([from_floats(field, weights)[:, None]] * (num_rows // len(weights)), axis=1).reshape(-1)


def _numbers(values: Tensor) -> Floats:
    return np.asarray(values.detach().cpu().double().numpy())
