"""Products, dense derivatives and sizes of multilayer perceptrons (MLPs) by hand: matrix products and little else.

V is a tangent of the weights; d is the derivative along it. With a the inputs of a layer, z its outputs, g = dloss/dz,

    forwards    dz = V a + W da,   da = s dz        s = activation'(z)
    outputs     dg = A dz                           A = d2loss/doutput2
    backwards   dW = dg a^T + g da^T,   dg = s (W^T dg + V^T g) + b dz      b = activation''(z) (W^T g)

(Pearlmutter 1994). H_o keeps A and drops every term with g; H_f does the reverse; the empirical Fisher matrix has
(dloss/doutput)(dloss/doutput)^T for A. Samples come first, then vectors: rows of (samples, vectors, units) are ready
for the next product without a copy.

Dense Hessians need the derivatives along perturbations of the outputs. For the units e of one layer k and the layers m
from k on, with the same s, b and A,

    forwards    dz_k = e,   da_m = s dz_(m-1),   dz_m = W da_m
    outputs     dg = A dz
    backwards   dg_m = s (W^T dg_(m+1)) + b dz_m

dg is ``curvature`` and da ``input_tangents`` of ``SecondDerivatives``, also for the outer-product term. Samples are
innermost in memory, as ``dense_assembly`` reads them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork
from hessmap.hessians.dense_assembly import Network, SecondDerivatives
from hessmap.linalg import rows_that_fit
from hessmap.networks import Rules, is_elementwise, sequential_layers

if TYPE_CHECKING:
    from hessmap.losses import Loss
    from hessmap.problem import Problem


_RULES = Rules("an MLP has linear layers and elementwise activations alone", "Its products go through autograd")
# Sizes for two CPU cores; benchmarks/peers/rows.py times products of MLPs, benchmarks/dense_hessian.py their matrices.
_FEWEST_SAMPLES, _ENTRIES = 256, 2**17  # samples at once: as many as keep a layer's numbers in the cache
_BLOCK = 16  # vectors multiplied at once, at most
_COPIES = 8  # of a layer's numbers that a product holds at once


@dataclass(frozen=True)
class DenseLayer:
    """z = W a + b, then an activation of every z on its own (none after the last layer)."""

    weight: str
    bias: str | None
    activation: nn.Module | None


def as_mlp(problem: Problem) -> tuple[DenseLayer, ...] | None:
    """The layers of a problem's model from inputs to outputs, or None if it is not an MLP.

    Its parameters must all be there, and be nothing but the weights and biases of the layers; every layer must be of
    the very type that is known, with nothing hooked into it.
    """
    if problem.user_forward is not None:
        return None
    try:
        layers = _dense_layers(problem.model)
    except UnsupportedNetwork:
        return None
    names = [name for layer in layers for name in (layer.weight, layer.bias) if name is not None]
    return layers if layers and names == list(problem.named) else None


def flat_inputs(problem: Problem, inputs: object) -> Tensor | None:
    """One row per sample; None if a sample is no vector that the first layer takes as a whole."""
    if not isinstance(inputs, Tensor):
        return None
    flattens = any(type(layer) is nn.Flatten for layer in problem.model.modules())
    return inputs if inputs.ndim == 2 else inputs.flatten(1) if flattens else None


def _dense_layers(model: nn.Module) -> tuple[DenseLayer, ...]:
    found: list[DenseLayer] = []
    layers: list[tuple[str, nn.Module]] = []
    for name, layer in sequential_layers(model, _RULES):
        if type(layer) is nn.Linear:
            prefix = f"{name}." if name else ""
            found.append(DenseLayer(f"{prefix}weight", f"{prefix}bias" if layer.bias is not None else None, None))
            layers.append((name, layer))
        elif not found and type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            continue
        elif is_elementwise(layer) and found and found[-1].activation is None:
            found[-1] = DenseLayer(found[-1].weight, found[-1].bias, layer)
        elif type(layer) is not nn.Identity:
            _RULES.refuse(name, layer, "is not a supported part of an MLP")
    _RULES.refuse_shared(layers)
    if found and found[-1].activation is not None:
        _RULES.refuse("", model, "ends in an activation")
    return tuple(found)


def activation_derivatives(layer: DenseLayer, before: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The activation and its first two derivatives at every z; None for a second one that vanishes."""
    if layer.activation is None:
        return before, torch.ones_like(before), None
    point = before.detach().requires_grad_()
    second = None
    with torch.enable_grad():
        value = layer.activation(point.clone())  # it may work in place
        (slope,) = torch.autograd.grad(value.sum(), point, create_graph=True)
        if slope.requires_grad:
            (second,) = torch.autograd.grad(slope.sum(), point, allow_unused=True)
    vanishes = second is None or not bool(second.any())
    return value.detach(), slope.detach(), None if vanishes else second


