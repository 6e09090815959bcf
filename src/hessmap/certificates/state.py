"""What a network holds besides its weights: buffers, tensors and tables in attributes, what its functions remember.

All of it enters the answers and none of it the divergence, so it must not have changed since before the samples.
"""

from __future__ import annotations

import dis
import pickle
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.errors import InvalidInput, sentence

_Table = Mapping[Any, Any]
# Parameters, buffers, children, hooks and mode, which are looked at one by one; and what torch.compile leaves there.
_OF_MODULES = frozenset((*vars(nn.Module()), "_compiled_call_impl", "_is_torch_compile"))
_VALUES = (bool, int, float, complex, str, bytes, type(None), type, range, slice, Enum, types.ModuleType)
_TORCH_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_TABLE = 100  # values: what both networks share and is shorter is a configuration, not a table of labels
_TRUSTED = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "scipy"}  # their functions remember nothing
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def require_same_state(model: nn.Module, initial: nn.Module) -> tuple[str, ...]:
    """Refuse two networks that differ in anything but their weights; name what cannot be compared."""
    weights = [weight for one in (model, initial) for weight in one.parameters() if weight.is_floating_point()]
    comparison = _Comparison(set(map(id, weights)))
    comparison.compare("the network", model, initial)
    return tuple(dict.fromkeys(comparison.doubts))


