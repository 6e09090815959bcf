"""Which second derivative a layer needs: Gauss-Newton alone, or with the functional term.

If all operations after a layer are piecewise linear, second derivatives of the network vanish wherever they exist, and
Gauss-Newton is exact for all data. That is read from the nodes of autograd's graph; otherwise all data are checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap.layers.batches import (
    Curvature,
    LayerBatch,
    functional_gradient,
    layer_batch,
    perturbed_outputs,
    samples_at_once,
)
from hessmap.layers.layer import Layer
from hessmap.layers.stored_samples import StoredPatches, stored_jacobians
from hessmap.linalg import disagreement, full_precision, random_vector, tolerance
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
    """Check whether every operation between a leaf and the outputs is known to be piecewise linear in the leaf.

    Args:
        outputs: Outputs with their graph.
        place: Leaf of the graph.

    Returns:
        True if it is proven; False if an operation is not known, in which case nothing follows.

    Example:
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
class CurvatureChoice:
    """Which second derivative a layer needs.

    Attributes:
        curvature: "gauss_newton" or "full".
        rank: Largest rank in the outputs of the compared samples.
        has_signs: Whether rows have signs.
    """

    curvature: Curvature
    rank: int
    has_signs: bool


def choose_curvature(problem: Problem, layer: Layer) -> CurvatureChoice:
    """Choose Gauss-Newton if G^T A G is all of M on every sample, else the full derivative; cached per problem.

    Gauss-Newton is chosen if the operations after the layer are proven piecewise linear, or if a pass over all data
    finds no sample with a functional term (it ends at the first batch with one). The layer's structure is compared with
    one autograd product on a few samples, to 1e-10 relative; a difference means that a use of its weight was missed.
    """
    key = f"curvature of layer '{layer.name}', bias {layer.with_bias}"
    return problem.cached(key, _choose_curvature, problem, layer)


@torch.inference_mode(False)
def full_curvature_work(problem: Problem, layer: Layer) -> float:
    """Estimate the work of decomposing the full second derivative of every sample.

    Args:
        problem: Problem that the layer belongs to.
        layer: Layer, from ``find_layer``.

    Returns:
        Number of samples times the cube of the layer's output size; 0 if all operations after the layer are piecewise
        linear, so that the full second derivative is never needed.
    """
    outputs, _, perturbation = perturbed_outputs(problem, layer, problem.subsample(1)[0])
    if is_piecewise_linear(outputs, perturbation):
        return 0.0
    return float(problem.num_samples) * float(layer.output_size) ** 3


@torch.inference_mode(False)
@twice_differentiable()
def _choose_curvature(problem: Problem, layer: Layer) -> CurvatureChoice:
    few = problem.subsample(_FEW)
    vector = random_direction(problem, layer)
    expected = autograd_product(problem, layer, few, vector)
    batch = layer_batch(problem, layer, "gauss_newton", few)
    if disagreement(batch_product(batch, vector), expected) <= tolerance(problem.dtype):
        curved = _curved_samples(problem, layer, few)
        if curved is None:
            return CurvatureChoice("gauss_newton", batch.rows.shape[1], batch.signs is not None)
        batch = layer_batch(problem, layer, "full", curved)
        return CurvatureChoice("full", batch.rows.shape[1], True)
    batch = layer_batch(problem, layer, "full", few)
    error = disagreement(batch_product(batch, vector), expected)
    if error <= tolerance(problem.dtype):
        return CurvatureChoice("full", batch.rows.shape[1], True)
    got = f"for '{layer.name}' they differ by {error:.1e}"
    remedy = "Its weight may have a use that was missed; use loss_hessian(problem).block instead"
    must = f"the layer's structure and autograd must agree to {tolerance(problem.dtype):g}"
    raise UnsupportedNetwork(sentence(must, got, remedy))


def _curved_samples(problem: Problem, layer: Layer, few: Batch) -> Batch | None:
    """Some samples whose M is more than G^T A G; None if there are none."""
    outputs, _, perturbation = perturbed_outputs(problem, layer, few[0])
    if is_piecewise_linear(outputs, perturbation):
        return None
    for data, targets, weights in problem.batches(samples_at_once(problem, layer)):
        found = _has_functional_term(problem, layer, (data, targets, weights)).nonzero().flatten()[:_FEW]
        if len(found):
            return take_rows(data, found), targets[found], weights[found]
    return None


def _has_functional_term(problem: Problem, layer: Layer, batch: Batch) -> Tensor:
    """For each sample, whether sum_c (dloss/dout_c) d2 out_c / dz2 exceeds the rounding of its M, by products of both
    with a random vector.
    """
    data, targets, weights = batch
    outputs, _, perturbation = perturbed_outputs(problem, layer, data)
    vector = random_vector(layer.output_size, problem.dtype).to(outputs.device).expand(1, *perturbation.shape)
    residual = (weights[:, None] * problem.loss.gradient(outputs.detach(), targets)).to(outputs.dtype)
    gradient = functional_gradient(outputs, perturbation, residual)
    sizes = vjp_rows([gradient], [perturbation], [vector], vectorised=False)[0][0].abs().amax(1)
    if not bool(sizes.any()):
        return sizes > 0
    with torch.enable_grad(), full_precision(problem.device):
        risk = problem.loss.risk(outputs, targets, weights)
        (gradient,) = torch.autograd.grad(risk, [perturbation], create_graph=True, materialize_grads=True)
    whole = vjp_rows([gradient], [perturbation], [vector], vectorised=False)[0][0].abs().amax(1)
    return sizes > _ROUNDING * torch.finfo(problem.dtype).eps * whole


def batch_product(batch: LayerBatch, vector: Tensor) -> Tensor:
    """H v on some samples from the layer's structure, as a matrix of the weight's shape."""
    stored = StoredPatches(batch) if batch.layer.is_plain else stored_jacobians(batch)
    return stored.product(vector[None])[0]


@torch.inference_mode(False)
def autograd_product(problem: Problem, layer: Layer, batch: Batch, vector: Tensor) -> Tensor:
    """H v on some samples by differentiating the risk twice, as a matrix of the weight's shape."""
    data, targets, weights = batch
    names = [layer.weight, layer.bias] if layer.with_bias and layer.bias is not None else [layer.weight]
    values = [problem.named[name].detach().requires_grad_() for name in names]
    with torch.enable_grad(), full_precision(problem.device):
        outputs = problem.forward(problem.named | dict(zip(names, values, strict=True)), data)
        risk = (weights * problem.loss.value(outputs, targets)).sum()
        gradients = torch.autograd.grad(risk, values, create_graph=True, materialize_grads=True)
    directions = [part[None] for part in _parts(layer, vector, values)]
    return _matrix(layer, [part[0] for part in vjp_rows(gradients, values, directions, vectorised=False)])


def _parts(layer: Layer, matrix: Tensor, values: list[Tensor]) -> list[Tensor]:
    """Split a matrix of the weight's shape into weight and bias."""
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
    return random_vector(layer.size, problem.dtype).reshape(layer.weight_shape).to(problem.device)
