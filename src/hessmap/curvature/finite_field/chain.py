"""What can be evaluated exactly: affine layers with activations or maxima between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hessmap.curvature.convolution_geometry import Indices
from hessmap.curvature.finite_field.field_array import FieldArray, from_floats, quotient
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


@dataclass(frozen=True, eq=False)
class MaxPool:
    """The largest of each window, ``windows`` (num_outputs, window_size) of places, -1 for none. The first of equals
    is chosen, as in torch."""

    windows: Indices


ExactActivation = Identity | LeakyRelu | Polynomial | MaxPool


@dataclass(frozen=True, eq=False)
class Patches:
    """Which inputs a layer meets where: ``sources`` (groups, places, taps) of input places, -1 for a zero."""

    sources: Indices
    num_inputs: int


@dataclass(frozen=True, eq=False)
class Affine(Generic[Weights]):
    """outputs = weights @ inputs / divisor, a one appended to the inputs if ``has_bias``.

    Without ``patches`` the inputs are all there are. With them the same weights meet many patches, as in a
    convolution: the rows of ``weights`` are divided among the groups, a row gives one output per place, and the
    outputs stand row by row. ``positions`` says which parameter each weight is, -1 for a constant; a parameter may
    stand in many places.
    """

    weights: Weights
    positions: Indices
    has_bias: bool
    patches: Patches | None = None
    divisor: int = 1

    @property
    def num_inputs(self) -> int:
        return int(self.weights.shape[1]) - self.has_bias if self.patches is None else self.patches.num_inputs

    @cached_property
    def sources(self) -> Indices:
        """(groups, places, taps) into the inputs with a zero and a one appended: the bias meets the one."""
        if self.patches is None:
            sources: Indices = np.arange(self.num_inputs)[None, None, :]
        else:
            sources = np.where(self.patches.sources < 0, self.num_inputs, self.patches.sources)
        if not self.has_bias:
            return sources
        return np.concatenate([sources, np.full((*sources.shape[:2], 1), self.num_inputs + 1)], axis=2)

    @property
    def num_outputs(self) -> int:
        return int(self.weights.shape[0] * self.sources.shape[1])

    @property
    def num_groups(self) -> int:
        return int(self.sources.shape[0])

    @property
    def has_parameters(self) -> bool:
        return bool((self.positions >= 0).any())


@dataclass(frozen=True, eq=False)
class Chain(Generic[Weights]):
    """Affine layers, and the activation after each but the last; weights in float64 or in the field."""

    layers: tuple[Affine[Weights], ...]
    activations: tuple[ExactActivation, ...]
    num_parameters: int

    @property
    def input_dim(self) -> int:
        return self.layers[0].num_inputs

    @property
    def output_dim(self) -> int:
        return self.layers[-1].num_outputs

    @property
    def has_bias(self) -> bool:
        return any(layer.has_bias for layer in self.layers)

    @property
    def is_linear(self) -> bool:
        return all(isinstance(activation, Identity) for activation in self.activations)

    @property
    def is_dense(self) -> bool:
        return all(layer.patches is None for layer in self.layers)


def in_field(chain: Chain[Floats], field: PrimeField) -> Chain[FieldArray]:
    """The same chain with its float64 weights as exact elements of the field."""
    layers = tuple(
        Affine(
            quotient(from_floats(field, layer.weights), layer.divisor), layer.positions, layer.has_bias, layer.patches
        )
        for layer in chain.layers
    )
    return Chain(layers, chain.activations, chain.num_parameters)