def state_tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor or array of numbers that attributes and containers lead to."""
    for part in _leaves(value):
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, np.ndarray) and part.dtype.kind in "biuf":
            yield torch.from_numpy(np.asarray(part))


def _leaves(value: Any) -> Iterator[Any]:
    seen: set[int] = set()
    todo = [value]
    while todo:
        part = todo.pop()
        if id(part) in seen and not isinstance(part, _VALUES):
            continue
        seen.add(id(part))
        inner = [] if isinstance(part, _VALUES) else _parts(part)
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


class _Comparison:
    """A walk over two networks at once; what differs is an error, what cannot be told is a doubt."""

    def __init__(self, weights: set[int]) -> None:
        self.weights = weights
        self.seen: dict[tuple[int, int], Any] = {}  # holds the objects, so that no other takes their place
        self.doubts: list[str] = []

    def compare(self, place: str, one: Any, other: Any, remedy: str | None = None) -> None:
        """Whatever two attributes may be."""
        pair = (id(one), id(other))
        if self.weights.issuperset(pair) or pair in self.seen:
            return
        self.seen[pair] = (one, other)
        if one is other:
            self.find_memory(place, one)
        elif isinstance(one, Tensor) and isinstance(other, Tensor):
            self._require(_equal(one, other), place, "its values changed", remedy)
        elif type(one) is not type(other):
            self._require(False, place, f"it is a {type(one).__name__} and a {type(other).__name__}")
        elif isinstance(one, nn.Module):
            self._modules(place, one, other)
        elif isinstance(one, np.ndarray) and not one.dtype.hasobject:
            is_same = one.shape == other.shape and np.array(one).tobytes() == np.array(other).tobytes()
            self._require(is_same, place, "its values changed")
        elif isinstance(one, Mapping):
            self._mappings(place, one, other)
        elif isinstance(one, list | tuple | deque | np.ndarray):
            self._mappings(place, dict(enumerate(one)), dict(enumerate(other)))
        elif isinstance(one, (*_VALUES, *_TORCH_VALUES, set, frozenset)):
            self._require(one == other or (one != one and other != other), place, "its value changed")
        else:
            self._objects(place, one, other)

    def _modules(self, place: str, one: nn.Module, other: nn.Module) -> None:
        for kind in type(one).__mro__:
            for name, value in vars(kind).items() if not _is_trusted(kind) else ():
                self.find_memory(f"{kind.__name__}.{name}", value)
        if isinstance(one, torch.jit.ScriptModule):
            self._mappings(place, dict(one.named_buffers()), dict(other.named_buffers()))
            self.doubts.append(f"{place} is compiled by torch.jit: only its buffers can be compared")
            return
        remedy = None
        if isinstance(one, _NORMS):
            remedy = "Use layer-norm or group-norm, or freeze the statistics before the samples are seen"
        self._mappings(place, one._buffers, other._buffers, remedy)
        for what in ("_parameters", "_modules"):
            self._mappings(place, vars(one)[what], vars(other)[what])
        for what in ("_forward_hooks", "_forward_pre_hooks"):
            self.compare(f"{place}.{what}", [*vars(one)[what].values()], [*vars(other)[what].values()])
        self._mappings(place, _attributes(one), _attributes(other))

    def _mappings(self, place: str, one: _Table, other: _Table, remedy: str | None = None) -> None:
        for key in [*one, *other]:
            inner = f"{place}.{key}".removeprefix("the network.")
            self._require(key in one and key in other, inner, "only one of the two has it", remedy)
            self.compare(inner, one[key], other[key], remedy)

    def _objects(self, place: str, one: Any, other: Any) -> None:
        if isinstance(one, weakref.ref):
            self.compare(place, one(), other())
        elif isinstance(one, partial):
            self.compare(place, (one.func, one.args, one.keywords), (other.func, other.args, other.keywords))
        elif isinstance(one, types.MethodType):
            self.compare(place, (one.__func__, one.__self__), (other.__func__, other.__self__))
        elif isinstance(one, types.FunctionType):
            self._require(one.__code__ == other.__code__, place, "its code changed")
            self.compare(f"what {place} holds", _held(one), _held(other))
            self._find_in_globals(place, one)
        elif _is_its_attributes(one):
            self._mappings(place, vars(one), vars(other))
        elif _pickled(one) is None or _pickled(one) != _pickled(other):
            self.doubts.append(f"{place}, a {type(one).__name__}, cannot be compared with the initial model's")

    def find_memory(self, place: str, value: Any) -> None:
        """One object in both networks: whatever training did to it, it did to both, and nobody can see it."""
        value = getattr(value, "fget", getattr(value, "__func__", value))  # of properties, methods, static methods
        if id(value) in self.weights or isinstance(value, (*_VALUES, *_TORCH_VALUES)):
            return
        if isinstance(value, partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.find_memory(place, part)
        elif isinstance(value, types.FunctionType):
            if not _is_trusted(value) and (id(value), 0) not in self.seen:
                self.seen[id(value), 0] = value
                for part in _held(value):
                    self.find_memory(f"what {place} holds", part)
                self._find_in_globals(place, value)
        elif any(True for _ in state_tensors(value)) or sum(1 for _ in _leaves(value)) >= _TABLE:
            self.doubts.append(f"{place} is one {type(value).__name__} in both models: a change of it cannot be seen")

    def _find_in_globals(self, place: str, function: types.FunctionType) -> None:
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self.find_memory(f"{name}, which {place} reads,", function.__globals__[name])

    def _require(self, condition: bool, place: str, how: str, remedy: str | None = None) -> None:
        if not condition:
            must = "outside of the weights, model and initial_model must be the same"
            remedy = remedy or "What is learnt there from the samples has no divergence in the bound"
            raise InvalidInput(sentence(must, f"{place}: {how}", remedy))


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same values, also in two number formats."""
    if one.shape != other.shape:
        return False
    one, other = (value.detach().cpu().to_dense() for value in (one, other))
    if one.dtype != other.dtype:
        kind = torch.complex128 if one.is_complex() or other.is_complex() else torch.float64
        one, other = one.to(kind), other.to(kind)
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _attributes(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in _OF_MODULES}


def _is_its_attributes(value: Any) -> bool:
    kind: Any = type(value)
    return hasattr(value, "__dict__") and kind.__reduce_ex__ is object.__reduce_ex__


def _is_trusted(code: type | types.FunctionType) -> bool:
    return (code.__module__ or "torch").partition(".")[0] in _TRUSTED


def _held(function: types.FunctionType) -> list[Any]:
    """What a function carries with it: defaults and the variables of its closure."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # not filled yet
            cells.append(None)
    return [function.__defaults__, function.__kwdefaults__, *cells]


def _names(code: types.CodeType) -> set[str]:
    """Of the global variables that a function reads."""
    inner = (part for part in code.co_consts if isinstance(part, types.CodeType))
    read = {step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL"}
    return read.union(*map(_names, inner))


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # objects refuse in many ways; what cannot be written cannot be compared
        return None
