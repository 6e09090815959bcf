"""One evaluation of a model with tensors in the place of its parameters, which leaves no trace in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from hessmap.curvature.structured import Inputs, mapped
from hessmap.curvature.untouched import twice_differentiable
from hessmap.errors import InvalidInput, sentence

Forward = Callable[[nn.Module, Any], Any]


class _Called(nn.Module):
    """A model behind a user's way to call it."""

    def __init__(self, model: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model = model
        self.way = forward

    def forward(self, inputs: Inputs) -> Any:
        return self.way(self.model, inputs)


def evaluated(
    model: nn.Module,
    tensors: dict[str, Tensor],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any] | None = None,
    forward: Forward | None = None,
    said: set[str] | None = None,
) -> Any:
    """What the model returns with ``tensors`` for its parameters; ``said`` gets what is worth a note."""
    # Fresh buffers and inputs for every call: a model that counts, averages or works in place writes into them.
    tensors = {name: value.clone() for name, value in model.named_buffers()} | tensors
    arguments = mapped(torch.clone, arguments)
    with twice_differentiable(said):
        if forward is None:
            return functional_call(
                model, tensors, arguments, {k: mapped(torch.clone, v) for k, v in (keywords or {}).items()}
            )
        renamed = {f"model.{name}": value for name, value in tensors.items()}
        return functional_call(_Called(model, forward), renamed, arguments)


def called_with(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model is called unless the user says: a dictionary by keywords, a tuple or list by position."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs), {}) if isinstance(inputs, tuple | list) else ((inputs,), {})


def main_output(outputs: Any) -> tuple[Tensor, str | None]:
    """The tensor among what a model returned, and a note where something was left aside."""
    if isinstance(outputs, Tensor):
        return outputs, None
    if isinstance(outputs, Mapping) and isinstance(outputs.get("logits"), Tensor):
        return outputs["logits"], "of the model's outputs 'logits' was taken"
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    if isinstance(outputs, tuple | list) and outputs and isinstance(outputs[0], Tensor):
        return outputs[0], None if len(outputs) == 1 else "of the model's outputs the first was taken"
    got = f"it returned a {type(outputs).__name__}"
    remedy = "Say which one is meant with forward=lambda model, inputs: model(...).something"
    raise InvalidInput(sentence("the model must return a tensor", got, remedy))
