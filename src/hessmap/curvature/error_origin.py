"""Where an exception comes from: torch's own refusals are explained, those of the user's code pass as they are."""

from __future__ import annotations

import copy
import copyreg
import dis
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import torch

from hessmap.curvature.memory import is_out_of_memory
from hessmap.curvature.nested_tensors import Inputs, tensors_with_paths
from hessmap.errors import HessmapError, InvalidInput, sentence

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
