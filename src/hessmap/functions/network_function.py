"""A network as a function of its inputs, frozen at the moment of the call, with the points at which it is evaluated.

At a kink (a ReLU at 0, a maximum that is attained twice, the ends of a hard tanh) torch returns a derivative that need
not be one of the function: relu(x) - relu(-x) is the identity, and torch's derivative at 0 is 0. ``function_off_kinks``
moves such points beside the kink.

``representations`` is what enters and leaves every weight of a network, for all samples.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, NotReproducible, UnsupportedNetwork, require, sentence
from hessmap.linalg import Fallbacks
from hessmap.networks import Rules, activation_kind, is_elementwise, sequential_layers
from hessmap.problem import (
    LayerCall,
    OperationRewriter,
    Recorder,
    coupled_samples,
    fitting_inputs,
    noting_forward,
    private_copy,
    tensor_or_same,
)
from hessmap.records import Provenance, data_hash, provenance

_TOGETHER = 1024  # samples, and how many of them are evaluated once more to see whether they see each other
_FEW_ROWS = 8
_RULES = Rules("a sequence of layers is a tree of nn.Sequentials", "Its Jacobians go through autograd")


def plain_layers(model: nn.Module) -> tuple[nn.Module, ...]:
    """The layers that a model applies one after another, each to everything that the one before it returned.

    Only exact types of torch and of this library without children count: any other module, also a subclass of
    nn.Linear, may keep its inputs for a later one.

    Args:
        model: The model.

    Returns:
        The layers; none if the model may do something else.

    Example:
        >>> [type(layer).__name__ for layer in plain_layers(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU())))]
        ['Linear', 'ReLU']
    """
    try:
        layers = tuple(layer for _, layer in sequential_layers(model, _RULES))
    except UnsupportedNetwork:
        return ()
    return layers if all(_is_plain(layer) for layer in layers) else ()


def _is_plain(layer: nn.Module) -> bool:
    kind = type(layer)
    is_known = kind.__module__.startswith("torch.nn.modules.") or is_elementwise(layer)
    return is_known and not layer._modules


class NetworkFunction:
    """A float64 copy of a model with fixed weights, and samples: a map from inputs to vectors of outputs.

    Args:
        model: Any module that maps a batch of inputs to one vector per sample. It is copied and not changed.
        inputs: At least two samples, a tensor or an array.

    Attributes:
        model: The copy.
        inputs: The samples in float64, on the host.
        output_dim: Number of outputs.
        fallbacks: How often a slower method was used because a faster one failed.
        notes: What was done to the model, and the fallbacks, in words.

    Raises:
        InvalidInput: If the inputs are not finite or do not fit the model, or outputs are not finite vectors.
        NotReproducible: If the model is random, or its samples depend on each other.
    """

    def __init__(self, model: nn.Module, inputs: Any) -> None:
        require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
        self.inputs = _samples(inputs)
        self.model, self._copy_notes = private_copy(model, device=torch.device("cpu"))
        first = next(iter(model.parameters()), None)
        if first is not None and first.device.type != "cpu":
            self._copy_notes += (f"the model was copied from {first.device} to the host",)
        self.fallbacks = Fallbacks()
        for parameter in self.model.parameters():
            parameter.requires_grad_(False)
        self._origin = provenance(data_hash=data_hash(self.inputs.numpy()))
        self._probe()

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self._copy_notes, *self.fallbacks.notes)

    @property
    def provenance(self) -> Provenance:
        return replace(self._origin, notes=self.notes)

    def _probe(self) -> None:
        few = self.inputs[:3]
        with fitting_inputs(few):
            first = self.outputs(few)
        second, alone = self.outputs(few), self.outputs(few[:1])
        self.output_dim = int(first.shape[1])
        if not torch.equal(first, second):
            remedy = "Disable randomness, for example with model.eval()"
            got = "two evaluations on the same samples disagree"
            raise NotReproducible(sentence("the model must be a function of its inputs", got, remedy))
        most = self.inputs[:_TOGETHER]
        rows = torch.linspace(0, len(most) - 1, min(_FEW_ROWS, len(most) // 2)).long()
        together, some = self.outputs(most), self.outputs(most[rows])
        for own, among, count in ((alone, first[:1], len(few)), (some, together[rows], len(most))):
            if not torch.allclose(own, among, rtol=1e-8, atol=1e-10 * float(among.abs().max())):
                raise coupled_samples(count)

    def at(self, inputs: Tensor) -> NetworkFunction:
        """The same function at other points of the same shape; its provenance stays that of the samples."""
        other = copy.copy(self)
        other.inputs = inputs
        return other

    @property
    def num_samples(self) -> int:
        return len(self.inputs)

    @property
    def input_dim(self) -> int:
        return self.inputs[0].numel()

    def __call__(self, inputs: Tensor) -> Tensor:
        """Outputs (num_samples, output_dim); a refusal if they are no vectors."""
        shape = tuple(inputs.shape)
        with noting_forward(inputs), OperationRewriter():
            outputs = self.model(inputs)
        must = "the model must return one vector of outputs per sample"
        if not isinstance(outputs, Tensor):
            raise InvalidInput(sentence(must, f"it returned a {type(outputs).__name__}"))
        got = f"inputs of shape {shape} gave outputs of shape {tuple(outputs.shape)}"
        require(outputs.ndim == 2 and len(outputs) == len(inputs), must, got, "Flatten what it returns")
        return outputs

    def vjp(self, inputs: Tensor, cotangents: Tensor) -> Tensor:
        """J^T c of every sample, (num_samples, input_dim), for cotangents (num_samples, output_dim)."""
        leaf = inputs.clone().requires_grad_()
        with torch.enable_grad():
            outputs = self(leaf + 0.0)  # an in-place first layer must not write into the leaf
            if not outputs.requires_grad:  # the outputs do not depend on the inputs
                return torch.zeros_like(leaf).flatten(1)
            (gradient,) = torch.autograd.grad(outputs, leaf, cotangents, materialize_grads=True)
        return gradient.flatten(1)

    @torch.no_grad()
    def outputs(self, inputs: Tensor) -> Tensor:
        """The outputs alone, not to be differentiated; refused if they are not finite."""
        found = self(inputs)
        remedy = "Look for weights or inputs that are too large"
        is_finite = bool(torch.isfinite(found).all())
        require(is_finite, "activations must be finite", "the outputs hold NaN or inf", remedy)
        return found


def _samples(inputs: Any) -> Tensor:
    values = tensor_or_same(inputs)
    require(isinstance(values, Tensor), "inputs must be a tensor or an array", f"got {type(inputs).__name__}")
    is_plain, got = values.layout == torch.strided and not values.is_meta, f"got {values.layout} on {values.device}"
    require(is_plain and not values.is_complex(), "inputs must be plain dense tensors of real numbers", got)
    must = "the rank of a function needs at least two samples"
    require(values.ndim >= 2 and len(values) >= 2, must, f"got inputs of shape {tuple(values.shape)}")
    found: Tensor = values.detach().to("cpu", torch.float64, copy=True)
    require(bool(torch.isfinite(found).all()), "inputs must be finite", "there is NaN or inf")
    return found


# How far a point is moved, of its largest entry: far above rounding, far below what changes a smooth function.
_STEP = 2.0**-26
# Gradients that differ by more than this of the larger one, at so small a distance, lie on two sides of a kink.
_JUMP = 1e-4
_AT_ONCE = 2**11  # samples


def points_beside(points: Tensor, seed: int, step: float = _STEP) -> Tensor:
    """The points, each moved in a random direction by about ``step`` times its largest entry.

    >>> points = torch.tensor([[4.0, 0.0]], dtype=torch.float64)
    >>> (points_beside(points, seed=0) - points).abs().max().item() < 1e-6
    True
    """
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(points.shape, generator=generator, dtype=torch.float64)
    sizes = points.flatten(1).abs().amax(dim=1)
    whole = float(sizes.max()) or 1.0
    sizes = torch.where(sizes > 0, sizes, whole).reshape(-1, *[1] * (points.ndim - 1))
    return points + step * sizes * directions


def is_on_kink(function: NetworkFunction, seed: int = 0) -> Tensor:
    """Which points sit on a kink: the gradient of a random combination of outputs jumps there.

    It is compared with the gradients a little to both sides along a random direction, and a jump must not shrink with
    the distance, as the change of a smooth function does. A kink that does not change the function on either side (a
    unit of zero weights, which sits at 0 wherever it is asked) is none.
    """
    found = torch.zeros(function.num_samples, dtype=torch.bool)
    for start in range(0, function.num_samples, _AT_ONCE):
        points = function.inputs[start : start + _AT_ONCE]
        jumps, size = _jumps(function, points, seed, _STEP)
        in_doubt = torch.nonzero(jumps > _JUMP * size).squeeze(1)
        if len(in_doubt):
            nearer, _ = _jumps(function, points, seed, _STEP / 16)
            found[start + in_doubt] = nearer[in_doubt] > 0.5 * jumps[in_doubt]
    return found


def function_off_kinks(function: NetworkFunction, seed: int = 0) -> tuple[NetworkFunction, int]:
    """Move points that are on a kink of a function beside it, and keep all others.

    Args:
        function: The network and its points.
        seed: Seed of the directions. Defaults to 0.

    Returns:
        The function at the new points, and the number of points that were moved.
    """
    found = is_on_kink(function, seed)
    if not found.any():
        return function, 0
    points = function.inputs.clone()
    points[found] = points_beside(function.inputs, seed)[found]
    return function.at(points), int(found.sum())


def _jumps(function: NetworkFunction, points: Tensor, seed: int, step: float) -> tuple[Tensor, Tensor]:
    """By how much the gradient at each point differs from that beside it, on the worse side, and its size there."""
    generator = torch.Generator().manual_seed(seed + 1)
    mixture = torch.randn(len(points), function.output_dim, generator=generator, dtype=torch.float64)
    ahead = points_beside(points, seed, step)
    here, one, other = (function.vjp(values, mixture) for values in (points, ahead, 2 * points - ahead))
    jumps = torch.maximum((here - one).norm(dim=1), (here - other).norm(dim=1))
    return jumps, torch.stack([part.norm(dim=1) for part in (here, one, other)]).amax(dim=0)


@dataclass(frozen=True, eq=False)
class Representation:
    """One use of a weight in a forward pass. All tensors have the samples as rows.

    Args:
        name: Name of the layer.
        weight: The weight as a matrix, one row per output unit or channel.
        bias: The bias, or None.
        entering: Inputs of the layer.
        before: Pre-activations, the outputs of the layer.
        after: Inputs of the next weight; for the last one the outputs of the network.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    entering: Tensor
    before: Tensor
    after: Tensor


