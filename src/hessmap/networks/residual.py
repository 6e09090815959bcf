"""Residual networks as plain, frozen descriptions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hessmap.errors import InvalidInput, checked_count, require, sentence
from hessmap.networks.activations import Activation, activation_of
from hessmap.networks.arguments import BaseArchitecture, read_words

if TYPE_CHECKING:
    import torch
    from torch import nn


_SHAPE = "a residual network must be written as 'residual-8x3', 'residual-8x3/2' or 'residual-5-8x3/2-4'"
_MEANING = (
    "That is 3 blocks of width 8, each of inner width 2, from 5 inputs to 4 outputs; an activation, and the words"
    " trained_input and trained_output, may follow"
)
_FLAGS = ("trained_input", "trained_output")


@dataclass(frozen=True, init=False)
class Residual(BaseArchitecture):
    """Residual blocks x + W x or, with an inner width, x + U D x.

    D is (inner_width, width), U (width, inner_width); the activation follows D, or W where there is no inner width.
    There is no bias. An end is a linear layer before or after the blocks: it is trained with ``train_input`` or
    ``train_output``; otherwise it is frozen where its width differs from that of the blocks, and absent where not.

    Args:
        width: Width of the blocks.
        num_blocks: Number of blocks.
        inner_width: Width between the two layers of a block. Defaults to None: one layer per block.
        input_dim: Number of inputs. Defaults to ``width``.
        output_dim: Number of outputs. Defaults to ``width``.
        train_input: Whether the layer before the blocks is trained. Defaults to False.
        train_output: Whether the layer after the blocks is trained. Defaults to False.
        activation: Name of ``ACTIVATIONS``, "polynomial(c0,c1,..)" or a ``Polynomial``. Defaults to "identity".

    Example:
        >>> net = Residual(8, 3, inner_width=2, input_dim=5, train_input=True)
        >>> print(net)
        residual-5-8x3/2 trained_input
        >>> net.num_parameters, net.input_dim, net.output_dim
        (136, 5, 8)
    """

    width: int
    num_blocks: int
    inner_width: int | None
    input_dim: int
    output_dim: int
    train_input: bool
    train_output: bool
    activation: Activation

    def __init__(
        self,
        width: int,
        num_blocks: int,
        *,
        inner_width: int | None = None,
        input_dim: int | None = None,
        output_dim: int | None = None,
        train_input: bool = False,
        train_output: bool = False,
        activation: Activation = "identity",
    ) -> None:
        width = checked_count("width", width)
        object.__setattr__(self, "width", width)
        object.__setattr__(self, "num_blocks", checked_count("num_blocks", num_blocks))
        inner = None if inner_width is None else checked_count("inner_width", inner_width)
        object.__setattr__(self, "inner_width", inner)
        for name, dim in (("input_dim", input_dim), ("output_dim", output_dim)):
            object.__setattr__(self, name, width if dim is None else checked_count(name, dim))
        for name, is_trained in (("train_input", train_input), ("train_output", train_output)):
            require(isinstance(is_trained, bool), f"{name} must be True or False", f"got {is_trained!r}")
            object.__setattr__(self, name, is_trained)
        object.__setattr__(self, "activation", activation_of(activation))

    @property
    def has_input_layer(self) -> bool:
        """Whether there is a linear layer before the blocks."""
        return self.train_input or self.input_dim != self.width

    @property
    def has_output_layer(self) -> bool:
        """Whether there is a linear layer after the blocks."""
        return self.train_output or self.output_dim != self.width

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of the input, behind each linear layer that is there, and of the output."""
        block = (self.width,) if self.inner_width is None else (self.inner_width, self.width)
        first = (self.input_dim, self.width) if self.has_input_layer else (self.width,)
        last = (self.output_dim,) if self.has_output_layer else ()
        return (*first, *(block * self.num_blocks), *last)

    @property
    def num_layers(self) -> int:
        """Layers with trained weights."""
        return self.num_blocks * (1 if self.inner_width is None else 2) + self.train_input + self.train_output

    @property
    def num_parameters(self) -> int:
        """Trained parameters: a frozen end does not count."""
        block = self.width**2 if self.inner_width is None else 2 * self.width * self.inner_width
        ends = self.train_input * self.input_dim + self.train_output * self.output_dim
        return self.num_blocks * block + self.width * ends

    def build(self, seed: int = 0, init: str = "gaussian", dtype: torch.dtype | None = None) -> nn.Sequential:
        """Linear (if there is an input layer), the blocks, Linear (if there is an output layer), drawn from ``seed``.

        ``init`` and ``dtype`` as for ``FullyConnected.build``.

        >>> model = Residual(3, 2, inner_width=1, train_output=True).build(seed=0)
        >>> [name for name, _ in model.named_parameters()]
        ['0.down.weight', '0.up.weight', '1.down.weight', '1.up.weight', '2.weight']
        """
        from hessmap.networks.build import build_residual

        return build_residual(self, seed=seed, init=init, dtype=dtype)

    def __str__(self) -> str:
        first = f"{self.input_dim}-" if self.input_dim != self.width else ""
        inner = "" if self.inner_width is None else f"/{self.inner_width}"
        last = f"-{self.output_dim}" if self.output_dim != self.width else ""
        words = [f"residual-{first}{self.width}x{self.num_blocks}{inner}{last}"]
        if not self.is_linear:
            words.append(str(self.activation))
        flags = zip(_FLAGS, (self.train_input, self.train_output), strict=True)
        return " ".join([*words, *(flag for flag, is_trained in flags if is_trained)])

    @classmethod
    def parse(cls, text: str) -> Residual:
        """The network that a text names as ``str`` prints it.

        >>> Residual.parse("residual-8x3/2-4 trained_output")
        Residual(width=8, num_blocks=3, inner_width=2, input_dim=8, output_dim=4, train_input=False, ...
        """
        first, activation, flags = read_words(text, flags=_FLAGS)
        sizes = re.fullmatch(r"residual-(?:(\d+)-)?(\d+)x(\d+)(?:/(\d+))?(?:-(\d+))?", first, re.ASCII)
        if sizes is None:
            raise InvalidInput(sentence(_SHAPE, f"got {text!r}", _MEANING))
        inputs, width, blocks, inner, outputs = (None if size is None else int(size) for size in sizes.groups())
        assert width is not None
        assert blocks is not None
        return cls(
            width,
            blocks,
            inner_width=inner,
            input_dim=inputs,
            output_dim=outputs,
            train_input="trained_input" in flags,
            train_output="trained_output" in flags,
            activation=activation,
        )
