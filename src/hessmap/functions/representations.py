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
