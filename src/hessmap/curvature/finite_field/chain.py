"""What can be evaluated exactly: affine layers with element-wise activations between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hessmap.curvature.finite_field.field_array import FieldArray, from_floats
from hessmap.curvature.finite_field.prime_field import PrimeField
from hessmap.networks import Polynomial

Floats = NDArray[np.float64]
Weights = TypeVar("Weights", Floats, FieldArray)


@dataclass(frozen=True)
class Identity:
    """No activation."""


@dataclass(frozen=True)
class LeakyRelu:
    """z where z > 0 and slope * z elsewhere; ReLU is slope 0. At z = 0 the derivative is the slope, as in torch."""

    slope: float = 0.0


ExactActivation = Identity | LeakyRelu | Polynomial


@dataclass(frozen=True, eq=False)
class Affine(Generic[Weights]):
    """outputs = weights @ inputs, a one appended to the inputs if ``has_bias``.

    ``positions`` says which parameter each weight is, -1 for a constant. A parameter may stand in many places:
    a shared weight or a convolution is an affine layer with repeated positions and constant zeros.
    """

    weights: Weights
    positions: NDArray[np.int64]
    has_bias: bool


@dataclass(frozen=True, eq=False)
class Chain(Generic[Weights]):
    """Affine layers, and the activation after each but the last; weights in float64 or in the field."""

    layers: tuple[Affine[Weights], ...]
    activations: tuple[ExactActivation, ...]
    num_parameters: int

    @property
    def input_dim(self) -> int:
        return int(self.layers[0].weights.shape[1]) - self.layers[0].has_bias

    @property
    def output_dim(self) -> int:
        return int(self.layers[-1].weights.shape[0])

    @property
    def has_bias(self) -> bool:
        return any(layer.has_bias for layer in self.layers)

    @property
    def is_linear(self) -> bool:
        return all(isinstance(activation, Identity) for activation in self.activations)


def in_field(chain: Chain[Floats], field: PrimeField) -> Chain[FieldArray]:
    """The same chain with its float64 weights as exact elements of the field."""
    layers = tuple(
        Affine(from_floats(field, layer.weights), layer.positions, layer.has_bias) for layer in chain.layers
    )
    return Chain(layers, chain.activations, chain.num_parameters)


def float_outputs(chain: Chain[Floats], inputs: Floats) -> Floats | None:
    """The outputs to rounding; None if the layers do not fit one another or the inputs."""
    values = inputs
    for place, layer in enumerate(chain.layers):
        if layer.has_bias:
            values = np.concatenate([values, np.ones((len(values), 1))], axis=1)
        if values.shape[1] != layer.weights.shape[1]:
            return None
        values = values @ layer.weights.T
        activation = chain.activations[place] if place < len(chain.activations) else Identity()
        if isinstance(activation, LeakyRelu):
            values = np.where(values > 0, values, activation.slope * values)
        elif isinstance(activation, Polynomial):
            values = np.polynomial.polynomial.polyval(values, np.array(activation.coefficients))
    return values