@dataclass(frozen=True)
class MlpLayer:
    """A layer on some samples: its inputs a, first derivatives s of its activation and second ones b (samples, 1,
    outputs), gradients g of its outputs."""

    weight: Tensor
    has_bias: bool
    inputs: Tensor
    slope: Tensor | None
    second_derivative: Tensor | None
    gradient: Tensor | None


@dataclass(frozen=True)
class Tangents:
    """Rows of vectors as the layers need them: of the weights (vectors, outputs, inputs), of the biases, and of the
    weights once more as (outputs, vectors * inputs)."""

    weights: list[Tensor]
    biases: list[Tensor | None]
    outputs_first: list[Tensor]


class MlpProduct:
    """The product of one of the three Hessians with rows of vectors, over samples that come in pieces."""

    def __init__(self, pieces: Sequence[MlpSamples]) -> None:
        self.pieces = pieces

    @torch.no_grad()
    def __call__(self, rows: Tensor) -> Tensor:
        tangents = self._tangents(rows)
        weights = [torch.zeros_like(tangent) for tangent in tangents.weights]
        biases = [None if bias is None else torch.zeros_like(bias) for bias in tangents.biases]
        for piece in self.pieces:
            piece.add_product(tangents, weights, biases)
        parts: list[Tensor] = []
        for weight, bias in zip(weights, biases, strict=True):
            parts += [weight.flatten(1)] if bias is None else [weight.flatten(1), bias]
        return torch.cat(parts, 1)

    def _tangents(self, rows: Tensor) -> Tangents:
        weights: list[Tensor] = []
        biases: list[Tensor | None] = []
        start = 0
        for step in self.pieces[0].steps:
            outputs, inputs = step.weight.shape
            stop = start + outputs * inputs
            weights.append(rows[:, start:stop].reshape(-1, outputs, inputs).contiguous())
            biases.append(rows[:, stop : stop + outputs] if step.has_bias else None)
            start = stop + outputs * step.has_bias
        outputs_first = [weight.transpose(0, 1).reshape(weight.shape[1], -1) for weight in weights]
        return Tangents(weights, biases, outputs_first)


