"""Whether outputs are piecewise linear in a tensor, read off the nodes of autograd's graph.

Behind a layer whose outputs enter nothing but such operations, second derivatives of the network are zero wherever they
exist, whatever the data.

Which second derivative a layer needs: decided by the structure of autograd's graph, or by all data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.layers.batches import (
    Curvature,
    LayerBatch,
    functional_slope,
    layer_batch,
    perturbed_outputs,
    samples_at_once,
)
from hessmap.layers.layer import Layer
from hessmap.layers.stored_samples import StoredPatches, stored_jacobians
from hessmap.linalg import disagreement, random_vector, tolerance
from hessmap.problem import Batch, Problem, take_rows, twice_differentiable, vjp_rows

# Nodes of torch's own operations. Piecewise linear in all tensors that enter, together:
_LINEAR = """
    Abs AdaptiveAvgPool2D AdaptiveMaxPool2D Add Alias Amax AsStrided AvgPool2D AvgPool3D Cat Clamp ClampMax ClampMin
    Clone ConstantPadNd Cumsum Diagonal Expand Flip Gather Hardshrink Hardsigmoid Hardtanh Im2Col Index IndexSelect
    LeakyRelu MaskedFill Max MaxPool2DWithIndices MaxPool3DWithIndices Maximum Mean Median Min Minimum Neg Permute
    PixelShuffle ReflectionPad1D ReflectionPad2D Relu Repeat ReplicationPad1D ReplicationPad2D ReshapeAlias Roll Rsub
    Select Slice Softshrink Sort Split SplitWithSizes Squeeze Stack Sub Sum T Threshold ToCopy Transpose Unbind Unfold
    UnsafeView Unsqueeze UpsampleBilinear2D UpsampleNearest2D View Where
