"""A chain evaluated: over GF(P), with the derivatives of every activation, and in float64.

On which side of its kink every unit is, and which of a window is the largest: rigorous in float64, and in exact
integers where that is not enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.exact.field import (
    FieldArray,
    Integers,
    from_floats,
    from_integers,
    ones,
    scaled_integers,
    sums_by_place,
    where,
    zeros,
)
from hessmap.exact.network import (
    Affine,
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

_ROUNDING = 2.0**-53
_UNDERFLOW = 2.0**-1022  # even if subnormal numbers are flushed to zero

Pattern = NDArray[np.bool_] | Indices
Mask = NDArray[np.bool_]
_UNITS = 2.0**12  # of rounding that a sum may be off by


@dataclass(frozen=True, eq=False)
class Signs:
    """Per activation: whether z > 0, (num_samples, width); of a maximum, the chosen unit, (num_samples, num_outputs);
    None where there is nothing to decide.

    Attributes:
        patterns: Per activation, whether z > 0, or the chosen unit of a maximum; None where there is nothing to decide.
        ties: Where z = 0, or where a maximum is attained more than once.
        num_exact_samples: Samples for which float64 was inconclusive.

    Notes:
        ``ties`` says where z = 0, in the same shape, and of a maximum that is attained more than once where in its
        window it is, (num_samples, num_outputs, window_size).
    """

    patterns: tuple[Pattern | None, ...]
    ties: tuple[Mask | None, ...]
    num_exact_samples: int

    @property
    def num_ties(self) -> int:
        """How many z are 0, and how many maxima are attained more than once."""
        found = (mask.any(axis=2) if mask.ndim == 3 else mask for mask in self.ties if mask is not None)
        return sum(int(mask.sum()) for mask in found)


def signs(chain: Chain[Floats], inputs: Floats) -> Signs:
    """The patterns of a chain in exact arithmetic on exact inputs; only samples in doubt pay for integers.

    Args:
        chain: The network.
        inputs: Inputs, one row per sample.

    Returns:
        Patterns and ties.
    """
    patterns, ties, doubtful = _float_patterns(chain, inputs)
    if doubtful.any():
        exact, exact_ties = _integer_patterns(chain, inputs[doubtful])
        for array, correction in zip([*patterns, *ties], [*exact, *exact_ties], strict=True):
            if array is not None and correction is not None:
                array[doubtful] = correction
    return Signs(tuple(patterns), tuple(ties), int(doubtful.sum()))


def _float_patterns(chain: Chain[Floats], inputs: Floats) -> tuple[list[Pattern | None], list[Mask | None], Mask]:
    """Patterns by running error analysis, the ties, and which samples have a number closer to a kink, or to the largest
    of its window, than the error bound; of those nothing is right. An error of zero means exact."""
    doubtful = np.zeros(len(inputs), dtype=np.bool_)
    patterns: list[Pattern | None] = []
    ties: list[Mask | None] = []
    values, errors = inputs, np.zeros_like(inputs)
    with np.errstate(all="ignore"):  # overflow gives inf or NaN, and those count as doubtful
        for layer, activation in zip(chain.layers, chain.activations, strict=False):
            values, errors = _affine_with_error(layer, values, errors)
            pattern: Pattern | None = None
            tied: Mask | None = None
            if isinstance(activation, Polynomial):
                errors = np.full_like(values, np.inf)
            elif isinstance(activation, LeakyRelu):
                pattern = values > 0
                tied = (values == 0) & (errors == 0)
                doubtful |= ~((np.abs(values) > errors) | tied).all(axis=1)
                values, errors = _leaky_with_error(activation, pattern, values, errors)
            elif isinstance(activation, MaxPool):
                pattern, tied, unsure = _maximum_with_error(activation, values, errors)
                doubtful |= unsure
                values, errors = (np.take_along_axis(array, pattern, axis=1) for array in (values, errors))
            patterns.append(pattern)
            ties.append(tied)
    return patterns, ties, doubtful


def _affine_with_error(layer: Affine[Floats], values: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """(W a + b) / divisor and a bound on its distance from the exact one, given a bound on the error of a.

    |error| <= |W| |error of a| + gamma_n (|W| |a| + |b|), Higham 2002, section 3.1: any order of summation, the
    division one more operation. The factor covers the rounding of the bound itself, the last term underflow. Where
    nothing but the bias is not zero, the sum is exact (no layer has both a bias and a divisor).
    """
    size, weights = np.abs(layer.weights), layer.weights
    length = weights.shape[1] + 2
    patches, patch_errors = layer_patches(layer, values), layer_patches(layer, errors, one=0)
    gamma = length * _ROUNDING / (1 - length * _ROUNDING)
    bound = layer_outputs(size, patch_errors + gamma * (np.abs(patches) + patch_errors))
    bound = bound / layer.divisor * (1 + 8 * gamma) + 4 * length * _UNDERFLOW
    is_something = ((values != 0) | (errors != 0)).astype(np.float64)
    num_terms = layer_outputs((weights != 0).astype(np.float64), layer_patches(layer, is_something, one=0))
    return layer_outputs(weights, patches) / layer.divisor, np.where(num_terms == 0, 0.0, bound)


def _leaky_with_error(
    activation: LeakyRelu, is_positive: Pattern, values: Floats, errors: Floats
) -> tuple[Floats, Floats]:
    """The activation and its error; a slope of zero leaves none."""
    slopes = np.where(is_positive, 1.0, activation.slope)
    scaled = values * slopes
    bound = errors * np.abs(slopes) * (1 + 4 * _ROUNDING) + 2 * _ROUNDING * np.abs(scaled) + _UNDERFLOW
    is_exact = (slopes == 0) | (slopes == 1) & (errors == 0) | (values == 0) & (errors == 0)
    return scaled, np.where(is_exact, 0.0, bound)


def _maximum_with_error(activation: MaxPool, values: Floats, errors: Floats) -> tuple[Indices, Mask, Mask]:
    """The chosen units; where in the windows a maximum that is attained twice stands; the samples where another is
    too close."""
    is_there = activation.windows >= 0
    candidates = np.where(is_there, values[:, activation.windows], -np.inf)
    doubts = np.where(is_there, errors[:, activation.windows], 0.0)
    best = np.argmax(candidates, axis=2)[:, :, None]
    height, doubt = (np.take_along_axis(array, best, axis=2) for array in (candidates, doubts))
    is_below = (height - candidates) * (1 - 4 * _ROUNDING) > (doubt + doubts) * (1 + 4 * _ROUNDING)
    is_exact = (doubt == 0) & (doubts == 0)
    is_best = np.arange(candidates.shape[2]) == best
    is_sure = is_below | is_exact | is_best | ~is_there
    is_largest = is_best | is_exact & (candidates == height) & is_there
    chosen = np.take_along_axis(np.broadcast_to(activation.windows, candidates.shape), best, axis=2)[:, :, 0]
    is_sure &= np.isfinite(height) & np.isfinite(doubt)
    return chosen, _if_several(is_largest), ~is_sure.all(axis=(1, 2))


def _if_several(is_largest: Mask) -> Mask:
    is_several: Mask = is_largest.sum(axis=2, keepdims=True) > 1
    return is_largest & is_several


def _integer_patterns(chain: Chain[Floats], inputs: Floats) -> tuple[list[Pattern | None], list[Mask | None]]:
    """The same patterns and ties from integers over a common denominator ``unit``."""
    patterns: list[Pattern | None] = []
    ties: list[Mask | None] = []
    values, bits = scaled_integers(inputs)
    unit = 1 << bits
    for layer, activation in zip(chain.layers, chain.activations, strict=False):
        values, unit = _integer_affine(layer, values, unit)
        pattern: Pattern | None = None
        tied: Mask | None = None
        if isinstance(activation, LeakyRelu):
            pattern = np.asarray(values > 0, dtype=np.bool_)
            tied = np.asarray(values == 0, dtype=np.bool_)
        elif isinstance(activation, MaxPool):
            pattern, tied = _integer_maximum(activation, values)
        values, unit = _apply(activation, values, unit, pattern)
        patterns.append(pattern)
        ties.append(tied)
    return patterns, ties


def integer_outputs(chain: Chain[Floats], inputs: Floats, patterns: tuple[Pattern | None, ...]) -> tuple[Integers, int]:
    """The exact outputs (num_samples, num_outputs) as integers, all over the one denominator that comes with them."""
    values, bits = scaled_integers(inputs)
    unit = 1 << bits
    *hidden, last = chain.layers
    for layer, activation, pattern in zip(hidden, chain.activations, patterns, strict=True):
        values, unit = _integer_affine(layer, values, unit)
        values, unit = _apply(activation, values, unit, pattern)
    return _integer_affine(last, values, unit)


def _integer_affine(layer: Affine[Floats], values: Integers, unit: int) -> tuple[Integers, int]:
    matrix, matrix_bits = scaled_integers(layer.weights)
    return layer_outputs(matrix, layer_patches(layer, values, one=unit)), unit * (layer.divisor << matrix_bits)


def _integer_maximum(activation: MaxPool, values: Integers) -> tuple[Indices, Mask]:
    """The first of the largest in every window, and where the largest stand if there are more than one."""
    chosen = np.empty((len(values), len(activation.windows)), dtype=np.int64)
    is_largest = np.zeros((len(values), *activation.windows.shape), dtype=np.bool_)
    for place, window in enumerate(activation.windows):
        units = window[window >= 0]
        candidates = values[:, units]
        is_best = np.asarray(candidates == candidates.max(axis=1, keepdims=True), dtype=np.bool_)
        chosen[:, place] = units[is_best.argmax(axis=1)]
        is_largest[:, place, window >= 0] = is_best
    return chosen, _if_several(is_largest)


def _apply(activation: ExactActivation, values: Integers, unit: int, pattern: Pattern | None) -> tuple[Integers, int]:
    """The activation of integers over ``unit``, again over one denominator."""
    if isinstance(activation, Identity):
        return values, unit
    if isinstance(activation, MaxPool):
        assert pattern is not None
        return np.take_along_axis(values, pattern.astype(np.int64), axis=1), unit
    if isinstance(activation, LeakyRelu):
        (slope,), slope_bits = scaled_integers(np.array([activation.slope]))
        assert pattern is not None
        return np.where(pattern, values * (1 << slope_bits), values * slope), unit << slope_bits
    coefficients, coefficient_bits = scaled_integers(np.array(activation.coefficients))
    total, total_unit = np.full_like(values, coefficients[-1]), 1 << coefficient_bits
    for coefficient in coefficients[-2::-1]:
        # total * z is over total_unit * unit, a multiple of the coefficient's denominator: align the coefficient.
        total = total * values + coefficient * (total_unit * unit >> coefficient_bits)
        total_unit *= unit
    return total, total_unit


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
