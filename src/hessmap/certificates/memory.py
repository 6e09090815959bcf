"""What an object leads to: tensors and tables in its attributes and containers, and what functions remember."""

from __future__ import annotations

import dis
import sys
import types
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

VALUES = (bool, int, float, complex, str, bytes, type(None), type, range, slice, Enum, types.ModuleType)
_TABLE = 100  # values: what both networks share and is shorter is a configuration, not a table of labels
_TRUSTED = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "scipy"}  # their functions remember nothing


def is_memory(value: Any) -> bool:
    """Whether an object could hold what was learnt from samples: a tensor, an array, or many values."""
    return any(True for _ in state_tensors(value)) or sum(1 for _ in _leaves(value)) >= _TABLE


def state_tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor or array of numbers that attributes and containers lead to."""
    for part in _leaves(value):
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            yield torch.from_numpy(np.asarray(part))


def shared_weight(model: nn.Module) -> str | None:
    """What shares memory with a parameter, in words: another parameter, a buffer, an attribute, or a part of itself.

    A copy of the network would lose that: what follows the weights in the original keeps their mean in the copy.
    """
    named = [(name, one) for name, one in model.named_parameters() if _has_memory(one)]
    own = {id(one) for _, one in named}
    others = [one for one in state_tensors(model) if id(one) not in own and _has_memory(one)]
    spans = sorted((*_span(one), f"the parameter {name}") for name, one in named)
    spans += [(*_span(one), f"a tensor of shape {tuple(one.shape)}") for one in others]
    for name, one in named:
        if any(size > 1 and stride == 0 for size, stride in zip(one.shape, one.stride(), strict=True)):
            return f"the numbers of {name} share their memory with each other"
        start, stop = _span(one)
        for first, last, words in spans:
            if first < stop and start < last and words != f"the parameter {name}":
                return f"{words} shares memory with {name}"
    return None


def _has_memory(tensor: Tensor) -> bool:
    is_lazy = isinstance(tensor, nn.parameter.UninitializedParameter)
    return not is_lazy and tensor.layout == torch.strided and not tensor.is_meta and tensor.numel() > 0


def _span(tensor: Tensor) -> tuple[int, int]:
    """The addresses of its first byte and of the one behind its last."""
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()


def _leaves(value: Any) -> Iterator[Any]:
    seen: set[int] = set()
    todo = [value]
    while todo:
        part = todo.pop()
        if id(part) in seen and not isinstance(part, VALUES):
            continue
        seen.add(id(part))
        inner = [] if isinstance(part, VALUES) else _parts(part)
        todo += inner
        if not inner:
            yield part


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list(value)
    if isinstance(value, np.ndarray):
        return list(value.ravel()) if value.dtype.hasobject else []
    return [] if isinstance(value, Tensor | types.FunctionType) else list(getattr(value, "__dict__", {}).values())


def is_trusted(code: type | types.FunctionType | types.ModuleType) -> bool:
    """Whether it belongs to python, torch, numpy or scipy."""
    home = code.__name__ if isinstance(code, types.ModuleType) else code.__module__ or "torch"
    return home.partition(".")[0] in _TRUSTED


def held(function: types.FunctionType) -> list[Any]:
    """What a function carries with it: defaults and the variables of its closure."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            cells.append(None)
    return [function.__defaults__, function.__kwdefaults__, *cells]


def outside_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What a function reads besides its arguments: global variables, what it imports, and of modules of python and
    classes among these every attribute whose name it spells."""
    for name, value in sorted(_named(function).items()):
        if not isinstance(value, types.ModuleType | type):
            yield name, value
        elif not is_trusted(value):
            spelled = _attribute_names(function.__code__)
            yield from ((f"{name}.{inner}", vars(value)[inner]) for inner in sorted(spelled & vars(value).keys()))


def _named(function: types.FunctionType) -> dict[str, Any]:
    """The global variables that a function reads and the modules that it imports, by name."""
    steps = list(_steps(function.__code__))
    read = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    imported = {step.argval for step in steps if step.opname == "IMPORT_NAME"}
    found = {name: sys.modules[name] for name in imported & sys.modules.keys()}
    return found | {name: function.__globals__[name] for name in read & function.__globals__.keys()}


def _steps(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from _steps(part)


def _attribute_names(code: types.CodeType) -> set[str]:
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*map(_attribute_names, inner))
