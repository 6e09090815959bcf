"""Every use of a parameter in a forward pass, seen and perturbed without touching the model.

A torch-function mode watches the functional calls, so a weight that is used twice (tied, a module called twice) is
seen twice, and nothing is hooked into the user's modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Kind = Literal["dense", "diagonal"]


@dataclass(frozen=True)
class Call:
    """One use of parameters, ``z = W a + b`` ("dense") or ``z = weight * a + b`` ("diagonal"), at every position.

    ``num_positions`` counts how often a sample passes through it (tokens, pixels); names of frozen or missing
    parameters are None.
    """

    kind: Kind
    weight: str | None
    bias: str | None
    num_positions: int
    num_inputs: int
    num_outputs: int

    @property
    def output_size(self) -> int:
        return self.num_positions * self.num_outputs


class Lift(TorchFunctionMode):
    """Records the calls of named parameters and adds a perturbation to the output of each.

    ``inputs[c]`` is the input of call c, shape (num_samples, num_positions, num_inputs); ``perturbations[c]``, where
    it is not None, is added to its output, shape (num_samples, num_positions, num_outputs).
    """

    def __init__(
        self, names: Mapping[int, str], num_samples: int, perturbations: Sequence[Tensor | None] | None = None
    ) -> None:
        super().__init__()
        self.names = names
        self.num_samples = num_samples
        self.perturbations = perturbations
        self.calls: list[Call] = []
        self.inputs: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        watched = _WATCHED.get(func)
        if watched is None:
            return func(*args, **kwargs)
        arguments = dict(zip(watched, args, strict=False)) | kwargs
        weight, bias = (self.names.get(id(arguments.get(key))) for key in ("weight", "bias"))
        if weight is None and bias is None:
            return func(*args, **kwargs)
        return self._dense(arguments, weight, bias) if func is F.linear else self._norm(func, arguments, weight, bias)

    def _dense(self, arguments: dict[str, Any], weight: str | None, bias: str | None) -> Tensor:
        entering: Tensor = arguments["input"]
        leaving = F.linear(entering, arguments["weight"], arguments.get("bias"))
        return self._lift("dense", weight, bias, entering, leaving)

    def _norm(
        self, func: Callable[..., Any], arguments: dict[str, Any], weight: str | None, bias: str | None
    ) -> Tensor:
        """Normalise without scale and shift, features last; then scale and shift are a diagonal layer."""
        if func is F.group_norm:  # the same through layer_norm, whose gradient can be pushed forward
            groups = arguments["input"].reshape(len(arguments["input"]), arguments["num_groups"], -1)
            normalised = F.layer_norm(groups, groups.shape[-1:], eps=arguments.get("eps", 1e-5))
            normalised = normalised.reshape(arguments["input"].shape)
        else:
            normalised = func(**(arguments | {"weight": None, "bias": None}))
        scale, shift = arguments.get("weight"), arguments.get("bias")
        if func is F.layer_norm:
            size = prod(arguments["normalized_shape"])
            entering = normalised.reshape(*normalised.shape[: -len(arguments["normalized_shape"])], size)
        else:
            size = normalised.shape[1]
            entering = normalised.movedim(1, -1)
        leaving = entering if scale is None else entering * scale.reshape(size)
        leaving = leaving if shift is None else leaving + shift.reshape(size)
        leaving = self._lift("diagonal", weight, bias, entering, leaving)
        return leaving.reshape(normalised.shape) if func is F.layer_norm else leaving.movedim(-1, 1)

    def _lift(self, kind: Kind, weight: str | None, bias: str | None, entering: Tensor, leaving: Tensor) -> Tensor:
        shape = self.num_samples, -1
        place = len(self.calls)
        self.inputs.append(entering.reshape(*shape, entering.shape[-1]))
        positions = leaving.numel() // leaving.shape[-1] // self.num_samples
        self.calls.append(Call(kind, weight, bias, positions, entering.shape[-1], leaving.shape[-1]))
        perturbation = self.perturbations[place] if self.perturbations is not None else None
        return leaving if perturbation is None else leaving + perturbation.reshape(leaving.shape)


_WATCHED: dict[Callable[..., Any], tuple[str, ...]] = {
    F.linear: ("input", "weight", "bias"),
    F.batch_norm: ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"),
    F.layer_norm: ("input", "normalized_shape", "weight", "bias", "eps"),
    F.group_norm: ("input", "num_groups", "weight", "bias", "eps"),
}


def calls_of(forward: Callable[[Tensor], Tensor], names: Mapping[int, str], inputs: Tensor) -> tuple[Call, ...]:
    """The calls of one forward pass, in order of execution."""
    lift = Lift(names, len(inputs))
    with torch.no_grad(), lift:
        forward(inputs)
    return tuple(lift.calls)
