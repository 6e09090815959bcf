"""A chain evaluated: over GF(P), with the derivatives of every activation, and in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.exact.activation_patterns import Pattern
from hessmap.exact.field import FieldArray, from_floats, from_integers, ones, sums_by_place, where, zeros
from hessmap.exact.network import (
    Chain,
    ExactActivation,
    Floats,
    Identity,
    LeakyRelu,
    MaxPool,
    field_patches,
    layer_outputs,
    layer_patches,
)
from hessmap.networks import Polynomial
from hessmap.problem import Indices

_UNITS = 2.0**12  # of rounding that a sum may be off by


@dataclass(frozen=True, eq=False)
class Selection:
    """``choices`` (num_samples, num_outputs) among ``num_units`` units; the derivative is of zeros and ones.

    Attributes:
        choices: Chosen unit (num_samples, num_outputs).
        num_units: Number of units to choose from.
    """

    choices: Indices
    num_units: int

    def __getitem__(self, samples: slice) -> Selection:
        return Selection(self.choices[samples], self.num_units)

    def forward(self, values: FieldArray) -> FieldArray:
        """The chosen rows of (num_samples or 1, num_units, ..)."""
        rows = np.arange(len(self.choices))[:, None] if len(values) > 1 else np.zeros((1, 1), dtype=np.int64)
        return values[rows, self.choices]

    def backward(self, gradients: FieldArray) -> FieldArray:
        """Gradients (num_samples, num_outputs) at the units that were chosen, added up, zero at the others."""
        num_samples = len(gradients)
        places = np.arange(num_samples)[:, None] * self.num_units + self.choices
        total = sums_by_place(gradients.reshape(-1), places.ravel(), num_samples * self.num_units)
        return total.reshape(num_samples, self.num_units)


Slope = FieldArray | Selection | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """For every sample: the patches of each layer, first and second derivatives of each activation at its
    pre-activations (None: one and zero everywhere; a maximum has a Selection), and the outputs.

    Attributes:
        patches: Patches of each layer.
        slopes: First derivative of each activation at its pre-activations; None for one, a ``Selection`` for a maximum.
        curvatures: Second derivative of each activation at its pre-activations; None for zero.
        outputs: Outputs of the network.
    """

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
    maximum.

    Args:
        chain: The network.
        inputs: Inputs, one row per sample.
        patterns: Signs where an activation has a kink, choices where it is a maximum.

    Returns:
        Patches, derivatives and outputs.
    """
    patches, slopes, curvatures = [], [], []
    *hidden, last = chain.layers
    current = inputs
    for layer, activation, pattern in zip(hidden, chain.activations, patterns, strict=True):
        patches.append(field_patches(layer, current))
        current, slope, curvature = _activate(activation, layer_outputs(layer.weights, patches[-1]), pattern)
        slopes.append(slope)
        curvatures.append(curvature)
    patches.append(field_patches(last, current))
    outputs = layer_outputs(last.weights, patches[-1])
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
        return selection.forward(values), selection, None
    if isinstance(activation, LeakyRelu):
        assert pattern is not None
        below = from_floats(values.field, np.array([[activation.slope]]))
        slope = where(pattern.astype(np.bool_), ones(values.field, 1, 1), below)
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


def float_outputs(chain: Chain[Floats], inputs: Floats) -> Floats:
    """The outputs (num_samples, output_dim) of inputs (num_samples, input_dim), to rounding."""
    values = inputs
    for place, layer in enumerate(chain.layers):
        values = layer_outputs(layer.weights, layer_patches(layer, values)) / layer.divisor
        activation = chain.activations[place] if place < len(chain.activations) else None
        if isinstance(activation, LeakyRelu):
            values = np.where(values > 0, values, activation.slope * values)
        elif isinstance(activation, Polynomial):
            values = np.polynomial.polynomial.polyval(values, np.array(activation.coefficients))
        elif isinstance(activation, MaxPool):
            values = np.where(activation.windows >= 0, values[:, activation.windows], -np.inf).max(axis=2)
    return values


def require_outputs(chain: Chain[Floats], inputs: Floats, expected: Floats, rounding: float, remedy: str) -> None:
    """The chain that was read computes what the model does, to rounding: nothing that changes it can hide.

    Args:
        chain: The network.
        inputs: Inputs, one row per sample.
        expected: First and last depth at which recovery is expected, or None.
        rounding: Unit roundoff of the model's number format.
        remedy: Advice of the error message.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``rounding`` is that of the model's number format. It is relative to the terms of a sum, and outputs may be far
        smaller than these.
    """
    found = float_outputs(chain, inputs)
    is_same = found.shape == expected.shape
    agreement = rounding**0.5
    if is_same and not np.allclose(found, expected, agreement, agreement * float(np.abs(expected).max())):
        terms = float_outputs(_of_magnitudes(chain), np.abs(inputs))
        is_same = bool((np.abs(found - expected) <= _UNITS * rounding * terms).all())
    if not is_same:
        must = "the model must compute what its layers, applied one after another, compute"
        raise UnsupportedNetwork(sentence(must, "its outputs differ from theirs", remedy))


def _of_magnitudes(chain: Chain[Floats]) -> Chain[Floats]:
    """The chain of the absolute values: its outputs on those of the inputs bound all terms of the sums."""
    layers = tuple(replace(layer, weights=np.abs(layer.weights)) for layer in chain.layers)
    activations = []
    for activation in chain.activations:
        if isinstance(activation, LeakyRelu) and abs(activation.slope) > 1:
            activation = Polynomial((0, abs(activation.slope)))
        elif isinstance(activation, Polynomial):
            activation = Polynomial(tuple(map(abs, activation.coefficients)))
        activations.append(activation)
    return replace(chain, layers=layers, activations=tuple(activations))
