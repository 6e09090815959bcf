"""Which second derivative a layer needs, decided by asking autograd instead of reading the modules' names."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.curvature.agreement import disagreement, random_vector, tolerance
from hessmap.curvature.batch_graph import vjp_rows
from hessmap.curvature.layers.batches import Curvature, LayerBatch, layer_batch
from hessmap.curvature.layers.layer import Layer
from hessmap.curvature.layers.stored_samples import StoredPatches, stored_jacobians
from hessmap.curvature.problem import Problem
from hessmap.curvature.second_derivatives import twice_differentiable
from hessmap.curvature.weighted_samples import Batch
from hessmap.errors import UnsupportedNetwork, sentence

_FEW = 16


@dataclass(frozen=True)
class NeededCurvature:
    """Which second derivative is needed, and the largest rank it had in the outputs of a sample."""

    curvature: Curvature
    rank: int


@torch.inference_mode(False)
@twice_differentiable()
def needed_curvature(problem: Problem, layer: Layer) -> NeededCurvature:
    """Gauss-Newton where G^T A G is all there is (piecewise-linear behind the layer), else the full derivative.

    Both are compared with one autograd product with a random vector on a few samples, to 1e-10 relative; a layer that
    fails both has a use of its weight that was not seen.
    """
    few = problem.few_samples(_FEW)
    vector = random_direction(problem, layer)
    errors = {}
    kinds: tuple[Curvature, ...] = ("gauss_newton", "full")
    expected = autograd_product(problem, layer, few, vector)
    for curvature in kinds:
        batch = layer_batch(problem, layer, curvature, few)
        errors[curvature] = disagreement(batch_product(batch, vector), expected)
        if errors[curvature] <= tolerance(problem.dtype):
            return NeededCurvature(curvature, batch.rows.shape[1])
    got = f"for '{layer.name}' they differ by {errors['full']:.1e}"
    remedy = "Its weight may act in a way that is not seen; use loss_hessian(problem).block instead"
    must = f"the layer's structure and autograd must agree to {tolerance(problem.dtype):g}"
    raise UnsupportedNetwork(sentence(must, got, remedy))


def batch_product(batch: LayerBatch, vector: Tensor) -> Tensor:
    """H v on some samples from the structure, as a matrix of the weight's shape."""
    stored = StoredPatches(batch) if batch.layer.is_plain else stored_jacobians(batch)
    return stored.product(vector[None])[0]


@torch.inference_mode(False)
def autograd_product(problem: Problem, layer: Layer, batch: Batch, vector: Tensor) -> Tensor:
    """H v on some samples by differentiating the risk twice, as a matrix of the weight's shape."""
    data, targets, weights = batch
    names = [layer.weight, layer.bias] if layer.with_bias and layer.bias is not None else [layer.weight]
    values = [problem.named[name].detach().requires_grad_() for name in names]
    with torch.enable_grad():
        outputs = problem.forward(problem.named | dict(zip(names, values, strict=True)), data)
        risk = (weights * problem.loss.value(outputs, targets)).sum()
        slopes = torch.autograd.grad(risk, values, create_graph=True, materialize_grads=True)
    directions = [part[None] for part in _parts(layer, vector, values)]
    return _matrix(layer, [part[0] for part in vjp_rows(slopes, values, directions, together=False)])


def _parts(layer: Layer, matrix: Tensor, values: list[Tensor]) -> list[Tensor]:
    """A matrix of the weight's shape as the weight and, with it, the bias."""
    if not layer.with_bias:
        return [matrix.reshape(values[0].shape)]
    weight, bias = (matrix[:-1], matrix[-1]) if layer.is_transposed else (matrix[:, :-1], matrix[:, -1])
    return [weight.reshape(values[0].shape), bias.reshape(values[1].shape)]


def _matrix(layer: Layer, parts: list[Tensor]) -> Tensor:
    if not layer.with_bias:
        return parts[0].reshape(layer.weight_shape)
    bias = parts[1].flatten()
    if layer.is_transposed:
        return torch.cat([parts[0].reshape(-1, layer.num_outputs), bias[None]])
    return torch.cat([parts[0].reshape(layer.num_outputs, -1), bias[:, None]], 1)


def random_direction(problem: Problem, layer: Layer) -> Tensor:
    return random_vector(layer.size, problem.dtype).reshape(layer.weight_shape)
