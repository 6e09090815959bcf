"""The architectures of hessmap written out once more, in jets with random weights, from their definitions alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from jets import PRIME, Integers, Jet, concatenated, constant


class Weights:
    """Random weights, one after the other; those that are trained have a place among the parameters."""

    def __init__(self, generator: np.random.Generator, num_parameters: int) -> None:
        self.generator, self.num_parameters, self.num_drawn = generator, num_parameters, 0

    def trained(self, *shape: int) -> Jet:
        jet = self.frozen(*shape)
        size = int(np.prod(shape))
        gradient = jet.gradient.reshape(size, -1)
        gradient[np.arange(size), self.num_drawn + np.arange(size)] = 1
        self.num_drawn += size
        return jet

    def frozen(self, *shape: int) -> Jet:
        return constant(self.generator.integers(1, PRIME, size=shape), self.num_parameters)


def outputs_of(net: Any, weights: Weights, inputs: Integers) -> Jet:
    """(samples, outputs) for inputs (samples, dim), or (samples, tokens, dim) of an attention."""
    kind = type(net).__name__
    if kind == "SelfAttention":
        return _attention(net, weights, inputs)
    columns = constant(inputs.T, weights.num_parameters)
    made = {"FullyConnected": _connected, "Convolutional": _convolutional, "LocallyConnected": _local}
    return {**made, "Residual": _residual}[kind](net, weights, columns).T


def _affine(weights: Weights, columns: Jet, width: int, bias: bool) -> Jet:
    image = weights.trained(width, columns.shape[0]) @ columns
    return image + weights.trained(width, 1).times(np.ones((1, columns.shape[1]), np.int64)) if bias else image


def _connected(net: Any, weights: Weights, columns: Jet) -> Jet:
    for width, bias in zip(net.widths[1:], net.biases, strict=True):
        columns = _affine(weights, columns, width, bias)
    return columns


def _convolutional(net: Any, weights: Weights, columns: Jet) -> Jet:
    num_samples = columns.shape[1]
    image = columns.reshape(net.channels[0], net.input_length, num_samples)
    layers = zip(net.channels[1:], net.kernels, net.strides, net.paddings, net.biases[:-1], strict=True)
    for channels, kernel, stride, padding, bias in layers:
        if padding:
            border = constant(np.zeros((image.shape[0], padding, num_samples)), weights.num_parameters)
            image = concatenated([border, image, border], 1)
        starts = range(0, image.shape[1] - kernel + 1, stride)
        patches = [image[:, start : start + kernel].reshape(-1, num_samples) for start in starts]
        together = _affine(weights, concatenated(patches, 1), channels, bias)
        image = together.reshape(channels, len(patches), num_samples)
    return _affine(weights, image.reshape(-1, num_samples), net.outputs, net.biases[-1])


def _local(net: Any, weights: Weights, columns: Jet) -> Jet:
    size = net.patch_size
    shared = weights.trained(net.filters, size) if net.shared_weights else None
    patches = [columns[place * size : (place + 1) * size] for place in range(net.patches)]
    hidden = [(shared or weights.trained(net.filters, size)) @ patch for patch in patches]
    return _affine(weights, concatenated(hidden, 0), net.outputs, False)


def _residual(net: Any, weights: Weights, columns: Jet) -> Jet:
    def end(name: str, *shape: int) -> Jet:
        return (weights.trained if getattr(net, f"train_{name}") else weights.frozen)(*shape)

    if net.has_input_layer:
        columns = end("input", net.width, net.input_dim) @ columns
    for _ in range(net.num_blocks):
        if net.inner_width is None:
            columns = columns + weights.trained(net.width, net.width) @ columns
        else:
            inner = weights.trained(net.inner_width, net.width) @ columns
            columns = columns + weights.trained(net.width, net.inner_width) @ inner
    return end("output", net.output_dim, net.width) @ columns if net.has_output_layer else columns


def _attention(net: Any, weights: Weights, inputs: Integers) -> Jet:
    heads = []
    for _ in range(net.heads):
        query = weights.trained(net.width, net.width if net.merged_query_key else net.key_width)
        key = None if net.merged_query_key else weights.trained(net.width, net.key_width)
        value = (weights.frozen if net.frozen_value else weights.trained)(net.width, net.value_width)
        heads.append((query, key, value))
    projection = None if net.outputs is None else weights.trained(net.heads * net.value_width, net.outputs)
    rows = []
    for tokens in inputs:
        sample = constant(tokens, weights.num_parameters)
        read = concatenated([_head(net, sample, *head) for head in heads], 1)
        read = read if projection is None else read @ projection
        rows.append((read[-1:] if net.read == "last" else read).reshape(1, -1))
    return concatenated(rows, 0)


def _head(net: Any, sample: Jet, query: Jet, key: Jet | None, value: Jet) -> Jet:
    scores = (sample @ query) @ (sample if key is None else sample @ key).T
    if net.causal:
        scores = scores.times(np.tril(np.ones(scores.shape, np.int64)))
    return scores @ (sample @ value)
