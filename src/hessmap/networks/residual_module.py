"""Residual networks as torch modules."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hessmap.errors import checked_seed
from hessmap.networks.construction import initialised_layer, real_format
from hessmap.networks.modules import activation_module
from hessmap.networks.residual import Residual


class ResidualBlock(nn.Module):
    """x + up(activation(down(x))); without ``up``, x + activation(down(x)).

    >>> block = ResidualBlock(nn.Linear(3, 2, bias=False), nn.Identity(), nn.Linear(2, 3, bias=False))
    >>> block(torch.zeros(4, 3)).shape
    torch.Size([4, 3])
    """

    def __init__(self, down: nn.Module, activation: nn.Module, up: nn.Module | None = None) -> None:
        super().__init__()
        self.down = down
        self.activation = activation
        self.up = up

    def forward(self, inputs: Tensor) -> Tensor:
        inner = self.activation(self.down(inputs))
        added: Tensor = inner if self.up is None else self.up(inner)
        return inputs + added


def build_residual(
    net: Residual, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None
) -> nn.Sequential:
    """Input layer, blocks, output layer; the ends only where they are there, frozen ones without gradient.

    >>> [parameter.requires_grad for parameter in build_residual(Residual(3, 1, output_dim=2)).parameters()]
    [True, False]
    """
    generator = torch.Generator().manual_seed(checked_seed(seed))

    def layer(before: int, after: int) -> nn.Linear:
        linear = nn.Linear(before, after, bias=False, device="meta", dtype=real_format(dtype))
        return initialised_layer(linear, init, generator)

    inner = net.width if net.inner_width is None else net.inner_width
    modules: list[nn.Module] = []
    if net.has_input_layer:
        modules.append(layer(net.input_dim, net.width).requires_grad_("input" in net.trained_ends))
    for _ in range(net.num_blocks):
        down = layer(net.width, inner)
        up = None if net.inner_width is None else layer(inner, net.width)
        modules.append(ResidualBlock(down, activation_module(net.activation), up))
    if net.has_output_layer:
        modules.append(layer(net.width, net.output_dim).requires_grad_("output" in net.trained_ends))
    return nn.Sequential(*modules)
