"""A private copy of a model, as a function of the parameters that are differentiated and of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from hessmap.curvature.error_origin import noting_forward
from hessmap.curvature.evaluation import Forward, evaluate, main_output
from hessmap.curvature.layout import Layout
from hessmap.curvature.model_copy import checked_device, chosen_format, private_copy
from hessmap.curvature.nested_tensors import Inputs, num_rows
from hessmap.curvature.selection import chosen_parameters
from hessmap.errors import InvalidInput, require, sentence


@dataclass(frozen=True, eq=False)
class FrozenModel:
    """``named`` are the parameters that are differentiated, ``fixed`` all others; ``forward`` is the user's way to call
    the model. ``narrowest`` is a narrower number format in which it computes some of its values, if there is one;
    ``seen`` collects what evaluations find worth a note."""

    model: nn.Module
    named: dict[str, Tensor]
    fixed: dict[str, Tensor]
    dtype: torch.dtype
    device: torch.device
    forward: Forward | None
    num_left_out: int
    copy_notes: tuple[str, ...]
    format_notes: tuple[str, ...]
    narrowest: torch.dtype | None = None
    seen: set[str] = field(default_factory=set)

    @property
    def layout(self) -> Layout:
        return Layout(tuple((name, tuple(value.shape)) for name, value in self.named.items()))

    @property
    def selection_notes(self) -> tuple[str, ...]:
        """Which parameters are not differentiated."""
        num_frozen = len(self.fixed) - self.num_left_out
        return (
            *([f"{num_frozen} frozen parameters were left out"] if num_frozen else []),
            *([f"{self.num_left_out} trainable parameters were left out, as asked"] if self.num_left_out else []),
        )

    def outputs(self, named: dict[str, Tensor], inputs: Inputs, fast: bool = False) -> Tensor:
        """The model's outputs with these parameters in place of its own: one a sample, in their own shape."""
        outputs, note = main_output(self.returned(inputs, self.forward, named, fast))
        if note:
            self.seen.add(note)
        if outputs.dtype != self.dtype:
            names = [str(dtype).removeprefix("torch.") for dtype in (self.dtype, outputs.dtype)]
            remedy = "Remove casts (.float(), autocast) from its forward pass, or choose another dtype"
            must, got = f"the model must compute in {names[0]}", f"the outputs of its {names[0]} copy are {names[1]}"
            raise InvalidInput(sentence(must, got, remedy))
        count = num_rows(inputs)
        outputs = outputs.reshape(1) if outputs.ndim == 0 and count == 1 else outputs
        must, got = "the model must return one row of outputs per sample", f"they have shape {tuple(outputs.shape)}"
        require(outputs.ndim > 0 and len(outputs) == count, must, f"{count} samples were given and {got}")
        return outputs

    def returned(
        self,
        inputs: Inputs,
        forward: Forward | None,
        named: dict[str, Tensor] | None = None,
        fast: bool = False,
    ) -> Any:
        """Whatever the model returns, called by ``forward``."""
        tensors = (self.named if named is None else named) | self.fixed
        with noting_forward(inputs):
            return evaluate(self.model, tensors, inputs, forward, self.seen, fast)

    def in_format(self, dtype: torch.dtype) -> FrozenModel:
        """The same parameters of a copy in another number format."""
        model, notes = private_copy(self.model, dtype, self.device)
        values = {name: value.detach() for name, value in model.named_parameters()}
        named, fixed = ({name: values[name] for name in chosen} for chosen in (self.named, self.fixed))
        return replace(self, model=model, named=named, fixed=fixed, dtype=dtype, copy_notes=notes, seen=set())


def frozen_model(
    model: nn.Module,
    parameters: str | Sequence[str] | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
    forward: Forward | None,
) -> FrozenModel:
    """A copy of the model, restricted to some parameters; it chooses the number format and the device if these are
    None."""
    require(isinstance(model, nn.Module), "model must be a torch.nn.Module", f"got {type(model).__name__}")
    require(forward is None or callable(forward), "forward must be a function (model, inputs)", f"got {forward!r}")
    chosen_dtype, format_notes = chosen_format(model, dtype)
    chosen_device = checked_device(model, device)
    with torch.no_grad():
        copied, notes = private_copy(model, chosen_dtype, chosen_device)
    named, fixed, num_left_out = chosen_parameters(copied, parameters)
    number_format = chosen_dtype, chosen_device
    return FrozenModel(copied, named, fixed, *number_format, forward, num_left_out, notes, format_notes)
