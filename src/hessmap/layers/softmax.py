"""The weights behind a layer and how active the units between them are, for closed forms of the output factor.

What is special where the outputs are logits: the softmax Hessian, gradients of logits, weights behind a layer."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, require, require_name, sentence
from hessmap.layers.batches import layer_jacobian, samples_at_once
from hessmap.layers.layer import Layer, find_layer, layer_names
from hessmap.losses import CrossEntropy
from hessmap.problem import LayerCall, Problem, num_rows, recording_of, replay, vjp_rows


@dataclass(frozen=True, eq=False)
class Tail:
    """Behind layer p: ``weights`` W^(p+1), .., W^(L), and ``slopes`` q^(p), .., q^(L-1), the mean derivative of each
    activation, unit by unit: for ReLU the fraction of samples on which the unit is active."""

    weights: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]


@torch.no_grad()
def fully_connected_tail(problem: Problem, name: str) -> Tail:
    """The linear layers behind one, if nothing but element-wise maps (ReLU, frozen batch-norm) lies between them."""
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
    slopes = tuple(_mean_slopes(problem, before, after) for before, after in pairwise(chain))
    return Tail(tuple(problem.named[layer.weight] for layer in chain[1:]), slopes)


def _mean_slopes(problem: Problem, before: Layer, after: Layer) -> Tensor:
    """The mean diagonal of d(input of the next layer)/dz, which must be diagonal."""
    total, mass = torch.zeros(before.num_outputs, dtype=torch.float64), float(problem.weights.sum())
    generator = torch.Generator().manual_seed(0)
    for data, _, weights in problem.batches(4096):

        def entering(perturbation: Tensor, data: Any = data) -> Tensor:
            found = dict[int, Tensor]()
            (number, use), (later, _) = before.uses[0], after.uses[0]

            def at_use(at: int, call: LayerCall) -> Tensor:
                found[at] = call.inputs
                outputs = call.outputs()
                if at != number:
                    return outputs
                return outputs + use.row_outputs(perturbation[..., None], tuple(outputs.shape))

            replay(problem, recording_of(problem), data, (number, later), at_use)
            return found[later].reshape(num_rows(data), -1)

        zero = problem.parameters.new_zeros(num_rows(data), before.num_outputs).requires_grad_()
        with torch.enable_grad():
            values = entering(zero)
        if values.shape[1] != before.num_outputs:
            raise _unsupported_error(before.name, f"'{after.name}' takes {values.shape[1]} inputs")
        random = torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values)
        cotangents = torch.stack([torch.ones_like(random), random])
        slopes, images = vjp_rows([values], [zero], [cotangents], together=False)[0]
        if not torch.allclose(images, random * slopes, rtol=1e-10, atol=1e-12):
            raise _unsupported_error(before.name, f"units are mixed on the way to '{after.name}'")
        total += weights @ slopes
    return total / mass


def _unsupported_error(name: str, got: str) -> UnsupportedNetwork:
    must = f"weights behind layer '{name}' must follow each other with element-wise maps between"
    return UnsupportedNetwork(sentence(must, got, "Use layer_factors for the measured output factor"))


Space = Literal["outputs", "weights"]
_SAMPLES = 4096


def require_logits(problem: Problem) -> None:
    """Raise unless the loss is a softmax cross-entropy with labels and the outputs are what softmax is taken of."""
    labels = problem.samples.first[1]
    is_softmax = isinstance(problem.loss, CrossEntropy) and not labels.is_floating_point()
    must = "this needs a network whose outputs are logits under cross-entropy with labels"
    got = f"the loss is '{problem.loss.name}' and the network has {problem.output_dim} outputs"
    require(is_softmax and problem.output_dim >= 2, must, got, 'Use loss="cross_entropy"')
    few = problem.forward(problem.named, problem.few_samples(16)[0]).detach()
    for values, kind in ((few, "probabilities"), (few.exp(), "logarithms of probabilities")):
        sums_to_one = bool(torch.allclose(values.sum(1), few.new_ones(len(few)), rtol=0, atol=1e-6))
        got = f"the outputs look like {kind}: they are not negative and sum to one in every sample"
        got = got if kind == "probabilities" else f"the outputs look like {kind}"
        require(not (sums_to_one and bool((values >= 0).all())), must, got, "Remove the softmax from the network")


def mean_output_hessian(problem: Problem) -> Tensor:
    """E[A], A = diag(p) - p p^T the second derivative of the loss in the logits."""
    require_logits(problem)
    total = torch.zeros(problem.output_dim, problem.output_dim, dtype=torch.float64)
    with torch.no_grad():
        for inputs, targets, weights in problem.batches(_SAMPLES):
            outputs = problem.forward(problem.named, inputs)
            total += torch.einsum("n,nab->ab", weights, problem.loss.hessian(outputs, targets))
    return total


@dataclass(frozen=True, eq=False)
class LogitGradients:
    """Mean logit gradients, (classes, logits, entries), and E[sum_j ||g_j||^2], of which they hold a part.

    g_j is row j of Q G (in outputs) or that row times the input (in weights), where Q^T Q = A.
    """

    space: Space
    means: Tensor
    total: float
    class_weights: Tensor


@torch.no_grad()
def logit_gradients(problem: Problem, name: str, space: Space = "outputs") -> LogitGradients:
    """Gradients of every logit in a layer's outputs or weights, averaged over the samples of every class.

    Equations 269 and 270 of Wu et al. (2022): E[Q dz/dw | y = i], row by row.
    """
    require_name("space", space, ("outputs", "weights"))
    require_logits(problem)
    layer, classes = find_layer(problem, name), problem.output_dim
    got = f"'{name}' is of kind {layer.kind}"
    require(layer.is_plain, "gradients of logits need a linear layer or a convolution without groups", got)
    entries = layer.size if space == "weights" else layer.num_positions * layer.num_outputs
    sums = torch.zeros(classes, classes, entries, dtype=torch.float64)
    mass = torch.zeros(classes, dtype=torch.float64)
    total = 0.0
    for data, targets, weights in problem.batches(samples_at_once(problem, layer)):
        found = layer_jacobian(problem, layer, data)
        root = problem.loss.hessian_root(found.outputs, targets).mT
        rows = (root @ found.jacobian).reshape(len(targets), classes, layer.num_positions, layer.num_outputs)
        inputs = layer.unfolded_inputs(found.entering)
        for label in range(classes):
            chosen = targets == label
            own, share = rows[chosen], weights[chosen]
            mass[label] += share.sum()
            weighted = share[:, None, None, None] * own
            if space == "weights":
                mean = torch.einsum("njpm,npa->jma", weighted, inputs[chosen])
                squares = torch.einsum("njpm,npa->njma", own, inputs[chosen]).square().sum((1, 2, 3))
            else:
                mean, squares = weighted.sum(0), own.square().sum((1, 2, 3))
            sums[label] += mean.reshape(classes, -1)
            total += float(share @ squares)
    must, got = "every class must have a sample", f"labels {mass.eq(0).nonzero().flatten().tolist()} have none"
    require(bool((mass > 0).all()), must, got)
    return LogitGradients(space, sums / mass[:, None, None], total / float(mass.sum()), mass / mass.sum())
