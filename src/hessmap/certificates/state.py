"""What a network holds besides its weights: buffers, tensors and tables in attributes, what its functions remember.

All of it enters the answers and none of it the divergence, so it must not have changed since before the samples.
"""

from __future__ import annotations

import pickle
import types
import weakref
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.certificates.memory import VALUES, held, is_memory, is_trusted, outside_of
from hessmap.errors import InvalidInput, sentence

_Table = Mapping[Any, Any]
# Parameters, buffers, children, hooks and mode, which are looked at one by one; and what torch.compile leaves there.
_OF_MODULES = frozenset((*vars(nn.Module()), "_compiled_call_impl", "_is_torch_compile"))
_ONE_BY_ONE = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
_TORCH_VALUES = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_NORMS = (nn.modules.batchnorm._BatchNorm, nn.modules.instancenorm._InstanceNorm)


def require_same_state(model: nn.Module, initial: nn.Module) -> tuple[str, ...]:
    """Refuse two networks that differ in anything but their weights; name what cannot be compared."""
    weights = [weight for one in (model, initial) for weight in one.parameters() if weight.is_floating_point()]
    comparison = _Comparison(set(map(id, weights)))
    comparison.compare("the network", model, initial)
    return tuple(dict.fromkeys(comparison.doubts))


def state_changes(before: nn.Module, after: nn.Module) -> tuple[str, ...]:
    """What a network keeps from one call to the next, found by its copies before and after some of them."""
    weights = [weight for one in (before, after) for weight in one.parameters() if weight.is_floating_point()]
    comparison = _ListOfChanges(set(map(id, weights)))
    comparison.compare("the network", after, before)
    return tuple(dict.fromkeys(comparison.changes))


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
            self._mappings(place, _own_attributes(one), _own_attributes(other))
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
        elif isinstance(one, (*VALUES, *_TORCH_VALUES, set, frozenset)):
            self._require(one == other or (one != one and other != other), place, "its value changed")
            if not isinstance(one, type | types.ModuleType):  # a number or a text of a class of its own
                self._mappings(place, _own_attributes(one), _own_attributes(other))
        else:
            self._objects(place, one, other)

    def _modules(self, place: str, one: nn.Module, other: nn.Module) -> None:
        for kind in type(one).__mro__:
            for name, value in vars(kind).items() if not is_trusted(kind) else ():
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
        for what in sorted(_OF_MODULES.difference(_ONE_BY_ONE)):
            if is_memory(vars(one).get(what)):
                self.doubts.append(f"{place}.{what} holds tensors or many values, which are not compared")

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
            self.compare(f"what {place} holds", held(one), held(other))
            self._find_outside(place, one)
        elif _is_its_attributes(one):
            self._mappings(place, vars(one), vars(other))
        elif _pickled(one) is None or _pickled(one) != _pickled(other):
            self.doubts.append(f"{place}, a {type(one).__name__}, cannot be compared with the initial model's")

    def find_memory(self, place: str, value: Any) -> None:
        """One object in both networks: whatever training did to it, it did to both, and nobody can see it."""
        value = getattr(value, "fget", getattr(value, "__func__", value))  # of properties, methods, static methods
        if id(value) in self.weights or isinstance(value, (*VALUES, *_TORCH_VALUES)):
            return
        if isinstance(value, partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self.find_memory(place, part)
        elif isinstance(value, types.FunctionType):
            if not is_trusted(value) and (id(value), 0) not in self.seen:
                self.seen[id(value), 0] = value
                for part in held(value):
                    self.find_memory(f"what {place} holds", part)
                self._find_outside(place, value)
        elif is_memory(value):
            self.doubts.append(f"{place} is one {type(value).__name__} in both models: a change of it cannot be seen")

    def _find_outside(self, place: str, function: types.FunctionType) -> None:
        for name, value in outside_of(function):
            self.find_memory(f"{name}, which {place} reads,", value)

    def _require(self, condition: bool, place: str, how: str, remedy: str | None = None) -> None:
        if not condition:
            must = "outside of the weights, model and initial_model must be the same"
            remedy = remedy or "What is learnt there from the samples has no divergence in the bound"
            raise InvalidInput(sentence(must, f"{place}: {how}", remedy))


class _ListOfChanges(_Comparison):
    """The same walk where a difference is no error but is written down."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__(weights)
        self.changes: list[str] = []

    def _mappings(self, place: str, one: _Table, other: _Table, remedy: str | None = None) -> None:
        both = [key for key in one if key in other]
        super()._mappings(place, {key: one[key] for key in both}, {key: other[key] for key in both}, remedy)
        self.changes += [f"{place}.{key}".removeprefix("the network.") for key in {*one} ^ {*other}]

    def _require(self, condition: bool, place: str, how: str, remedy: str | None = None) -> None:
        if not condition:
            self.changes.append(place)


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


def _own_attributes(value: Any) -> dict[str, Any]:
    """What somebody wrote onto a tensor, a number or a text."""
    kept = {} if type(value) in VALUES else getattr(value, "__dict__", {})
    return {name: item for name, item in kept.items() if not name.startswith("_")}


def _is_its_attributes(value: Any) -> bool:
    kind: Any = type(value)
    return hasattr(value, "__dict__") and kind.__reduce_ex__ is object.__reduce_ex__


def _pickled(value: Any) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # objects refuse in many ways; what cannot be written cannot be compared
        return None
