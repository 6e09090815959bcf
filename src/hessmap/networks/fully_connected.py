"""Fully connected networks as plain, frozen descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, integer_or_none, require, sentence
from hessmap.networks.activations import Activation, activation_of
from hessmap.networks.arguments import BaseArchitecture, Bias, checked_bias, marked_bias, read_words

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True, init=False)
class FullyConnected(BaseArchitecture):
    """Linear layers of given widths, with one activation after each hidden layer.

    Without a hidden layer the activation is never applied and is stored as "identity", so that equal functions are
    equal objects; so is a bias in all layers as True. In a text a layer with a bias has a b after its width.

    Args:
        widths: Numbers of units, the input first and the output last.
        bias: Whether layers have a bias: one value for all layers, or one per layer. Defaults to False.
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,..)" or a ``Polynomial``. Defaults to "identity".

    Example:
        >>> net = FullyConnected((64, 30, 20, 10), bias=True, activation="relu")
        >>> print(net)
        64-30-20-10 relu bias
        >>> net.num_layers, net.hidden_widths, net.num_parameters
        (3, (30, 20), 2780)
        >>> print(FullyConnected((64, 30, 10), bias=(True, False)))
        64-30b-10
    """

    widths: tuple[int, ...]
    bias: Bias
    activation: Activation

    def __init__(
        self, widths: Iterable[int], bias: bool | Iterable[bool] = False, activation: Activation = "identity"
    ) -> None:
        checked = _checked_widths(widths)
        applied = activation_of(activation)
        object.__setattr__(self, "widths", checked)
        object.__setattr__(self, "bias", checked_bias(bias, len(checked) - 1))
        object.__setattr__(self, "activation", applied if len(checked) > 2 else "identity")

    @property
    def input_dim(self) -> int:
        return self.widths[0]

    @property
    def output_dim(self) -> int:
        return self.widths[-1]

    @property
    def hidden_widths(self) -> tuple[int, ...]:
        return self.widths[1:-1]

    @property
    def num_layers(self) -> int:
        return len(self.widths) - 1

    @property
    def num_parameters(self) -> int:
        layers = zip(pairwise(self.widths), self.biases, strict=True)
        return sum((before + bias) * after for (before, after), bias in layers)

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """An ``nn.Sequential`` of Linear, activation, ..., Linear, its parameters drawn from ``seed`` alone.

        ``init`` is "gaussian", "uniform", "orthogonal", "glorot" or "kaiming"; ``networks.initialise`` states
        the distributions. ``dtype`` defaults to float64. The global random state is neither read nor changed. The
        identity is an ``nn.Identity``, so that the parameters are always "0.weight", "2.weight", ...

        >>> [name for name, _ in FullyConnected((3, 2, 1)).build(seed=0).named_parameters()]
        ['0.weight', '2.weight']
        """
        from hessmap.networks.build import build_fully_connected

        return build_fully_connected(self, seed=seed, init=init, dtype=dtype)

    def __str__(self) -> str:
        marks = ("", *("b" * bias for bias in self.bias)) if isinstance(self.bias, tuple) else ("",) * len(self.widths)
        words = ["-".join(f"{width}{mark}" for width, mark in zip(self.widths, marks, strict=True))]
        if not self.is_linear:
            words.append(str(self.activation))
        if self.bias is True:
            words.append("bias")
        return " ".join(words)

    @classmethod
    def parse(cls, text: str) -> FullyConnected:
        """The network that a text names as ``str`` prints it: widths, then activation and "bias"; or a b behind the
        width of each layer that has a bias.

        >>> FullyConnected.parse("64-30-20-10 bias")
        FullyConnected(widths=(64, 30, 20, 10), bias=True, activation='identity')
        >>> FullyConnected.parse("64-30b-10").bias
        (True, False)
        >>> str(FullyConnected.parse("4-3-2 polynomial(0, 1, 0.5)"))
        '4-3-2 polynomial(0,1,0.5)'
        """
        first, activation, flags = read_words(text, flags=("bias",))
        parts = first.split("-")
        try:
            widths = [int(part.removesuffix("b")) for part in parts]
        except ValueError:
            must = "a network must be written as '64-30-20-10', '64-30-20-10 relu bias' or '64-30b-20-10 relu'"
            raise InvalidInput(sentence(must, f"got {text!r}")) from None
        return cls(widths, bias=marked_bias(parts, "bias" in flags), activation=activation)


def _checked_widths(given: Iterable[int]) -> tuple[int, ...]:
    """The widths as a tuple of plain integers, each at least 1, at least input and output."""
    must = "widths must be integers of at least 1, input first and output last"
    require(not isinstance(given, str), must, f"got the text {given!r}", "Use FullyConnected.parse for texts")
    require(isinstance(given, Iterable), must, f"got {given!r}", "Give for example widths=(64, 30, 20, 10)")
    widths = []
    for place, width in enumerate(given):
        if type(width) is int and width >= 1:  # the quick way, for networks of a million layers
            widths.append(width)
            continue
        checked = integer_or_none(width)
        if checked is None or checked < 1:
            raise InvalidInput(sentence(must, f"widths[{place}] is {width!r}"))
        widths.append(checked)
    require(len(widths) >= 2, "widths must contain an input and an output", f"got {tuple(widths)}")
    return tuple(widths)
