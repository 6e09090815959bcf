"""What enters and leaves every weight of a network, for all samples."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.functions.network_function import NetworkFunction, plain_layers
from hessmap.networks import activation_kind
from hessmap.problem import LayerCall, Recorder


@dataclass(frozen=True, eq=False)
class Representation:
    """One use of a weight: what entered, the pre-activations, what the next weight saw (the outputs, for the last).

    All have the samples as rows. ``weight`` is a matrix, a row per output unit or channel.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    entering: Tensor
    before: Tensor
    after: Tensor


@torch.no_grad()
def representations(function: NetworkFunction) -> list[Representation]:
    """The linear maps and convolutions of a forward pass, in order; refused if there is none."""
    parameters = dict(function.model.named_parameters())
    layers = _LayerValues()
    with Recorder(parameters, layers).reading():
        outputs = function(function.inputs)
    count = function.num_samples
    calls = [(name, call, leaving) for name, call, leaving in layers.found if leaving.shape[0] == count]
    if not calls:
        must = "a view of the layers needs linear layers or convolutions"
        raise UnsupportedNetwork(sentence(must, f"{type(function.model).__name__} has none that sees the samples"))
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
    """Whether the function passes through every representation alone: layers one after another, and nothing else."""
    return len(plain_layers(function.model)) > 1


def affine_layers(model: nn.Module) -> list[nn.Linear] | None:
    """The linear layers of a fully connected network whose activations have slopes of at most 1; None for others."""
    layers = plain_layers(model)
    linear = [layer for layer in layers if isinstance(layer, nn.Linear) and type(layer) is nn.Linear]
    is_fine = all(_is_contraction(layer) for layer in layers if type(layer) is not nn.Linear)
    return linear if linear and is_fine else None


def _is_contraction(layer: nn.Module) -> bool:
    if type(layer) in (nn.Flatten, nn.Unflatten, nn.Dropout):
        return True
    kind = activation_kind(layer)
    return kind is not None and kind.largest_slope is not None and kind.largest_slope(layer) <= 1
