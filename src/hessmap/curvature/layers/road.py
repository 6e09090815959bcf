"""Which second derivative a layer needs, decided by asking autograd instead of reading the modules' names."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad

from hessmap.curvature.layers.batches import Curvature, LayerBatch, layer_batch
from hessmap.curvature.layers.structure import HeldPatches
from hessmap.curvature.layers.watch import Layer
from hessmap.curvature.problem import Batch, Problem
from hessmap.curvature.pullback import pullback
from hessmap.errors import UnsupportedNetwork, sentence

CHECK_TOLERANCE = 1e-10
_FEW = 16


@dataclass(frozen=True)
class Road:
    """Which second derivative is needed, and the largest rank it had in the outputs of a sample."""

    curvature: Curvature
    rank: int


def needed_curvature(problem: Problem, layer: Layer) -> Road:
    """Gauss-Newton where G^T A G is all there is (piecewise-linear behind the layer), else the full derivative.

    Both are held against one autograd product with a random vector on a few samples, to 1e-10 relative; a layer that
    fails both has a use of its weight that was not seen.
    """
    chosen = torch.linspace(0, problem.num_samples - 1, min(problem.num_samples, _FEW)).long()
    few = problem.inputs[chosen], problem.targets[chosen], problem.weights[chosen]
    vector = random_vector(layer)
    expected = autograd_product(problem, layer, few, vector)
    errors = {}
    roads: tuple[Curvature, ...] = ("gauss_newton", "full")
    for curvature in roads:
        batch = layer_batch(problem, layer, curvature, few)
        errors[curvature] = disagreement(batch_product(batch, vector), expected)
        if errors[curvature] <= CHECK_TOLERANCE:
            return Road(curvature, batch.rows.shape[1])
    got = f"for '{layer.name}' they differ by {errors['full']:.1e}"
    remedy = "Its weight may act in a way that is not seen; use loss_hessian(problem).block instead"
    raise UnsupportedNetwork(sentence("the layer's structure and autograd must agree to 1e-10", got, remedy))


def batch_product(batch: LayerBatch, vector: Tensor) -> Tensor:
    """H v on some samples from the structure, as a matrix of the weight's shape."""
    total = torch.zeros(*reversed(batch.layer.weight_shape), 1, dtype=torch.float64)
    HeldPatches(batch).add_product(vector.T[:, :, None].contiguous(), total)
    return total[:, :, 0].T


def autograd_product(problem: Problem, layer: Layer, batch: Batch, vector: Tensor) -> Tensor:
    """H v on some samples by differentiating the risk twice, as a matrix of the weight's shape."""
    data, targets, weights = batch
    own = problem.named[layer.weight]
    extended = own.reshape(layer.num_outputs, -1)
    if layer.with_bias:
        assert layer.bias is not None
        extended = torch.cat([extended, problem.named[layer.bias][:, None]], 1)

    def risk(matrix: Tensor) -> Tensor:
        named = problem.named | {layer.weight: matrix[:, : layer.num_inputs].reshape(own.shape)}
        if layer.with_bias and layer.bias is not None:
            named = named | {layer.bias: matrix[:, -1]}
        return weights @ problem.loss.value(problem.forward(named, data), targets)

    return pullback(lambda matrix: grad(risk)(matrix) + 0.0 * matrix, extended)[1](vector).detach()


def random_vector(layer: Layer) -> Tensor:
    generator = torch.Generator().manual_seed(layer.size)
    return torch.randn(layer.weight_shape, generator=generator, dtype=torch.float64)


def disagreement(found: Tensor, expected: Tensor) -> float:
    """The largest difference relative to the largest entry."""
    error, scale = float((found - expected).abs().max()), float(expected.abs().max())
    return error / scale if scale > 0 else error