"""
# Piecewise linear in any one of the tensors that enter:
_PRODUCTS = "Addmm Addmv Baddbmm Bmm Convolution Dot Linear Mm Mul Mv PreluKernel"
# Linear in the first tensor that enters:
_QUOTIENTS = "Div NativeBatchNorm"


def is_piecewise_linear(outputs: Tensor, place: Tensor) -> bool:
    """Whether every operation between a leaf and the outputs is known to be piecewise linear in it.

    False where that is not known, which says nothing.

    >>> import torch
    >>> x = torch.ones(3, requires_grad=True)
    >>> is_piecewise_linear(2 * torch.relu(x).sum(), x), is_piecewise_linear((x * torch.relu(x)).sum(), x)
    (True, False)
    """
    depends = _dependent_nodes(outputs.grad_fn, place)
    return all(
        _is_linear(node, [depends.get(child, False) for child, _ in node.next_functions])
        for node, is_dependent in depends.items()
        if is_dependent and getattr(node, "variable", None) is not place
    )


def _dependent_nodes(root: Any, place: Tensor) -> dict[Any, bool]:
    """Of every node before the outputs, whether it depends on a leaf; children first, without recursion."""
    depends: dict[Any, bool] = {}
    waiting = [] if root is None else [root]
    while waiting:
        node = waiting[-1]
        children = [child for child, _ in node.next_functions if child is not None]
        missing = [child for child in children if child not in depends]
        if missing:
            waiting += missing
            continue
        waiting.pop()
        is_place = getattr(node, "variable", None) is place
        depends[node] = is_place or any(depends[child] for child in children)
    return depends


def _is_linear(node: Any, depends: list[bool]) -> bool:
    """Whether an operation is piecewise linear in the tensors that enter it and depend on the leaf."""
    name = node.name().rstrip("0123456789")
    if name == node.name():  # a user's autograd.Function, whose node has no number
        return False
    name = name.removesuffix("Backward")
    if name in _QUOTIENTS.split():
        is_frozen = name == "Div" or node._saved_training is False
        return is_frozen and not any(depends[1:])
    return name in _LINEAR.split() or (name in _PRODUCTS.split() and sum(depends) == 1)


_FEW = 16  # samples that are compared with autograd
_ROUNDING = 64  # units of rounding below which a term of a sample's second derivative is none


@dataclass(frozen=True)
class NeededCurvature:
    """Which second derivative is needed, the largest rank it had in the outputs of a sample, and whether its rows have
    signs."""

    curvature: Curvature
    rank: int
    has_signs: bool


def needed_curvature(problem: Problem, layer: Layer) -> NeededCurvature:
    """Gauss-Newton where G^T A G is all of M on every sample, else the full derivative; found once per problem.

    That it is all is proven by the operations behind the layer (all of them piecewise linear), or else shown by a pass
    over all data, which ends at the first batch with a sample that has more. The layer's structure is compared with one
    autograd product on a few samples, to 1e-10 relative: a layer that differs has a use of its weight that was not
    seen.
    """
    key = f"curvature of layer '{layer.name}', bias {layer.with_bias}"
    return problem.find_once(key, lambda: _needed_curvature(problem, layer))


@torch.inference_mode(False)
def full_curvature_work(problem: Problem, layer: Layer) -> float:
    """The samples times the cube of what leaves a layer, which decomposing the full second derivative of every sample
    goes with; 0 where all operations behind the layer are piecewise linear, so that nobody needs it."""
    outputs, _, perturbation = perturbed_outputs(problem, layer, problem.few_samples(1)[0])
    if is_piecewise_linear(outputs, perturbation):
        return 0.0
    return float(problem.num_samples) * float(layer.output_size) ** 3


@torch.inference_mode(False)
@twice_differentiable()
def _needed_curvature(problem: Problem, layer: Layer) -> NeededCurvature:
    few = problem.few_samples(_FEW)
    vector = random_direction(problem, layer)
    expected = autograd_product(problem, layer, few, vector)
    batch = layer_batch(problem, layer, "gauss_newton", few)
    if disagreement(batch_product(batch, vector), expected) <= tolerance(problem.dtype):
        curved = _curved_samples(problem, layer, few)
        if curved is None:
            return NeededCurvature("gauss_newton", batch.rows.shape[1], batch.signs is not None)
        batch = layer_batch(problem, layer, "full", curved)
        return NeededCurvature("full", batch.rows.shape[1], True)
    batch = layer_batch(problem, layer, "full", few)
    error = disagreement(batch_product(batch, vector), expected)
    if error <= tolerance(problem.dtype):
        return NeededCurvature("full", batch.rows.shape[1], True)
    got = f"for '{layer.name}' they differ by {error:.1e}"
    remedy = "Its weight may act in a way that is not seen; use loss_hessian(problem).block instead"
    must = f"the layer's structure and autograd must agree to {tolerance(problem.dtype):g}"
    raise UnsupportedNetwork(sentence(must, got, remedy))


def _curved_samples(problem: Problem, layer: Layer, few: Batch) -> Batch | None:
    """Some samples whose M is more than G^T A G; None if there are none in all data."""
    outputs, _, perturbation = perturbed_outputs(problem, layer, few[0])
    if is_piecewise_linear(outputs, perturbation):
        return None
    for data, targets, weights in problem.batches(samples_at_once(problem, layer)):
        found = _has_functional_term(problem, layer, (data, targets, weights)).nonzero().flatten()[:_FEW]
        if len(found):
            return take_rows(data, found), targets[found], weights[found]
    return None


def _has_functional_term(problem: Problem, layer: Layer, batch: Batch) -> Tensor:
    """Of every sample, whether sum_c (dloss/dout_c) d2 out_c / dz2 is more than the rounding of its M, by products of
    both with a random vector."""
    data, targets, weights = batch
    outputs, _, perturbation = perturbed_outputs(problem, layer, data)
    vector = random_vector(layer.output_size, problem.dtype).to(outputs.device).expand(1, *perturbation.shape)
    residual = (weights[:, None] * problem.loss.gradient(outputs.detach(), targets)).to(outputs.dtype)
    slope = functional_slope(outputs, perturbation, residual)
    sizes = vjp_rows([slope], [perturbation], [vector], together=False)[0][0].abs().amax(1)
    if not bool(sizes.any()):
        return sizes > 0
    with torch.enable_grad():
        risk = problem.loss.risk(outputs, targets, weights)
        (slope,) = torch.autograd.grad(risk, [perturbation], create_graph=True, materialize_grads=True)
    whole = vjp_rows([slope], [perturbation], [vector], together=False)[0][0].abs().amax(1)
    return sizes > _ROUNDING * torch.finfo(problem.dtype).eps * whole


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