@torch.no_grad()
def representations(function: NetworkFunction) -> list[Representation]:
    """The linear maps and convolutions of a forward pass, with what enters and leaves them.

    Args:
        function: The network and its points.

    Returns:
        One ``Representation`` per use of a weight, in the order of the pass.

    Raises:
        UnsupportedNetwork: If no linear map or convolution has the samples as rows.
        InvalidInput: If activations are not finite.
    """
    parameters = dict(function.model.named_parameters())
    layers = _LayerValues()
    with Recorder(parameters, layers).reading():
        outputs = function(function.inputs)
    count = function.num_samples
    calls = [(name, call, leaving) for name, call, leaving in layers.found if leaving.shape[0] == count]
    if not calls:
        must = "a view of the layers needs linear layers or convolutions"
        raise UnsupportedNetwork(
            sentence(must, f"{type(function.model).__name__} has none that is applied to the samples")
        )
    entered = [call.inputs.reshape(count, -1) for _, call, _ in calls]
    seen = [*entered[1:], outputs]
    found = []
    for (name, call, leaving), entering, after in zip(calls, entered, seen, strict=True):
        before = leaving.reshape(count, -1)
        layer = name.rpartition(".")[0] or name
        is_finite = bool(torch.isfinite(before).all() and torch.isfinite(after).all())
        require(is_finite, "activations must be finite", f"layer '{layer}' gives NaN or inf")
        bias = parameters.get(f"{name.rpartition('.')[0]}.bias".lstrip("."))
        found.append(Representation(layer, _value_of(call).flatten(1), bias, entering, before, after))
    return found


