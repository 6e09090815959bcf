"""The one torch-function mode that reads what a model does, for whoever wants to know.

Readers are ordinary functions: the recorder of layers, the search for weights that are reached past their modules, the
guard that a certificate's network reads no weight it must not know.

One evaluation of a model with tensors in the place of its parameters, which leaves no trace in it.

Operations that torch cannot differentiate twice, or differentiates wrongly, are rewritten by a torch-function mode that
is there for this evaluation alone: no switch of the process is touched.

Where an exception comes from: torch's own refusals are explained, those of the user's code pass as they are."""

from __future__ import annotations

import copy
import copyreg
import dis
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from hessmap.errors import HessmapError, InvalidInput, sentence
from hessmap.linalg import is_out_of_memory
from hessmap.problem.data import Inputs, map_tensors, tensors_with_paths
from hessmap.problem.rewrites import ATTENTION, COMPOSITE, FASTER, REWRITTEN

Operation = Callable[..., Any]
Read = Callable[[Operation, tuple[Any, ...], dict[str, Any]], Any]


class OperationReader(TorchFunctionMode):
    """Hands every operation to ``read(operation, args, kwargs)``, which carries it out and returns its result."""

    def __init__(self, read: Read) -> None:
        super().__init__()
        self._read = read

    def __torch_function__(
        self, func: Operation, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._read(func, args, kwargs or {})


def tensors_among(values: Any) -> Iterator[Tensor]:
    """The tensors in arguments or results of an operation, in order."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list | dict):
        for value in values.values() if isinstance(values, dict) else values:
            yield from tensors_among(value)


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


def named_output(outputs: Any, name: str) -> Tensor | None:
    """The tensor of that name among the outputs of a model: an entry of a dictionary, or a field of an object."""
    found = outputs.get(name) if isinstance(outputs, Mapping) else getattr(outputs, name, None)
    return found if isinstance(found, Tensor) else None


def main_output(outputs: Any) -> tuple[Tensor, str | None]:
    """The tensor among what a model returned, and a note where something was left aside."""
    if isinstance(outputs, Tensor):
        return outputs, None
    if (logits := named_output(outputs, "logits")) is not None:
        return logits, "of the model's outputs 'logits' was taken"
    if isinstance(outputs, Mapping):
        outputs = tuple(outputs.values())
    if isinstance(outputs, tuple | list) and outputs and isinstance(outputs[0], Tensor):
        return outputs[0], None if len(outputs) == 1 else "of the model's outputs the first was taken"
    got = f"it returned a {type(outputs).__name__}"
    remedy = "Say which one is meant with forward=lambda model, inputs: model(...).something"
    raise InvalidInput(sentence("the model must return a tensor", got, remedy))


_TORCH = str(Path(torch.__file__).parent)
_COPYING = (copy.__file__, copyreg.__file__)
_MISMATCHES = ("shape", "size", "dtype", "xpected")  # words of torch's refusals of a tensor


def is_raised_in_torch(error: BaseException) -> bool:
    """Whether the innermost frame is torch's, of its Python code or of what that calls."""
    last = _innermost(error)
    return last is not None and last.tb_frame.f_code.co_filename.startswith(_TORCH)


def is_raised_in_copying(error: BaseException) -> bool:
    """Whether ``copy.deepcopy`` or torch raised it, and not a method of what is copied."""
    last = _innermost(error)
    return last is not None and (is_raised_in_torch(error) or last.tb_frame.f_code.co_filename in _COPYING)


@contextmanager
def fitting_inputs(inputs: Inputs) -> Iterator[None]:
    """What torch refuses for the shape or type of a tensor means that the inputs do not fit the model; whatever else
    is raised passes."""
    try:
        yield
    except Exception as error:
        if not _is_mismatch(error):
            raise
        got = f"inputs of shape {described(inputs)} gave: {error}"
        raise InvalidInput(sentence("the inputs must fit the model", got)) from error


@contextmanager
def noting_forward(inputs: Inputs) -> Iterator[None]:
    """An exception of the user's model passes with a note of where it was raised."""
    try:
        yield
    except HessmapError:
        raise
    except Exception as error:
        error.add_note(f"raised in the forward pass of the model, on inputs of shape {described(inputs)}")
        raise


def described(inputs: Inputs) -> str:
    """Shapes and types of all tensors."""
    return ", ".join(
        f"{tuple(tensor.shape)} and type {str(tensor.dtype).removeprefix('torch.')}"
        for _, tensor in tensors_with_paths(inputs)
    )


def _is_mismatch(error: Exception) -> bool:
    """A sentence of torch on shapes and types, from its Python code or from an operation, whose C++ has no frame."""
    last = _innermost(error)
    if last is None or is_out_of_memory(error) or not any(word in str(error) for word in _MISMATCHES):
        return False
    if is_raised_in_torch(error):
        return type(error) in (RuntimeError, ValueError, TypeError, IndexError)
    return type(error) is RuntimeError and not _is_raise_statement(last)


def _is_raise_statement(last: TracebackType) -> bool:
    """Whether Python code raised it there; else a function did that was called there and has no Python code."""
    code = last.tb_frame.f_code.co_code
    return last.tb_lasti < 0 or dis.opname[code[last.tb_lasti]] in ("RAISE_VARARGS", "RERAISE")


def _innermost(error: BaseException) -> TracebackType | None:
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last
