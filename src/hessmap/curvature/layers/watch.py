"""Which layers a forward pass has, and what enters and leaves one of them, seen without touching the model.

A layer is a module whose weight acts once per forward pass, in a linear map or an ungrouped convolution: then its
outputs are linear in the weight, and its Hessian is made of the inputs and of second derivatives in the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from hessmap.curvature.layers.patches import Patches
from hessmap.curvature.layout import Layout
from hessmap.curvature.problem import Problem
from hessmap.errors import UnsupportedNetwork, sentence, unknown_name

Kind = Literal["linear", "convolution"]
WATCHED: dict[Callable[..., Any], tuple[str, ...]] = {
    F.linear: ("input", "weight", "bias"),
    F.conv1d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
    F.conv2d: ("input", "weight", "bias", "stride", "padding", "dilation", "groups"),
}


@dataclass(frozen=True)
class Layer:
    """A layer of a problem: m outputs (channels) from n inputs (entries of a patch) at every position of a sample.

    ``with_bias`` extends the input by a one, so that the bias is the last column of an m x (n + 1) weight.
    """

    name: str
    weight: str
    bias: str | None
    kind: Kind
    num_outputs: int
    num_inputs: int
    num_positions: int
    input_shape: tuple[int, ...]  # of what one sample sends in, before any unfolding
    with_bias: bool
    patches: Patches | None

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.num_outputs, self.num_inputs + self.with_bias

    @property
    def size(self) -> int:
        return self.num_outputs * (self.num_inputs + self.with_bias)

    @property
    def layout(self) -> Layout:
        """One block: the weight, or with its bias as a last column the extended weight [W, b]."""
        name = f"[{self.weight}, {self.bias}]" if self.with_bias else self.weight
        return Layout(((name, self.weight_shape),))

    def unfolded(self, entering: Tensor) -> Tensor:
        """What the weight multiplies, shape (samples, positions, inputs): patches, and a one for a bias.

        ``entering`` is (samples, entries), what each sample sends in.
        """
        rows = entering.reshape(-1, *self.input_shape[1:])
        rows = rows if self.patches is None else self.patches.unfolded(rows)
        rows = rows.reshape(len(entering), self.num_positions, self.num_inputs)
        return torch.cat([rows, rows.new_ones(*rows.shape[:2], 1)], 2) if self.with_bias else rows


@dataclass(frozen=True)
class Call:
    """One use of a weight in a forward pass."""

    kind: Kind
    weight: Tensor
    entering: Tensor
    leaving: Tensor
    patches: Patches | None
    is_grouped: bool


class Watch(TorchFunctionMode):
    """Records what enters the calls of some weights, and adds a perturbation to what leaves one of them.

    The perturbation has the shape (samples, positions, outputs), for convolutions too; ``perturbed`` is the weight.
    """

    def __init__(self, names: Mapping[int, str], perturbed: str = "", perturbation: Tensor | None = None) -> None:
        super().__init__()
        self.names = names
        self.perturbed = perturbed
        self.perturbation = perturbation
        self.calls: list[tuple[str, Call]] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        leaving = func(*args, **kwargs)
        if func not in WATCHED:
            return leaving
        arguments = dict(zip(WATCHED[func], args, strict=False)) | kwargs
        name = self.names.get(id(arguments["weight"]))
        if name is None:
            return leaving
        self.calls.append((name, _call(func, arguments, leaving)))
        return leaving + self._shaped(func, leaving) if name == self.perturbed else leaving

    def _shaped(self, func: Callable[..., Any], leaving: Tensor) -> Tensor:
        assert self.perturbation is not None
        if func is F.linear:
            return self.perturbation.reshape(leaving.shape)
        images = self.perturbation.reshape(len(leaving), -1, leaving.shape[1])
        return images.transpose(1, 2).reshape(leaving.shape)


def _call(func: Callable[..., Any], arguments: dict[str, Any], leaving: Tensor) -> Call:
    weight, entering = arguments["weight"], arguments["input"]
    if func is F.linear:
        return Call("linear", weight, entering, leaving, None, is_grouped=False)
    patches = Patches.of(weight, arguments)
    return Call("convolution", weight, entering, leaving, patches, arguments.get("groups", 1) != 1)


def layer_names(problem: Problem) -> tuple[str, ...]:
    """The layers that ``layer_factors`` and ``layer_hessian`` can treat, in order of execution."""
    calls = calls_of_one_sample(problem)
    used = [name for name, _ in calls]
    fine = [name for name, call in calls if used.count(name) == 1 and not call.is_grouped]
    return tuple(_layer_of(name) for name in fine)


def find_layer(problem: Problem, name: str, with_bias: bool = False) -> Layer:
    """The layer of that name, or a sentence that says why it is none."""
    modules = dict(problem.model.named_modules())
    if name not in modules:
        raise unknown_name("layer", name, layer_names(problem))
    module, weight = modules[name], f"{name}.weight" if name else "weight"
    kind = type(module).__name__
    calls = [call for seen, call in calls_of_one_sample(problem) if seen == weight]
    if not calls or calls[0].is_grouped:
        got = f"'{name}' is a {kind}" + (" with several groups" if calls else "")
        raise _unsupported("a layer must be linear or an ungrouped convolution with a trainable weight", got, problem)
    if len(calls) > 1:
        got = f"the weight of '{name}' is used {len(calls)} times in one forward pass"
        raise _unsupported("a layer must act once: outputs are then linear in its weight", got, problem)
    bias = f"{name}.bias" if name else "bias"
    if with_bias and bias not in problem.named:
        raise _unsupported("with_bias needs a layer with a trainable bias", f"'{name}' has none", problem)
    return _described(calls[0], name, weight, bias if bias in problem.named else None, with_bias)


def _described(call: Call, name: str, weight: str, bias: str | None, with_bias: bool) -> Layer:
    outputs = int(call.weight.shape[0])
    return Layer(
        name=name,
        weight=weight,
        bias=bias,
        kind=call.kind,
        num_outputs=outputs,
        num_inputs=call.weight[0].numel(),
        num_positions=call.leaving.numel() // outputs,
        input_shape=tuple(call.entering.shape),
        with_bias=with_bias,
        patches=call.patches,
    )


def _unsupported(must: str, got: str, problem: Problem) -> UnsupportedNetwork:
    known = ", ".join(repr(known) for known in layer_names(problem)) or "none"
    return UnsupportedNetwork(sentence(must, got, f"The layers of this problem are {known}"))


def weight_names(problem: Problem) -> dict[int, str]:
    """The trainable parameters by identity, as a Watch asks for them."""
    return {id(value): name for name, value in problem.named.items()}


@torch.no_grad()
def calls_of_one_sample(problem: Problem) -> list[tuple[str, Call]]:
    """Weight and call of every linear map and convolution of a forward pass, in order."""
    watch = Watch(weight_names(problem))
    with watch:
        problem.forward(problem.named, problem.inputs[:1])
    return watch.calls


def _layer_of(weight: str) -> str:
    return weight.rpartition(".")[0]
