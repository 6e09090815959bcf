"""How the weights of a layer are drawn: every law stated, every number from one given generator."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor, nn

from hessmap.errors import require, require_name

Law = Callable[[Tensor, int, int, torch.Generator], None]


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


_LAWS: dict[str, Law] = {
    "gaussian": _gaussian,
    "uniform": _uniform,
    "orthogonal": _orthogonal,
    "glorot": _glorot,
    "kaiming": _kaiming,
}

INITIALISATIONS: tuple[str, ...] = tuple(_LAWS)


@torch.no_grad()
def initialise(layer: nn.Linear | nn.Conv1d | nn.Conv2d, init: str, generator: torch.Generator) -> None:
    """Draw the weight, then the bias, of a linear or convolutional layer in place.

    With fan_in and fan_out the numbers of inputs and outputs (of a convolution: channels of one group times taps, as
    in torch), the entries of the weight are independent and

    - "gaussian": N(0, 1 / fan_in);
    - "uniform": U(-b, b), b = 1 / sqrt(fan_in), the law of ``nn.Linear`` itself;
    - "glorot": U(-b, b), b = sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010);
    - "kaiming": N(0, 2 / fan_in) (He et al. 2015);
    - "orthogonal": Haar-distributed orthonormal rows or columns, whichever are fewer (Saxe et al. 2014); of a
      convolution, those of each group's matrix (filters, fan_in).

    The entries of a bias follow U(-b, b), b = 1 / sqrt(fan_in), under "uniform" (the law of ``nn.Linear``)
    and N(0, 1 / fan_in) under all others: never zero, because rank formulas speak of generic parameters and
    a zero bias is not generic.
    """
    is_layer = isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d)
    require(is_layer, "a linear or convolutional layer can be initialised", f"got a {type(layer).__name__}")
    require_name("init", init, INITIALISATIONS)
    groups = 1 if isinstance(layer, nn.Linear) else layer.groups
    for weight in layer.weight.chunk(groups):
        fan_in, fan_out = weight[0].numel(), weight[:, 0].numel()
        _LAWS[init](weight, fan_in, fan_out, generator)
    if layer.bias is not None:
        bias_law = _uniform if init == "uniform" else _gaussian
        bias_law(layer.bias, fan_in, fan_out, generator)
