"""Networks that can be evaluated exactly: affine layers with activations or maxima between them.

An affine layer acts on patches of its inputs, on tangents of these and on gradients of its outputs. All arrays have the
samples first (length one where all samples agree). The numbers may be float64, exact integers or elements of the field:
only ``@``, indexing and reshaping are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hessmap.exact.field import FieldArray, Height, PrimeField, from_floats, quotient, sums_by_place
from hessmap.networks import Polynomial
from hessmap.problem import Indices

Floats = NDArray[np.float64]
Weights = TypeVar("Weights", Floats, FieldArray)


@dataclass(frozen=True)
class Identity:
    """No activation."""


@dataclass(frozen=True)
class LeakyRelu:
    """z where z > 0 and slope * z elsewhere; ReLU is slope 0. At z = 0 the derivative is the slope, as in torch.

    Attributes:
        slope: Slope for negative inputs.
    """

    slope: float = 0.0


@dataclass(frozen=True, eq=False)
class MaxPool:
    """The largest of each window, ``windows`` (num_outputs, window_size) of places, -1 for none.

    Attributes:
        windows: Input positions of each window (num_outputs, window_size), -1 for none.

    Notes:
        The first of equals is chosen, as in torch.
    """

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
    """Affine layers, and the activation after each but the last; weights in float64 or in the field.

    Attributes:
        layers: Affine layers.
        activations: Activation after each layer except the last.
        num_parameters: Number of parameters of the model.
    """

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
    """The same chain with its float64 weights as exact elements of the field.

    Args:
        chain: The network.
        field: The prime field.

    Returns:
        The network over the field.
    """
    layers = tuple(
        Affine(
            quotient(from_floats(field, layer.weights), layer.divisor), layer.positions, layer.has_bias, layer.patches
        )
        for layer in chain.layers
    )
    return Chain(layers, chain.activations, chain.num_parameters)


def layer_patches(layer: Affine[Any], values: NDArray[Any], one: object = 1) -> NDArray[Any]:
    """The patches, (num_samples, groups, places, taps, ..), of values (num_samples, num_inputs, ..).

    Args:
        layer: The layer.
        values: Outputs of the layer before.
        one: Factor of the bias: one, or zero for tangents. Defaults to 1.

    Returns:
        The patches.

    Notes:
        ``one`` is what the bias meets: one, or zero where the values are tangents.
    """
    if layer.patches is None and not layer.has_bias:
        return values[:, None, None]
    constants = np.empty((len(values), 2, *values.shape[2:]), dtype=values.dtype)
    constants[:, 0], constants[:, 1] = 0, one
    extended: NDArray[Any] = np.concatenate([values, constants], axis=1)[:, layer.sources]
    return extended


def field_patches(layer: Affine[FieldArray], values: FieldArray) -> FieldArray:
    height = Height.largest((values.height, Height())) if layer.has_bias else values.height
    return FieldArray(values.field, layer_patches(layer, values.residues), height)


def tangent_patches(layer: Affine[FieldArray], tangents: FieldArray) -> FieldArray:
    """The same for tangents (num_samples, num_inputs, num_directions): those of constants are zero."""
    return FieldArray(tangents.field, layer_patches(layer, tangents.residues, one=0), tangents.height)


def layer_outputs(weights: Any, patches: Any) -> Any:
    """weights @ patches: outputs (num_samples, num_outputs) from (num_samples, groups, places, taps).

    Args:
        weights: Weights of the layer.
        patches: Inputs of the layer.

    Returns:
        The outputs of the layer.
    """
    num_samples, groups, places, taps = patches.shape
    if groups == places == 1:
        return patches[:, 0, 0] @ weights.mT
    rows = patches.transpose(1, 0, 2, 3).reshape(groups, num_samples * places, taps)
    outputs = rows @ weights.reshape(groups, -1, taps).mT
    return outputs.reshape(groups, num_samples, places, -1).transpose(1, 0, 3, 2).reshape(num_samples, -1)


def output_tangents(layer: Affine[FieldArray], tangents: FieldArray) -> FieldArray:
    """Tangents of the outputs, (num_samples, num_outputs, num_directions), from those of the patches."""
    num_samples, groups, places, taps, directions = tangents.shape
    if groups == places == 1:
        return layer.weights @ tangents[:, 0, 0]
    columns = tangents.transpose(1, 3, 0, 2, 4).reshape(groups, taps, num_samples * places * directions)
    outputs = layer.weights.reshape(groups, -1, taps) @ columns
    outputs = outputs.reshape(groups, -1, num_samples, places, directions)
    return outputs.transpose(2, 0, 1, 3, 4).reshape(num_samples, layer.num_outputs, directions)


def gradients_by_inputs(layer: Affine[FieldArray], gradients: FieldArray) -> FieldArray:
    """The gradient by the inputs, (num_samples, num_inputs), from that by the outputs.

    Args:
        layer: The layer.
        gradients: Gradient with respect to the outputs of the layer.

    Returns:
        The gradient with respect to the inputs.
    """
    if layer.patches is None:
        return gradients @ layer.weights[:, : layer.num_inputs]
    groups, places, taps = layer.sources.shape
    columns = gradients.reshape(len(gradients), groups, -1, places)
    each = layer.weights.reshape(groups, -1, taps).mT @ columns  # (num_samples, groups, taps, places)
    rows = each.transpose(1, 3, 2, 0).reshape(groups * places * taps, len(gradients))
    return sums_by_place(rows, layer.sources.ravel(), layer.num_inputs + 2)[: layer.num_inputs].mT


def weight_jacobian(layer: Affine[FieldArray], patches: FieldArray) -> FieldArray:
    """d outputs / d weights, (num_samples, num_outputs, num_weights), both row by row."""
    num_samples, groups, places, taps = patches.shape
    rows = layer.weights.shape[0]
    residues = np.zeros((num_samples, rows, places, rows, taps), dtype=np.int64)
    group_of = np.arange(rows) * groups // rows
    residues[:, np.arange(rows), :, np.arange(rows)] = patches.residues[:, group_of].transpose(1, 0, 2, 3)
    return FieldArray(patches.field, residues, patches.height).reshape(num_samples, rows * places, rows * taps)
