"""One evaluation of a model with tensors in the place of its parameters, which leaves no trace in it.

Operations that torch cannot differentiate twice, or differentiates wrongly, are rewritten by a torch-function mode that
is there for this evaluation alone: no switch of the process is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from hessmap.curvature.nested_tensors import Inputs, map_tensors
from hessmap.curvature.operation_formulas import ATTENTION, COMPOSITE, FASTER, REWRITTEN
from hessmap.errors import InvalidInput, sentence

Forward = Callable[[nn.Module, Any], Any]
ATTENTION_NOTE = (
    "attention was taken by its formula, as torch's math kernel has it, because the fused kernels have no second "
    "derivative"
)


class OperationRewriter(TorchFunctionMode):
    """Some operations of torch by their formulas; what is worth a note is added to ``notes``.

    ``fast`` has convolutions go by matrix products, and frozen batch norms by their formula, whose derivatives are
    products with numbers.
    """

    def __init__(self, notes: set[str] | None = None, fast: bool = False) -> None:
        super().__init__()
        self.notes = notes
        self.fast = fast

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in ATTENTION and self.notes is not None:
            self.notes.add(ATTENTION_NOTE)
        if func in COMPOSITE:
            with self:
                return COMPOSITE[func](*args, **kwargs)
        if self.fast and func in FASTER:
            return FASTER[func](*args, **kwargs)
        return REWRITTEN.get(func, func)(*args, **kwargs)


class _CalledBy(nn.Module):
    """A model behind a user's way to call it."""

    def __init__(self, model: nn.Module, forward: Forward) -> None:
        super().__init__()
        self.model = model
        self.call = forward

    def forward(self, inputs: Inputs) -> Any:
        return self.call(self.model, inputs)


def evaluate(
    model: nn.Module,
    tensors: dict[str, Tensor],
    inputs: Inputs,
    forward: Forward | None = None,
    notes: set[str] | None = None,
    fast: bool = False,
) -> Any:
    """What the model returns with ``tensors`` for its parameters; ``notes`` gets what is worth one."""
    # Fresh buffers and inputs for every call: a model that counts, averages or works in place writes into them.
    tensors = {name: value.clone() for name, value in model.named_buffers()} | tensors
    inputs = map_tensors(torch.clone, inputs)
    with OperationRewriter(notes, fast):
        if forward is None:
            return functional_call(model, tensors, *_arguments(inputs))
        renamed = {f"model.{name}": value for name, value in tensors.items()}
        return functional_call(_CalledBy(model, forward), renamed, (inputs,))


def _arguments(inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
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
