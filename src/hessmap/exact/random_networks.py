"""The generic network of an architecture: weights drawn from the field. A new architecture registers itself here."""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise
from math import prod

import numpy as np

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.exact.field import FieldArray, PrimeField, concatenate, identity, random_array
from hessmap.exact.network import Affine, Chain, ExactActivation, Identity, Patches
from hessmap.networks import (
    Activation,
    Convolutional,
    Convolutions,
    FullyConnected,
    ImageConvolutional,
    LocallyConnected,
    Polynomial,
    Residual,
    is_homogeneous,
)
from hessmap.problem import ConvolutionGeometry, Indices


@singledispatch
def drawn_network(architecture: object, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    """A chain of the architecture with independent uniform weights, positions in the order of its parameters."""
    raise UnsupportedNetwork(
        sentence(
            "generic_rank needs an architecture such as FullyConnected, Convolutional or SelfAttention",
            f"got {type(architecture).__name__}",
            "Describe a model with hessmap.networks.describe, or use certified_rank on a Problem",
        )
    )


@drawn_network.register
def _fully_connected(
    architecture: FullyConnected, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    layers, start = [], 0
    for (before, after), bias in zip(pairwise(architecture.widths), architecture.biases, strict=True):
        positions = _positions(start, after, before, bias)
        layers.append(Affine(random_array(field, generator, *positions.shape), positions, bias))
        start += positions.size
    return Chain(tuple(layers), (activation,) * (len(layers) - 1), start)


@drawn_network.register
def _convolutional(architecture: Convolutional, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    lengths = tuple((length,) for length in architecture.lengths[:-1])
    return _convolutions(architecture, lengths, tuple((kernel,) for kernel in architecture.kernels), field, generator)


@drawn_network.register
def _image_convolutional(
    architecture: ImageConvolutional, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    return _convolutions(architecture, architecture.sizes[:-1], architecture.kernels, field, generator)


def _convolutions(
    architecture: Convolutions,
    input_sizes: tuple[tuple[int, ...], ...],
    kernels: tuple[tuple[int, ...], ...],
    field: PrimeField,
    generator: np.random.Generator,
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    layers, start = [], 0
    sizes = zip(
        pairwise(architecture.channels),
        input_sizes,
        kernels,
        architecture.strides,
        architecture.paddings,
        architecture.biases[:-1],
        strict=True,
    )
    for (before, after), size, kernel, stride, padding, bias in sizes:
        geometry = ConvolutionGeometry.of_call(size, kernel, stride, padding)
        patches = Patches(geometry.input_indices(before), before * prod(size))
        positions = _positions(start, after, before * prod(kernel), bias)
        layers.append(Affine(random_array(field, generator, *positions.shape), positions, bias, patches))
        start += positions.size
    last = architecture.biases[-1]
    positions = _positions(start, architecture.outputs, architecture.widths[-2], last)
    layers.append(Affine(random_array(field, generator, *positions.shape), positions, last))
    return Chain(tuple(layers), (activation,) * (len(layers) - 1), start + positions.size)


@drawn_network.register
def _locally_connected(
    architecture: LocallyConnected, field: PrimeField, generator: np.random.Generator
) -> Chain[FieldArray]:
    activation = _exact_activation(architecture.activation)
    num_patches, size, filters = architecture.patches, architecture.patch_size, architecture.filters
    places = np.arange(architecture.input_dim)
    # Groups, places, taps: all patches meet the same filters, or each a group of its own.
    sources = places.reshape(1, num_patches, size) if architecture.shared_weights else places.reshape(-1, 1, size)
    first = _positions(0, len(sources) * filters, size, has_bias=False)
    dense = _positions(first.size, architecture.outputs, num_patches * filters, has_bias=False)
    if architecture.shared_weights:  # hidden units come filter by filter, in the model patch by patch
        dense = dense.reshape(-1, num_patches, filters).transpose(0, 2, 1).reshape(dense.shape)
    patches = Patches(sources, architecture.input_dim)
    layers = (
        Affine(random_array(field, generator, *first.shape), first, False, patches),
        Affine(random_array(field, generator, *dense.shape), dense, False),
    )
    return Chain(layers, (activation,), first.size + dense.size)


@drawn_network.register
def _residual(architecture: Residual, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    """A block I + W is a layer; I + U D is two, [I; D] and [I, U], whose identity is constant."""
    if not architecture.is_linear:
        got = f"it has activation '{architecture.activation}'"
        remedy = "Use certified_rank or numerical_rank on a Problem with drawn weights and data"
        raise UnsupportedNetwork(sentence("the generic rank of a residual network needs a linear one", got, remedy))
    width, inner = architecture.width, architecture.inner_width
    layers: list[Affine[FieldArray]] = []
    start = 0

    def add(rows: int, columns: int, axis: int | None = None, is_trained: bool = True) -> None:
        nonlocal start
        weights, positions = random_array(field, generator, rows, columns), _positions(start, rows, columns, False)
        positions = positions if is_trained else np.full_like(positions, -1)
        start += rows * columns * is_trained
        if axis is not None:
            weights = concatenate([identity(field, width), weights], axis=axis)
            positions = np.concatenate([np.full((width, width), -1), positions], axis=axis)
        layers.append(Affine(weights, positions, False))

    if architecture.has_input_layer:
        add(width, architecture.input_dim, is_trained="input" in architecture.trained_ends)
    for _ in range(architecture.num_blocks):
        if inner is None:
            add(width, width)  # W is uniform over the field, and so is I + W
        else:
            add(inner, width, axis=0)
            add(width, inner, axis=1)
    if architecture.has_output_layer:
        add(architecture.output_dim, width, is_trained="output" in architecture.trained_ends)
    return Chain(tuple(layers), (Identity(),) * (len(layers) - 1), start)


def _positions(start: int, rows: int, taps: int, has_bias: bool) -> Indices:
    """Where the parameters of a layer stand: its weights row by row, then its biases; a column for the latter."""
    weights = np.arange(start, start + rows * taps).reshape(rows, taps)
    biases = np.arange(weights.size + start, weights.size + start + rows * has_bias).reshape(rows, int(has_bias))
    return np.concatenate([weights, biases], axis=1)


def _exact_activation(activation: Activation) -> ExactActivation:
    if activation == "identity":
        return Identity()
    if isinstance(activation, Polynomial):
        return activation
    piecewise = is_homogeneous(activation)
    raise UnsupportedNetwork(
        sentence(
            "the generic rank of an architecture needs a linear or polynomial activation",
            f"'{activation}' "
            + ("has a rank that changes with the data's pattern" if piecewise else "is no polynomial"),
            "Use certified_rank on a Problem with drawn weights and data"
            if piecewise
            else "Use numerical_rank on a Problem with drawn weights and data",
        )
    )
