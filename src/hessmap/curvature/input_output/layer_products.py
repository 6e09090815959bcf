"""The Jacobian of a sequence of layers as a product of matrices, for all samples of a batch and from the outputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessmap.curvature.input_output.layer_vjps import (
    ConvolutionVjp,
    ElementwiseVjp,
    LinearVjp,
    Pair,
    TilesVjp,
    Vjp,
    chain_jacobians,
    merged_vjps,
)
from hessmap.curvature.input_output.network_function import NetworkFunction, plain_layers
from hessmap.networks.modules import MODULES, PolynomialActivation

_ELEMENTWISE = (
    *(kind for kind in MODULES.values() if kind is not nn.Identity), PolynomialActivation, nn.Sigmoid, nn.Softplus,
    nn.SELU, nn.CELU, nn.Hardtanh, nn.ReLU6, nn.LogSigmoid, nn.Softsign,
)  # fmt: skip
_RESHAPING = (nn.Flatten, nn.Unflatten, nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d)


@dataclass(frozen=True)
class LayerProducts:
    """The layers of a model in order, all of known kinds, and the largest number of entries that leaves one."""

    layers: tuple[nn.Module, ...]
    output_dim: int
    largest_width: int

    @classmethod
    def of(cls, function: NetworkFunction) -> LayerProducts | None:
        """None for a model that is no plain sequence of known layers."""
        layers = plain_layers(function.model)
        if not layers or not all(_is_known(layer) for layer in layers):
            return None
        values, widths = function.inputs[:1].clone(), [function.input_dim]
        with torch.no_grad():
            for layer in layers:
                values = layer(values)
                widths.append(values.numel())
        return cls(layers, function.output_dim, max(widths))

    @torch.no_grad()
    def jacobians(self, inputs: Tensor) -> Tensor:
        """(samples, outputs, inputs)."""
        values, vjps = inputs, list[Vjp]()
        for layer in self.layers:
            values, vjp = _value_and_vjp(layer, values)
            if vjp is not None:
                vjps.append(vjp)
        return chain_jacobians(merged_vjps(vjps), len(inputs), self.output_dim)


def _is_known(layer: nn.Module) -> bool:
    """Only exact types count, because a subclass may compute something else."""
    kind = type(layer)
    if isinstance(layer, nn.Conv2d) and kind is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.MaxPool2d) and kind is nn.MaxPool2d:
        return not layer.return_indices
    return kind is nn.Linear or kind in _ELEMENTWISE or kind in _RESHAPING


def _value_and_vjp(layer: nn.Module, values: Tensor) -> tuple[Tensor, Vjp | None]:
    """What leaves the layer, and its vector-Jacobian product; None where entries stay as they are."""
    if isinstance(layer, nn.Linear):
        return layer(values), LinearVjp(layer.weight)
    if isinstance(layer, nn.Conv2d):
        return _convolution(layer, values)
    if isinstance(layer, nn.MaxPool2d):
        return _max_pool(layer, values)
    if isinstance(layer, _RESHAPING):
        return layer(values), None
    return _elementwise(layer, values)


def _elementwise(layer: nn.Module, values: Tensor) -> tuple[Tensor, Vjp]:
    if type(layer) is nn.ReLU:
        return F.relu(values), ElementwiseVjp((values > 0).to(torch.float64).flatten(1))
    leaf = values.detach().requires_grad_()
    with torch.enable_grad():
        outputs = layer(leaf + 0.0)
        (slopes,) = torch.autograd.grad(outputs.sum(), leaf)
    return outputs.detach(), ElementwiseVjp(slopes.flatten(1))


def _convolution(layer: nn.Conv2d, values: Tensor) -> tuple[Tensor, Vjp]:
    outputs = layer(values)
    assert not isinstance(layer.padding, str)
    steps = (_pair(layer.stride), _pair(layer.padding), _pair(layer.dilation))
    return outputs, ConvolutionVjp(layer.weight, values.shape[1:], outputs.shape[1:], *steps, layer.groups)


def _max_pool(layer: nn.MaxPool2d, values: Tensor) -> tuple[Tensor, Vjp]:
    outputs, indices = F.max_pool2d(
        values, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, return_indices=True
    )
    if _is_tiling(layer, values, outputs):
        return outputs, TilesVjp.of(indices, _pair(layer.kernel_size), values.shape[3])
    size = values.shape[2] * values.shape[3]
    offsets = torch.arange(values.shape[1])[:, None, None] * size
    places = (indices + offsets).flatten(1)[:, None]

    def vjp(block: Tensor) -> Tensor:
        back = block.new_zeros(*block.shape[:2], values[0].numel())
        return back.scatter_add_(2, places.expand_as(block), block)

    return outputs, vjp


def _is_tiling(layer: nn.MaxPool2d, values: Tensor, outputs: Tensor) -> bool:
    """Whether the windows divide the image: every entry lies in exactly one."""
    kernel, stride = _pair(layer.kernel_size), _pair(layer.stride)
    fits = (outputs.shape[2] * kernel[0], outputs.shape[3] * kernel[1]) == tuple(values.shape[2:])
    return fits and kernel == stride and _pair(layer.padding) == (0, 0) and _pair(layer.dilation) == (1, 1)


def _pair(size: int | tuple[int, ...]) -> Pair:
    return (size, size) if isinstance(size, int) else (size[0], size[1])
