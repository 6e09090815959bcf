"""From an architecture to a torch model with weights drawn from one generator.

Layers are made on the meta device, which keeps torch off the global random state, and filled by a named distribution
(``INITIALISATIONS``). Residual networks and self-attention, which torch has no module for, are modules of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, checked_number, checked_seed, require, require_name, sentence
from hessmap.networks.convolutional import Convolutions, LocallyConnected
from hessmap.networks.fully_connected import FullyConnected
from hessmap.networks.module_tree import activation_module
from hessmap.networks.residual import Residual
from hessmap.networks.self_attention import SelfAttention

Scheme = Callable[[Tensor, int, int, torch.Generator], None]


def _normal(tensor: Tensor, deviation: float, generator: torch.Generator) -> None:
    tensor.normal_(0.0, deviation, generator=generator)


def _gaussian(weight: Tensor, fan_in: int, fan_out: int, generator: torch.Generator) -> None:
    _normal(weight, 1 / sqrt(fan_in), generator)


def _uniform(weight: Tensor, fan_in: int, fan_out: int, generator: torch.Generator) -> None:
    bound = 1 / sqrt(fan_in)
    weight.uniform_(-bound, bound, generator=generator)


def _orthogonal(weight: Tensor, fan_in: int, fan_out: int, generator: torch.Generator) -> None:
    nn.init.orthogonal_(weight, generator=generator)


def _glorot(weight: Tensor, fan_in: int, fan_out: int, generator: torch.Generator) -> None:
    bound = sqrt(6 / (fan_in + fan_out))
    weight.uniform_(-bound, bound, generator=generator)


def _kaiming(weight: Tensor, fan_in: int, fan_out: int, generator: torch.Generator) -> None:
    _normal(weight, sqrt(2 / fan_in), generator)


_SCHEMES: dict[str, Scheme] = {
    "gaussian": _gaussian,
    "uniform": _uniform,
    "orthogonal": _orthogonal,
    "glorot": _glorot,
    "kaiming": _kaiming,
}

INITIALISATIONS: tuple[str, ...] = tuple(_SCHEMES)


@torch.no_grad()
def initialise(layer: nn.Linear | nn.Conv1d | nn.Conv2d, init: str, generator: torch.Generator) -> None:
    """Draw the weight, then the bias, of a linear or convolutional layer in place.

    With fan_in and fan_out the numbers of inputs and outputs (of a convolution: channels of one group times taps, as
    in torch), the entries of the weight are independent and

    - "gaussian": N(0, 1 / fan_in);
    - "uniform": U(-b, b), b = 1 / sqrt(fan_in), the distribution of ``nn.Linear`` itself;
    - "glorot": U(-b, b), b = sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010);
    - "kaiming": N(0, 2 / fan_in) (He et al. 2015);
    - "orthogonal": Haar-distributed orthonormal rows or columns, whichever are fewer (Saxe et al. 2014); of a
      convolution, those of each group's matrix (filters, fan_in).

    The entries of a bias follow U(-b, b), b = 1 / sqrt(fan_in), under "uniform" and N(0, 1 / fan_in) under all
    others: never zero, because rank formulas assume generic parameters, which a zero bias is not.

    Args:
        layer: The layer to fill.
        init: One of the names above.
        generator: Generator of the random numbers.

    Raises:
        UnknownName: If there is no initialisation of this name.
    """
    is_layer = isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d)
    require(is_layer, "a linear or convolutional layer can be initialised", f"got a {type(layer).__name__}")
    require_name("init", init, INITIALISATIONS)
    groups = 1 if isinstance(layer, nn.Linear) else layer.groups
    for weight in layer.weight.chunk(groups):
        fan_in, fan_out = weight[0].numel(), weight[:, 0].numel()
        _SCHEMES[init](weight, fan_in, fan_out, generator)
    if layer.bias is not None:
        bias_law = _uniform if init == "uniform" else _gaussian
        bias_law(layer.bias, fan_in, fan_out, generator)


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


class AttentionModule(nn.Module):
    """One layer of self-attention as a torch module, linear or with softmax.

    Weights have the names and orientation of ``nn.MultiheadAttention``: rows are outputs, heads one after another. A
    merged query and key has the rows of head i in i * width .. (i + 1) * width of ``qk_proj_weight``.

    Args:
        architecture: Sizes and options of the layer.
        temperature: Divisor of the scores before the softmax. Defaults to None: linear attention, without softmax.

    Example:
        >>> model = SelfAttention(3, 2).build(seed=0)
        >>> tokens = torch.ones(5, 4, 3, dtype=torch.float64)
        >>> model(tokens).shape
        torch.Size([5, 4, 2])
    """

    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    qk_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter
    out_proj: nn.Linear | None

    def __init__(self, architecture: SelfAttention, temperature: float | None = None) -> None:
        super().__init__()
        self.architecture = architecture
        self.temperature = temperature

    def forward(self, tokens: Tensor) -> Tensor:
        queries, keys, values = (self._by_heads(tokens, name) for name in ("q_proj", "k_proj", "v_proj"))
        if self.architecture.read == "last":
            queries = queries[..., -1:, :]
        scores = queries @ keys.mT
        seen = torch.ones_like(scores, dtype=torch.bool)
        seen = seen.tril() if self.architecture.causal else seen
        if self.temperature is None:
            attention = scores * seen
        else:
            attention = torch.softmax((scores / self.temperature).masked_fill(~seen, -torch.inf), dim=-1)
        heads = (attention @ values).transpose(-3, -2).flatten(-2)
        outputs: Tensor = heads if self.out_proj is None else self.out_proj(heads)
        return outputs[..., 0, :] if self.architecture.read == "last" else outputs

    def _by_heads(self, tokens: Tensor, name: str) -> Tensor:
        """(num_samples, heads, num_tokens, size of a head); the keys of a merged matrix are the tokens themselves."""
        heads = self.architecture.heads
        if self.architecture.merged_query_key and name == "k_proj":
            return tokens.unsqueeze(-3).expand(*tokens.shape[:-2], heads, *tokens.shape[-2:])
        merged = self.architecture.merged_query_key and name == "q_proj"
        weight: Tensor = getattr(self, "qk_proj_weight" if merged else f"{name}_weight")
        projected = tokens @ weight.mT
        return projected.reshape(*tokens.shape[:-1], heads, -1).transpose(-3, -2)

    def extra_repr(self) -> str:
        softmax = "" if self.temperature is None else f", softmax at temperature {self.temperature:g}"
        return f"{self.architecture}{softmax}"


def build_self_attention(
    net: SelfAttention,
    seed: int = 0,
    init: str = "gaussian",
    dtype: torch.dtype | None = None,
    temperature: float | None = None,
) -> AttentionModule:
    """The module with parameters of its own; a frozen V is a parameter that needs no gradient.

    >>> build_self_attention(SelfAttention(3, 2, frozen_value=True)).v_proj_weight.requires_grad
    False
    """
    if temperature is not None:
        temperature = checked_number("temperature", temperature)
        if not 0 < temperature < float("inf"):
            got = f"it is {temperature}"
            raise InvalidInput(
                sentence("the temperature of a softmax must be positive", got, "Pass None for no softmax")
            )
    require(isinstance(net, SelfAttention), "a SelfAttention can be built here", f"got a {type(net).__name__}")
    generator = torch.Generator().manual_seed(checked_seed(seed))
    module = AttentionModule(net, temperature)
    shapes = net.parameter_shapes
    shapes.setdefault("v_proj_weight", (net.heads * net.value_width, net.width))
    for name in ("qk_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj.weight"):
        linear = None
        if name in shapes:
            after, before = shapes[name]
            empty = nn.Linear(before, after, bias=False, device="meta", dtype=real_format(dtype))
            linear = initialised_layer(empty, init, generator)
        if name == "out_proj.weight":
            module.out_proj = linear
        else:
            module.register_parameter(name, None if linear is None else nn.Parameter(linear.weight.detach()))
    module.v_proj_weight.requires_grad_(not net.frozen_value)
    return module


class ResidualBlock(nn.Module):
    """x + up(activation(down(x))); without ``up``, x + activation(down(x)).

    Args:
        down: The first layer.
        activation: The activation after it.
        up: The second layer. Defaults to None: the block has one layer.

    Example:
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
        modules.append(layer(net.input_dim, net.width).requires_grad_(net.train_input))
    for _ in range(net.num_blocks):
        down = layer(net.width, inner)
        up = None if net.inner_width is None else layer(inner, net.width)
        modules.append(ResidualBlock(down, activation_module(net.activation), up))
    if net.has_output_layer:
        modules.append(layer(net.width, net.output_dim).requires_grad_(net.train_output))
    return nn.Sequential(*modules)