def _value_of(call: LayerCall) -> Tensor:
    assert call.weight_value is not None
    return call.weight_value


class _LayerValues:
    """The linear maps and convolutions of a pass, with what left them."""

    def __init__(self) -> None:
        self.found: list[tuple[str, LayerCall, Tensor]] = []

    def layer_outputs(self, call: LayerCall) -> Tensor:
        outputs = call.outputs()
        if call.kind in ("linear", "convolution") and call.weight is not None and not call.transposed:
            self.found.append((call.weight.name, call, outputs))
        return outputs


def is_chain(function: NetworkFunction) -> bool:
    """Check whether a function is a sequence of layers, so that it passes through every representation alone.

    Args:
        function: The network and its points.

    Returns:
        True if the model applies at least two known layers one after another and nothing else.
    """
    return len(plain_layers(function.model)) > 1


def affine_layers(model: nn.Module) -> list[nn.Linear] | None:
    """The linear layers of a fully connected network whose activations are contractions.

    Args:
        model: The model.

    Returns:
        The layers in order; None if the model has other layers, or an activation whose slope may exceed 1.
    """
    layers = plain_layers(model)
    linear = [layer for layer in layers if isinstance(layer, nn.Linear) and type(layer) is nn.Linear]
    is_fine = all(_is_contraction(layer) for layer in layers if type(layer) is not nn.Linear)
    return linear if linear and is_fine else None


def _is_contraction(layer: nn.Module) -> bool:
    if type(layer) in (nn.Flatten, nn.Unflatten, nn.Dropout):
        return True
    kind = activation_kind(layer)
    return kind is not None and kind.largest_slope is not None and kind.largest_slope(layer) <= 1
