"""A chain evaluated over GF(P): what every layer receives, and the derivatives of every activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Affine, Chain, ExactActivation, Identity, LeakyRelu
from hessmap.curvature.finite_field.field_array import (
    FieldArray,
    from_floats,
    from_integers,
    joined,
    ones,
    selected,
    zeros,
)
from hessmap.curvature.finite_field.signs import Pattern


@dataclass(frozen=True, eq=False)
class Evaluation:
    """For every sample: the inputs of each layer (with the bias's one), first and second derivatives of each
    activation at its pre-activations (None: one and zero everywhere), and the outputs."""

    layer_inputs: tuple[FieldArray, ...]
    slopes: tuple[FieldArray | None, ...]
    curvatures: tuple[FieldArray | None, ...]
    outputs: FieldArray

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, samples: slice) -> Evaluation:
        def cut(arrays: Sequence[FieldArray | None]) -> tuple[FieldArray | None, ...]:
            return tuple(None if array is None else array[samples] for array in arrays)

        layer_inputs = tuple(array[samples] for array in self.layer_inputs)
        return Evaluation(layer_inputs, cut(self.slopes), cut(self.curvatures), self.outputs[samples])


def evaluate(chain: Chain[FieldArray], inputs: FieldArray, patterns: Sequence[Pattern | None]) -> Evaluation:
    """The forward pass; ``patterns`` holds the signs where an activation has a kink."""
    layer_inputs, slopes, curvatures = [], [], []
    *hidden, last = chain.layers
    current = inputs
    for layer, activation, pattern in zip(hidden, chain.activations, patterns, strict=True):
        current = _with_one(layer, current)
        layer_inputs.append(current)
        current, slope, curvature = _activate(activation, current @ layer.weights.mT, pattern)
        slopes.append(slope)
        curvatures.append(curvature)
    current = _with_one(last, current)
    layer_inputs.append(current)
    return Evaluation(tuple(layer_inputs), tuple(slopes), tuple(curvatures), current @ last.weights.mT)


def _with_one(layer: Affine[FieldArray], values: FieldArray) -> FieldArray:
    return joined([values, ones(values.field, len(values), 1)], axis=1) if layer.has_bias else values


def _activate(
    activation: ExactActivation, values: FieldArray, pattern: Pattern | None
) -> tuple[FieldArray, FieldArray | None, FieldArray | None]:
    """Value, first and second derivative."""
    if isinstance(activation, Identity):
        return values, None, None
    if isinstance(activation, LeakyRelu):
        assert pattern is not None
        slope = selected(pattern, ones(values.field, 1, 1), from_floats(values.field, np.array([[activation.slope]])))
        return values * slope, slope, None
    coefficients = from_floats(values.field, np.array(activation.coefficients))
    first = _derivative(coefficients)
    second = _derivative(first)
    return _polynomial(coefficients, values), _polynomial(first, values), _polynomial(second, values)


def _derivative(coefficients: FieldArray) -> FieldArray:
    """Ascending coefficients of the derivative; of a constant, one zero."""
    if len(coefficients) == 1:
        return zeros(coefficients.field, 1)
    return coefficients[1:] * from_integers(coefficients.field, range(1, len(coefficients)))


def _polynomial(coefficients: FieldArray, values: FieldArray) -> FieldArray:
    """Horner's rule; ``coefficients`` ascending."""
    total = zeros(values.field, *values.shape) + coefficients[-1]
    for power in range(len(coefficients) - 2, -1, -1):
        total = total * values + coefficients[power]
    return total
