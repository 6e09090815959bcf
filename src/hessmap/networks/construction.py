"""From an architecture to a torch model.

Every layer comes from one generator; it is made on the meta device, which keeps torch off the global random state.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import nn

from hessmap.errors import checked_seed, require
from hessmap.networks.convolutions import Convolutions
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.initialisation import initialise
from hessmap.networks.locally_connected import LocallyConnected
from hessmap.networks.modules import activation_module

Layer = TypeVar("Layer", bound=nn.Linear | nn.Conv1d | nn.Conv2d)


def build_fully_connected(
    net: FullyConnected, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None
) -> nn.Sequential:
    """Linear, activation, ..., Linear.

    >>> model = build_fully_connected(FullyConnected((2, 3, 1), activation="relu"))
    >>> model[0].weight.dtype, model[1]
    (torch.float64, ReLU())
    """
    generator = torch.Generator().manual_seed(checked_seed(seed))
    layers: list[nn.Module] = []
    for (before, after), bias in zip(pairwise(net.widths), net.biases, strict=True):
        linear = nn.Linear(before, after, bias=bias, device="meta", dtype=real_format(dtype))
        layers += [initialised_layer(linear, init, generator), activation_module(net.activation)]
    return nn.Sequential(*layers[:-1])


def build_convolutions(
    net: Convolutions, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None
) -> nn.Sequential:
    """Unflatten, Conv1d or Conv2d, activation, ..., Flatten, Linear.

    >>> from hessmap.networks import Convolutional
    >>> model = build_convolutions(Convolutional(8, (2, 3), (3,), strides=(2,), outputs=5))
    >>> model(torch.zeros(7, 16, dtype=torch.float64)).shape
    torch.Size([7, 5])
    """
    kind: Any = nn.Conv1d if len(net.input_axes) == 1 else nn.Conv2d  # their types differ by the number of axes
    generator = torch.Generator().manual_seed(checked_seed(seed))
    dtype = real_format(dtype)
    layers: list[nn.Module] = [nn.Unflatten(1, (net.channels[0], *net.input_axes))]
    *biases, last = net.biases
    sizes = zip(pairwise(net.channels), net.kernel_axes, net.strides, net.paddings, biases, strict=True)
    for (before, after), kernel, stride, padding, bias in sizes:
        convolution = kind(before, after, kernel, stride, padding, bias=bias, device="meta", dtype=dtype)
        layers += [initialised_layer(convolution, init, generator), activation_module(net.activation)]
    dense = nn.Linear(net.widths[-2], net.outputs, bias=last, device="meta", dtype=dtype)
    return nn.Sequential(*layers, nn.Flatten(), initialised_layer(dense, init, generator))


def build_locally_connected(
    net: LocallyConnected, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None
) -> nn.Sequential:
    """Unflatten to (patches, patch_size), filters, activation, Flatten, Linear.

    >>> model = build_locally_connected(LocallyConnected(5, 4, 3, 2, shared_weights=True))
    >>> model[1], model(torch.zeros(7, 20, dtype=torch.float64)).shape
    (Linear(in_features=4, out_features=3, bias=False), torch.Size([7, 2]))
    """
    generator = torch.Generator().manual_seed(checked_seed(seed))
    dtype = real_format(dtype)
    patches, size, filters = net.patches, net.patch_size, net.filters
    first: nn.Module
    if net.shared_weights or patches == 1:
        first = initialised_layer(nn.Linear(size, filters, bias=False, device="meta", dtype=dtype), init, generator)
    else:
        grouped = nn.Conv1d(patches, patches * filters, size, groups=patches, bias=False, device="meta", dtype=dtype)
        first = initialised_layer(grouped, init, generator)
    dense = nn.Linear(patches * filters, net.outputs, bias=False, device="meta", dtype=dtype)
    return nn.Sequential(
        nn.Unflatten(1, (patches, size)),
        first,
        activation_module(net.activation),
        nn.Flatten(),
        initialised_layer(dense, init, generator),
    )


def initialised_layer(layer: Layer, init: str, generator: torch.Generator) -> Layer:
    """The layer with memory and parameters of its own."""
    layer.to_empty(device="cpu")
    initialise(layer, init, generator)
    return layer


def real_format(dtype: object) -> torch.dtype:
    """float64 unless another format of real numbers is given."""
    if dtype is None:
        return torch.float64
    is_real = isinstance(dtype, torch.dtype) and dtype.is_floating_point
    require(is_real, "dtype must be a torch.dtype of real numbers", f"got {dtype!r}")
    assert isinstance(dtype, torch.dtype)
    return dtype
