"""The Hessians of one layer of linear self-attention over GF(P).

A row t is a token whose output is read, with what it attends to: x_t and G_t = sum x_j x_j^T over the tokens j that
it sees. Its output is the sum over the heads of x_t^T Q K^T G_t V O, linear in each of the four matrices, so that
first derivatives leave one of them out and second derivatives two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from hessmap.curvature.finite_field.field_array import FieldArray, Height, concatenate, identity
from hessmap.curvature.finite_field.hessian import OutputDerivatives
from hessmap.curvature.memory import require_memory
from hessmap.networks.self_attention import SelfAttention
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
