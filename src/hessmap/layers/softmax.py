"""Structure of cross-entropy: output Hessian and logit gradients, and the weights after a layer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, require, require_name, sentence
from hessmap.layers.batches import layer_jacobian, samples_at_once
from hessmap.layers.layer import Layer, find_layer, layer_names
from hessmap.linalg import to_host
from hessmap.losses import CrossEntropy
from hessmap.problem import Problem, num_rows, perturbed_pass, recording_of, vjp_rows


@dataclass(frozen=True, eq=False)
class DownstreamWeights:
    """The fully connected layers after layer p.

    Attributes:
        weights: W^(p+1), .., W^(L).
        derivatives: q^(p), .., q^(L-1), the mean derivative of each activation, unit by unit (for ReLU the fraction of
            samples on which the unit is active).
    """

    weights: tuple[Tensor, ...]
    derivatives: tuple[Tensor, ...]


@torch.no_grad()
def downstream_weights(problem: Problem, name: str) -> DownstreamWeights:
    """Collect the linear layers after a layer, if only element-wise maps (ReLU, frozen batch norm) are between them.

    Args:
        problem: Problem that the layer belongs to.
        name: Name of the layer, as in ``model.named_modules()``.

    Returns:
        DownstreamWeights: weights and mean activation derivatives.

    Raises:
        UnsupportedNetwork: If the layers after it are not such a sequence.
    """
    start = find_layer(problem, name)
    if start.kind not in ("linear", "convolution"):
        raise _unsupported_error(name, f"it is of kind {start.kind}")
    known = [find_layer(problem, other) for other in layer_names(problem)]
    layers = [layer for layer in known if layer.kind in ("linear", "convolution")]
    chain = layers[[layer.name for layer in layers].index(start.name) :]
    is_chain = all(layer.is_plain and layer.kind == "linear" and layer.num_positions == 1 for layer in chain)
    uses = [use for use in recording_of(problem).uses if use.kind in ("linear", "convolution", "other")]
    if not is_chain or len(uses) != len(layers):
        raise _unsupported_error(name, "it has convolutions, tokens or shared weights")
    derivatives = tuple(_mean_derivatives(problem, before, after) for before, after in pairwise(chain))
    return DownstreamWeights(tuple(problem.named[layer.weight] for layer in chain[1:]), derivatives)


def _mean_derivatives(problem: Problem, before: Layer, after: Layer) -> Tensor:
    """Mean diagonal of d(input of the next layer)/dz, which must be diagonal."""
    total, total_weight = torch.zeros(before.num_outputs, dtype=torch.float64), float(problem.weights.sum())
    generator = torch.Generator().manual_seed(0)
    for data, _, weights in problem.batches(4096):
        zero = problem.parameters.new_zeros(num_rows(data), before.num_outputs).requires_grad_()
        with torch.enable_grad():
            added = {before.uses[0][0]: zero[..., None], after.uses[0][0]: None}
            _, (_, values) = perturbed_pass(problem, data, added)
        if values.shape[1] != before.num_outputs:
            raise _unsupported_error(before.name, f"'{after.name}' takes {values.shape[1]} inputs")
        random = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)
        cotangents = torch.stack([torch.ones_like(random), random])
        derivatives, products = vjp_rows([values], [zero], [cotangents], vectorised=False)[0]
        if not torch.allclose(products, random * derivatives, rtol=1e-10, atol=1e-12):
            raise _unsupported_error(before.name, f"units are mixed on the way to '{after.name}'")
        total += to_host(weights @ derivatives)
    return total / total_weight


def _unsupported_error(name: str, got: str) -> UnsupportedNetwork:
    must = f"weights after layer '{name}' must follow each other with element-wise maps between"
    return UnsupportedNetwork(sentence(must, got, "Use layer_factors for the measured output factor"))


Space = Literal["outputs", "weights"]
_SAMPLES = 4096  # of a batch


def require_logits(problem: Problem) -> None:
    """Check that the loss is a cross-entropy with labels and that the outputs are logits.

    Args:
        problem: Problem to check.

    Raises:
        InvalidInput: If the loss is another one, or the outputs are probabilities or their logarithms.
    """
    labels = problem.samples.first[1]
    is_softmax = isinstance(problem.loss, CrossEntropy) and not labels.is_floating_point()
    must = "this needs a network whose outputs are logits under cross-entropy with labels"
    got = f"the loss is '{problem.loss.name}' and the network has {problem.output_dim} outputs"
    require(is_softmax and problem.output_dim >= 2, must, got, 'Use loss="cross_entropy"')
    few = problem.forward(problem.named, problem.subsample(16)[0]).detach()
    for values, kind in ((few, "probabilities"), (few.exp(), "logarithms of probabilities")):
        sums_to_one = bool(torch.allclose(values.sum(1), few.new_ones(len(few)), rtol=0, atol=1e-6))
        got = f"the outputs look like {kind}: they are not negative and sum to one in every sample"
        got = got if kind == "probabilities" else f"the outputs look like {kind}"
        require(not (sums_to_one and bool((values >= 0).all())), must, got, "Remove the softmax from the network")


def mean_output_hessian(problem: Problem) -> Tensor:
    """Compute E[A], where A = diag(p) - p p^T is the Hessian of the loss in the logits.

    Args:
        problem: Problem with a cross-entropy loss and logits as outputs.

    Returns:
        Matrix (classes, classes), float64.

    Raises:
        InvalidInput: If the outputs are not logits under cross-entropy.
    """
    require_logits(problem)
    total = torch.zeros(problem.output_dim, problem.output_dim, dtype=torch.float64)
    with torch.no_grad():
        for inputs, targets, weights in problem.batches(_SAMPLES):
            outputs = problem.forward(problem.named, inputs)
            hessians = problem.loss.hessian(outputs, targets)
            total += to_host(torch.einsum("n,nab->ab", weights.to(hessians), hessians))
    return total


@dataclass(frozen=True, eq=False)
class LogitGradients:
    """Mean logit gradients: g_j is row j of Q G (in outputs), or that row times the input (in weights), where Q^T Q =
    A.

    Attributes:
        space: "outputs" or "weights".
        means: Means over the samples of each class, (classes, logits, entries).
        total: E[sum_j ||g_j||^2], of which the means account for a part.
        class_weights: Total weight of each class.
    """

    space: Space
    means: Tensor
    total: float
    class_weights: Tensor


@torch.no_grad()
def logit_gradients(problem: Problem, name: str, space: Space = "outputs") -> LogitGradients:
    """Average the gradients of every logit in a layer's outputs or weights over the samples of each class.

    Args:
        problem: Problem with a cross-entropy loss and logits as outputs.
        name: Name of a linear layer or a convolution without groups.
        space: "outputs" or "weights". Defaults to "outputs".

    Returns:
        LogitGradients: means by class, and the total.

    Raises:
        InvalidInput: If the outputs are not logits, the layer is of another kind, or a class has no sample.

    Notes:
        Equations 269 and 270 of Wu et al. (2022): E[Q dz/dw | y = i], row by row.
    """
    require_name("space", space, ("outputs", "weights"))
    require_logits(problem)
    layer, classes = find_layer(problem, name), problem.output_dim
    got = f"'{name}' is of kind {layer.kind}"
    require(layer.is_plain, "gradients of logits need a linear layer or a convolution without groups", got)
    entries = layer.size if space == "weights" else layer.num_positions * layer.num_outputs
    sums = torch.zeros(classes, classes, entries, dtype=torch.float64)
    total_weight = torch.zeros(classes, dtype=torch.float64)
    total = 0.0
    for data, targets, weights in problem.batches(samples_at_once(problem, layer)):
        found = layer_jacobian(problem, layer, data)
        root = problem.loss.hessian_factor(found.outputs, targets).mT
        rows = (root @ found.jacobian).reshape(len(targets), classes, layer.num_positions, layer.num_outputs)
        inputs = layer.unfolded_inputs(found.flat_inputs)
        for label in range(classes):
            chosen = targets == label
            own, share = rows[chosen], weights[chosen]
            total_weight[label] += to_host(share.sum())
            weighted = share[:, None, None, None] * own
            if space == "weights":
                mean = torch.einsum("njpm,npa->jma", weighted, inputs[chosen])
                squares = torch.einsum("njpm,npa->njma", own, inputs[chosen]).square().sum((1, 2, 3))
            else:
                mean, squares = weighted.sum(0), own.square().sum((1, 2, 3))
            sums[label] += to_host(mean.reshape(classes, -1))
            total += float(share @ squares)
    must, got = "every class must have a sample", f"labels {total_weight.eq(0).nonzero().flatten().tolist()} have none"
    require(bool((total_weight > 0).all()), must, got)
    return LogitGradients(
        space, sums / total_weight[:, None, None], total / float(total_weight.sum()), total_weight / total_weight.sum()
    )