@dataclass(frozen=True)
class MlpSamples:
    """Some samples: the layers, and the second derivative of the loss in its outputs, one a sample."""

    steps: Sequence[MlpLayer]
    curvature: Tensor | None

    def add_product(self, tangents: Tangents, weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> None:
        output_tangents, input_tangents = self._forwards(tangents)
        gradient_tangent = self._curvature_product(output_tangents[-1])
        for place in reversed(range(len(self.steps))):
            step, weight, bias = self.steps[place], weights[place], biases[place]
            count, outputs, inputs = weight.shape
            weight.view(-1, inputs).addmm_(gradient_tangent.flatten(1).T, step.inputs)
            if bias is not None:
                bias += gradient_tangent.sum(0)
            if place == 0:
                return
            if step.gradient is not None:
                mixed = step.gradient.T @ input_tangents[place - 1].flatten(1)
                weight += mixed.view(outputs, count, inputs).transpose(0, 1)
            gradient_tangent = self._backwards(
                place, gradient_tangent, tangents.outputs_first[place], output_tangents[place - 1]
            )

    def _forwards(self, tangents: Tangents) -> tuple[list[Tensor], list[Tensor]]:
        """The tangents of the outputs of every layer, and of the inputs of all but the first."""
        of_outputs: list[Tensor] = []
        of_inputs: list[Tensor] = []
        for step, weight, bias in zip(self.steps, tangents.weights, tangents.biases, strict=True):
            count, outputs, inputs = weight.shape
            tangent = (step.inputs @ weight.view(-1, inputs).T).view(-1, count, outputs)
            if of_inputs:
                tangent.view(-1, outputs).addmm_(of_inputs[-1].view(-1, inputs), step.weight.T)
            if bias is not None:
                tangent += bias
            of_outputs.append(tangent)
            if step.slope is not None:
                of_inputs.append(tangent * step.slope)
        return of_outputs, of_inputs

    def _curvature_product(self, tangent: Tensor) -> Tensor:
        """The second derivative of the loss times the tangents of the outputs."""
        if self.curvature is None:
            return torch.zeros_like(tangent)
        if tangent.shape[1] == 1:  # a call for every sample would cost more than its numbers
            return (self.curvature * tangent).sum(2)[:, None]
        return torch.bmm(tangent, self.curvature)

    def _backwards(self, place: int, tangent: Tensor, weight_tangents: Tensor, output_tangent: Tensor) -> Tensor:
        """From the tangent of the gradient by a layer's outputs to that by the outputs of the layer before."""
        step, before = self.steps[place], self.steps[place - 1]
        assert before.slope is not None
        outputs, inputs = step.weight.shape
        flat = tangent.view(-1, outputs)
        if step.gradient is None:
            found = flat @ step.weight
        else:
            found = (step.gradient @ weight_tangents).view(-1, inputs).addmm_(flat, step.weight)
        found = found.view(output_tangent.shape).mul_(before.slope)
        second = before.second_derivative
        return found if second is None else found.addcmul_(output_tangent, second)


def mlp_samples(problem: Problem, layers: Sequence[DenseLayer]) -> int:
    """How many samples are worth a product together, and fit the budget with one vector."""
    useful = max(_FEWEST_SAMPLES, _ENTRIES // _widest(problem, layers))
    return rows_that_fit(problem.memory_budget, _bytes_per_sample(problem, layers), useful)


def mlp_columns(problem: Problem, layers: Sequence[DenseLayer]) -> int:
    """How many vectors are multiplied together: a few, which fit the budget on that many samples."""
    needed = min(problem.num_samples, mlp_samples(problem, layers)) * _bytes_per_sample(problem, layers)
    return rows_that_fit(problem.memory_budget, needed, _BLOCK)


def _widest(problem: Problem, layers: Sequence[DenseLayer]) -> int:
    return max(len(problem.named[layer.weight]) for layer in layers)


def _bytes_per_sample(problem: Problem, layers: Sequence[DenseLayer]) -> int:
    return _COPIES * problem.parameters.element_size() * _widest(problem, layers)


def mlp_product(
    problem: Problem, layers: Sequence[DenseLayer], batch: tuple[Any, Tensor, Tensor], part: str
) -> MlpProduct | None:
    """The product of a batch, or None if its inputs are not those of an MLP."""
    inputs = flat_inputs(problem, batch[0])
    if inputs is None:
        return None
    targets, weights = batch[1:]
    size = mlp_samples(problem, layers)
    places = (slice(start, start + size) for start in range(0, len(inputs), size))
    return MlpProduct(
        [mlp_samples_of(problem, layers, inputs[place], targets[place], weights[place], part) for place in places]
    )


def output_curvature(loss: Loss, part: str, outputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """A of J^T A J, times the weights of the samples: (samples, outputs, outputs)."""
    if part != "empirical_fisher":
        return weights[:, None, None] * loss.hessian(outputs, targets)
    slopes = loss.gradient(outputs, targets)
    return (weights[:, None] * slopes)[:, :, None] * slopes[:, None]


def has_functional_term(part: str) -> bool:
    """Whether second derivatives of the outputs enter."""
    return part in ("loss", "functional")


@torch.no_grad()
def mlp_samples_of(
    problem: Problem, layers: Sequence[DenseLayer], inputs: Tensor, targets: Tensor, weights: Tensor, part: str
) -> MlpSamples:
    entering, slopes, seconds = [inputs], [], []
    for layer in layers:
        bias = None if layer.bias is None else problem.named[layer.bias]
        outputs = F.linear(entering[-1], problem.named[layer.weight], bias)
        value, slope, second = activation_derivatives(layer, outputs)
        entering.append(value)
        slopes.append(slope)
        seconds.append(second)
    outputs = entering.pop()
    curvature = output_curvature(problem.loss, part, outputs, targets, weights) if part != "functional" else None
    gradient = weights[:, None] * problem.loss.gradient(outputs, targets) if has_functional_term(part) else None
    steps: list[MlpLayer] = []
    for place in reversed(range(len(layers))):
        layer, is_last = layers[place], place == len(layers) - 1
        weight, second = problem.named[layer.weight], seconds[place]
        if gradient is not None and not is_last:
            by_activation = gradient @ problem.named[layers[place + 1].weight]
            second = None if second is None else (second * by_activation).to(inputs.dtype)
            gradient = by_activation * slopes[place]
        steps.append(
            MlpLayer(
                weight.detach(),
                layer.bias is not None,
                entering[place],
                None if is_last else slopes[place][:, None],
                second[:, None] if second is not None and gradient is not None else None,
                None if gradient is None else gradient.to(inputs.dtype),
            )
        )
    return MlpSamples(steps[::-1], None if curvature is None else curvature.to(inputs.dtype))


_FEW_OUTPUTS = 32  # up to which the loss Hessian is multiplied output by output, not sample by sample


def perturbed_mlp(network: Network) -> tuple[DenseLayer, ...] | None:
    """The layers of an MLP whose calls are all of its calls, in their order."""
    layers = as_mlp(network.problem)
    if layers is None or not all(call.is_plain for call in network.calls):
        return None
    used = [part and part.name for call in network.calls for part in (call.weight, call.bias)]
    return layers if used == [name for layer in layers for name in (layer.weight, layer.bias)] else None


def mlp_derivatives(piece: MlpSamples, first: int, outputs: slice) -> SecondDerivatives:
    """The second derivatives along some outputs of a layer, from that layer on."""
    steps = piece.steps[first:]
    forwards, entering = _forwards(steps, outputs)
    tangent = _at_outputs(piece.curvature, forwards[-1])
    curvature = [tangent]
    for step, later, moved in zip(steps[-2::-1], steps[:0:-1], forwards[-2::-1], strict=True):
        assert step.slope is not None
        tangent = (later.weight.T @ tangent).mul_(_samples_last(step.slope))
        if step.second_derivative is not None:
            tangent.addcmul_(moved, _samples_last(step.second_derivative))
        curvature.append(tangent)
    has_gradient = steps[0].gradient is not None
    return SecondDerivatives(
        [item.mT for item in curvature[::-1]], [item.mT for item in entering] if has_gradient else []
    )


def _forwards(steps: Sequence[MlpLayer], outputs: slice) -> tuple[list[Tensor], list[Tensor]]:
    """Tangents (directions, units, samples) of what leaves the layers, and of what enters all but the first."""
    own, samples = steps[0], len(steps[0].inputs)
    units = torch.eye(len(own.weight), dtype=own.weight.dtype)[outputs]
    leaving, entering = [units[:, :, None].expand(-1, -1, samples)], list[Tensor]()
    for step, later in itertools.pairwise(steps):
        assert step.slope is not None
        entering.append(leaving[-1] * _samples_last(step.slope))
        leaving.append(later.weight @ entering[-1])
    return leaving, entering


def _at_outputs(curvature: Tensor | None, tangent: Tensor) -> Tensor:
    """The second derivative of the loss times tangents: few outputs go one by one, over all samples."""
    found = torch.zeros(tangent.shape, dtype=tangent.dtype)
    if curvature is None:
        return found
    if tangent.shape[1] > _FEW_OUTPUTS:
        return torch.bmm(curvature, tangent.permute(2, 1, 0)).permute(2, 1, 0).contiguous()
    rows = curvature.permute(1, 2, 0).contiguous()
    for place in range(tangent.shape[1]):
        found.addcmul_(rows[:, place], tangent[:, place, None])
    return found


def _samples_last(values: Tensor) -> Tensor:
    """(units, samples) of (samples, 1, units)."""
    return values[:, 0].T.contiguous()
