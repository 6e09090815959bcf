"""A chain evaluated over GF(P): what every layer sees, and the derivatives of every activation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hessmap.curvature.finite_field.chain import Chain, ExactActivation, Identity, LeakyRelu, MaxPool
from hessmap.curvature.finite_field.field_array import FieldArray, from_floats, from_integers, ones, selected, zeros
from hessmap.curvature.finite_field.layer_maps import applied, seen_in_field
from hessmap.curvature.finite_field.selection import Selection
from hessmap.curvature.finite_field.signs import Pattern

Slope = FieldArray | Selection | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """For every sample: the patches that each layer sees, first and second derivatives of each activation at its
    pre-activations (None: one and zero everywhere; a maximum has a Selection), and the outputs."""

    patches: tuple[FieldArray, ...]
    slopes: tuple[Slope, ...]
    curvatures: tuple[FieldArray | None, ...]
    outputs: FieldArray

    def __len__(self) -> int:
        return len(self.outputs)

    def __getitem__(self, samples: slice) -> Evaluation:
        patches = tuple(array[samples] for array in self.patches)
        slopes = tuple(None if slope is None else slope[samples] for slope in self.slopes)
        curvatures = tuple(None if array is None else array[samples] for array in self.curvatures)
        return Evaluation(patches, slopes, curvatures, self.outputs[samples])


def evaluate(chain: Chain[FieldArray], inputs: FieldArray, patterns: Sequence[Pattern | None]) -> Evaluation:
    """The forward pass; ``patterns`` holds the signs where an activation has a kink, the choices where it is a
    maximum."""
    patches, slopes, curvatures = [], [], []
    *hidden, last = chain.layers
    current = inputs
    for layer, activation, pattern in zip(hidden, chain.activations, patterns, strict=True):
        patches.append(seen_in_field(layer, current))
        current, slope, curvature = _activate(activation, applied(layer.weights, patches[-1]), pattern)
        slopes.append(slope)
        curvatures.append(curvature)
    patches.append(seen_in_field(last, current))
    outputs = applied(last.weights, patches[-1])
    return Evaluation(tuple(patches), tuple(slopes), tuple(curvatures), outputs)


def _activate(
    activation: ExactActivation, values: FieldArray, pattern: Pattern | None
) -> tuple[FieldArray, Slope, FieldArray | None]:
    """Value, first and second derivative."""
    if isinstance(activation, Identity):
        return values, None, None
    if isinstance(activation, MaxPool):
        assert pattern is not None
        selection = Selection(pattern.astype(np.int64), values.shape[1])
        return selection.chosen(values), selection, None
    if isinstance(activation, LeakyRelu):
        assert pattern is not None
        below = from_floats(values.field, np.array([[activation.slope]]))
        slope = selected(pattern.astype(np.bool_), ones(values.field, 1, 1), below)
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
