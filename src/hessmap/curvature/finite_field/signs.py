"""On which side of its kink every unit stands: rigorous in float64, and in exact integers where that is not enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hessmap.curvature.finite_field.chain import Affine, Chain, ExactActivation, Floats, Identity, LeakyRelu
from hessmap.curvature.finite_field.dyadic import Integers, scaled_integers
from hessmap.networks import Polynomial

_ROUNDING = 2.0**-53
_UNDERFLOW = 2.0**-1022  # even if subnormal numbers are flushed to zero

Pattern = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Signs:
    """Per activation: whether z > 0, (num_samples, width), or None where it has no kink. ``num_ties`` counts z = 0."""

    patterns: tuple[Pattern | None, ...]
    num_ties: int
    num_exact_samples: int


def signs(chain: Chain[Floats], inputs: Floats) -> Signs:
    """The signs of a chain in exact arithmetic on exact inputs; only samples in doubt pay for integers."""
    patterns: list[Pattern | None]
    patterns, doubtful = _float_patterns(chain, inputs)
    num_ties = 0
    if doubtful.any():
        exact, num_ties = _integer_patterns(chain, inputs[doubtful])
        for pattern, correction in zip(patterns, exact, strict=True):
            if pattern is not None and correction is not None:
                pattern[doubtful] = correction
    return Signs(tuple(patterns), num_ties, int(doubtful.sum()))


def _float_patterns(chain: Chain[Floats], inputs: Floats) -> tuple[list[Pattern | None], Pattern]:
    """Signs by running error analysis, and which samples have a unit closer to its kink than the error bound."""
    doubtful = np.zeros(len(inputs), dtype=np.bool_)
    patterns: list[Pattern | None] = []
    values, errors = inputs, np.zeros_like(inputs)
    with np.errstate(all="ignore"):  # overflow gives inf or NaN, and those count as doubtful
        for layer, activation in zip(chain.layers, chain.activations, strict=False):
            values, errors = _affine_with_error(layer, values, errors)
            if isinstance(activation, Polynomial):
                errors = np.full_like(values, np.inf)
            pattern = None
            if isinstance(activation, LeakyRelu):
                pattern = values > 0
                doubtful |= ~(np.abs(values) > errors).all(axis=1)
                slopes = np.where(pattern, 1.0, activation.slope)
                values = values * slopes
                errors = errors * np.abs(slopes) * (1 + 4 * _ROUNDING) + 2 * _ROUNDING * np.abs(values) + _UNDERFLOW
            patterns.append(pattern)
    return patterns, doubtful


def _affine_with_error(layer: Affine[Floats], values: Floats, errors: Floats) -> tuple[Floats, Floats]:
    """W a + b and a bound on its distance from the exact one, given a bound on the error of a.

    |error| <= |W| |error of a| + gamma_n (|W| |a| + |b|), Higham 2002, section 3.1: any order of summation. The
    factor covers the rounding of the bound itself, the last term underflow.
    """
    matrix = layer.weights
    length = matrix.shape[1] + 1
    if layer.has_bias:
        values = np.concatenate([values, np.ones((len(values), 1))], axis=1)
        errors = np.concatenate([errors, np.zeros((len(errors), 1))], axis=1)
    gamma = length * _ROUNDING / (1 - length * _ROUNDING)
    bound = errors @ np.abs(matrix).T + gamma * (np.abs(values) @ np.abs(matrix).T)
    return values @ matrix.T, bound * (1 + 8 * gamma) + 4 * length * _UNDERFLOW


def _integer_patterns(chain: Chain[Floats], inputs: Floats) -> tuple[list[Pattern | None], int]:
    """The same signs from integers over a common power of two, and the number of exact zeros at a kink."""
    patterns: list[Pattern | None] = []
    num_ties = 0
    values, bits = scaled_integers(inputs)
    for layer, activation in zip(chain.layers, chain.activations, strict=False):
        if layer.has_bias:
            values = np.concatenate([values, np.full((len(values), 1), 1 << bits, dtype=object)], axis=1)
        matrix, matrix_bits = scaled_integers(layer.weights)
        values, bits = values @ matrix.T, bits + matrix_bits
        pattern = None
        if isinstance(activation, LeakyRelu):
            pattern = np.asarray(values > 0, dtype=np.bool_)
            num_ties += int(np.sum(values == 0))
        values, bits = _apply(activation, values, bits, pattern)
        patterns.append(pattern)
    return patterns, num_ties


def _apply(activation: ExactActivation, values: Integers, bits: int, pattern: Pattern | None) -> tuple[Integers, int]:
    if isinstance(activation, Identity):
        return values, bits
    if isinstance(activation, LeakyRelu):
        (slope,), slope_bits = scaled_integers(np.array([activation.slope]))
        assert pattern is not None
        return np.where(pattern, values * (1 << slope_bits), values * slope), bits + slope_bits
    coefficients, coefficient_bits = scaled_integers(np.array(activation.coefficients))
    total, total_bits = np.full_like(values, coefficients[-1]), coefficient_bits
    for coefficient in coefficients[-2::-1]:
        # total * z has total_bits + bits fractional bits, more than the coefficient's: align the coefficient.
        total = total * values + (coefficient << (total_bits + bits - coefficient_bits))
        total_bits += bits
    return total, total_bits
