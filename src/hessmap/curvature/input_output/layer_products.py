"""The Jacobian of a sequence of layers as a product of matrices, for all samples of a batch and from the outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.grad import conv2d_input

from hessmap.curvature.input_output.network_function import NetworkFunction
from hessmap.networks.modules import MODULES, PolynomialActivation

# Pulls a block (samples, outputs, entries of what left the layer) back to what entered it.
Pull = Callable[[Tensor], Tensor]
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
        layers = tuple(sequential_leaves(function.model))
        if not all(_is_known(layer) for layer in layers):
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
        values, pulls = inputs, list[Pull]()
        for layer in self.layers:
            values, pull = _passed(layer, values)
            if isinstance(pull, _Tiles) and pulls and isinstance(before := pulls[-1], _Slopes):
                pulls[-1] = pull.behind(before)
            elif pull is not None:
                pulls.append(pull)
        block = torch.eye(self.output_dim, dtype=torch.float64).expand(len(inputs), -1, -1)
        for pull in reversed(pulls):
            block = pull(block)
        return block


def sequential_leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The layers of nested Sequentials in order; a module of another kind is one layer."""
    if type(module).forward is not nn.Sequential.forward:
        yield module
        return
    for child in module._modules.values():  # children() would show a repeated module only once
        if child is not None:
            yield from sequential_leaves(child)


def _is_known(layer: nn.Module) -> bool:
    """Only exact types count, because a subclass may compute something else."""
    kind = type(layer)
    if isinstance(layer, nn.Conv2d) and kind is nn.Conv2d:
        return layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    if isinstance(layer, nn.MaxPool2d) and kind is nn.MaxPool2d:
        return not layer.return_indices
    return kind is nn.Linear or kind in _ELEMENTWISE or kind in _RESHAPING


def _passed(layer: nn.Module, values: Tensor) -> tuple[Tensor, Pull | None]:
    """What leaves the layer, and how to pull back through it; None where entries stay as they are."""
    if isinstance(layer, nn.Linear):
        weight = layer.weight
        return layer(values), lambda block: (block.unflatten(2, (-1, weight.shape[0])) @ weight).flatten(2)
    if isinstance(layer, nn.Conv2d):
        return layer(values), _convolution_pull(layer, values)
    if isinstance(layer, nn.MaxPool2d):
        return _max_pool(layer, values)
    if isinstance(layer, _RESHAPING):
        return layer(values), None
    return _elementwise(layer, values)


def _elementwise(layer: nn.Module, values: Tensor) -> tuple[Tensor, Pull]:
    leaf = values.detach().requires_grad_()
    with torch.enable_grad():
        outputs = layer(leaf + 0.0)
        (slopes,) = torch.autograd.grad(outputs.sum(), leaf)
    return outputs.detach(), _Slopes(slopes.flatten(1))


def _convolution_pull(layer: nn.Conv2d, values: Tensor) -> Pull:
    entering = values.shape[1:]
    leaving = layer(values[:1]).shape[1:]

    def pull(block: Tensor) -> Tensor:
        images = block.reshape(-1, *leaving)
        shape = (len(images), *entering)
        back: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
            shape, layer.weight, images, layer.stride, layer.padding, layer.dilation, layer.groups
        )
        return back.reshape(*block.shape[:2], -1)

    return pull


def _max_pool(layer: nn.MaxPool2d, values: Tensor) -> tuple[Tensor, Pull]:
    outputs, indices = F.max_pool2d(
        values, layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode, return_indices=True
    )
    if _is_tiling(layer, values, outputs):
        return outputs, _tile_pull(values, indices)
    size = values.shape[2] * values.shape[3]
    offsets = torch.arange(values.shape[1])[:, None, None] * size
    places = (indices + offsets).flatten(1)[:, None]

    def pull(block: Tensor) -> Tensor:
        back = block.new_zeros(*block.shape[:2], values[0].numel())
        return back.scatter_add_(2, places.expand_as(block), block)

    return outputs, pull


def _is_tiling(layer: nn.MaxPool2d, values: Tensor, outputs: Tensor) -> bool:
    """Whether the windows divide the image: every entry lies in exactly one."""
    height, width = (outputs.shape[2], outputs.shape[3])
    kernel = layer.kernel_size if isinstance(layer.kernel_size, tuple) else (layer.kernel_size,) * 2
    stride = layer.stride if isinstance(layer.stride, tuple) else (layer.stride,) * 2
    fits = (height * kernel[0], width * kernel[1]) == tuple(values.shape[2:])
    return fits and kernel == stride and layer.padding in (0, (0, 0)) and layer.dilation in (1, (1, 1))


def _tile_pull(values: Tensor, indices: Tensor) -> _Tiles:
    is_chosen = torch.zeros(len(values), values.shape[1], values.shape[2] * values.shape[3], dtype=torch.float64)
    is_chosen.scatter_(2, indices.flatten(2), 1.0)
    rows, columns = indices.shape[2:]
    tiles = (rows, values.shape[2] // rows, columns, values.shape[3] // columns)
    return _Tiles(is_chosen.reshape(*values.shape[:2], *tiles))


@dataclass(frozen=True, eq=False)
class _Slopes:
    """Pulls back through an elementwise layer; ``slopes`` (samples, entries)."""

    slopes: Tensor

    def __call__(self, block: Tensor) -> Tensor:
        return block * self.slopes[:, None]


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Pulls back through maxima over tiles: every entry times ``factors`` (samples, channels, rows, tile height,
    columns, tile width), which are zero but at the maximum. Much faster than to scatter."""

    factors: Tensor

    def behind(self, slopes: _Slopes) -> _Tiles:
        """Through the elementwise layer before the maxima as well."""
        return _Tiles(self.factors * slopes.slopes.reshape(self.factors.shape))

    def __call__(self, block: Tensor) -> Tensor:
        count, channels, rows, height, columns, width = self.factors.shape
        entries = block.reshape(count, -1, channels, rows, columns)
        back = block.new_empty(count, entries.shape[1], channels, rows, height, columns, width)
        for row in range(height):
            for column in range(width):
                torch.mul(
                    entries, self.factors[:, None, :, :, row, :, column], out=back[:, :, :, :, row, :, column]
                )
        return back.flatten(2)
