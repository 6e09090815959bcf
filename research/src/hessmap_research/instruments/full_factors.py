"""The output factor of all layers at once, from which top eigenvectors of the full Hessian are guessed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.layers.batches import layer_batch, samples_at_once
from hessmap.layers.layer import Layer, find_layer, layer_names
from hessmap.problem.problem import Problem


@dataclass(frozen=True, eq=False)
class FullFactors:
    """E[G^T A G] over the outputs of all layers one after another, and the mean (extended) input of each layer."""

    layers: tuple[Layer, ...]
    output_factor: Tensor
    mean_inputs: tuple[Tensor, ...]

    def in_layout(self, problem: Problem, vectors: Tensor) -> Tensor:
        """Vectors ordered layer by layer, rows [W_i, b_i], as flat vectors in the layout of the problem."""
        flat = torch.zeros(problem.num_parameters, vectors.shape[1], dtype=torch.float64)
        start = 0
        for layer in self.layers:
            part = vectors[start : start + layer.size].reshape(*layer.weight_shape, -1)
            start += layer.size
            flat[problem.layout[layer.weight]] = part[:, : layer.num_inputs].flatten(0, 1)
            if layer.with_bias and layer.bias is not None:
                flat[problem.layout[layer.bias]] = part[:, -1]
        return flat


def full_factors(problem: Problem) -> FullFactors:
    """The full output factor (Wu et al. 2022, equation 259) of a network of linear layers, biases included."""
    names = layer_names(problem)
    layers = tuple(find_layer(problem, name, with_bias=f"{name}.bias" in problem.named) for name in names)
    must = "full factors need linear layers that act once per sample"
    if not layers or any(layer.num_positions > 1 or not layer.is_plain for layer in layers):
        raise UnsupportedNetwork(sentence(must, "it has none, or convolutions or tokens"))
    covered = {part for layer in layers for part in (layer.weight, layer.bias if layer.with_bias else None)}
    others = [part for part in problem.layout.names if part not in covered]
    if others:
        raise UnsupportedNetwork(sentence(must, f"parameter '{others[0]}' belongs to none"))
    size = sum(layer.num_outputs for layer in layers)
    total = torch.zeros(size, size, dtype=torch.float64)
    means = [torch.zeros(layer.weight_shape[1], dtype=torch.float64) for layer in layers]
    mass = float(problem.weights.sum())
    for batch in problem.batches(samples_at_once(problem, layers[0])):
        seen = [layer_batch(problem, layer, "gauss_newton", batch) for layer in layers]
        rows = torch.cat([part.rows[:, :, 0] for part in seen], 2).flatten(0, 1)
        signs = seen[0].signs
        total += rows.T @ (rows if signs is None else rows * signs.flatten()[:, None])
        for mean, part in zip(means, seen, strict=True):
            mean += (part.weights / mass) @ part.inputs[:, 0]
    return FullFactors(layers, (total + total.T) / 2, tuple(means))
