"""Copies of networks and samples in a number format, and the tensors that a network holds."""

from __future__ import annotations

import copy
import types
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.errors import UnsupportedNetwork, require, sentence

Module = TypeVar("Module", bound=nn.Module)
VALUES = (bool, int, float, complex, str, bytes, type(None), type, range, slice, Enum, types.ModuleType)


def model_copy(model: Module, dtype: torch.dtype) -> Module:
    """A copy of a network as it is used, without dropout, on the processor and in a number format."""
    for name, parameter in model.named_parameters():
        has_values = not (isinstance(parameter, nn.parameter.UninitializedParameter) or parameter.is_meta)
        require(has_values, "every parameter must have its values", f"{name} is lazy or on the meta device")
        is_real = parameter.dtype.is_floating_point or not parameter.is_complex()
        require(is_real, "weights must be real", f"{name} is {parameter.dtype}")
        require(bool(parameter.isfinite().all()), "weights must be finite", f"{name} has NaN or inf")
    must = "the model must be copyable, so that the original is not changed"
    try:
        made = copy.deepcopy(uncompiled(model))
    except (RuntimeError, TypeError, AssertionError) as error:
        raise UnsupportedNetwork(sentence(must, f"copy.deepcopy failed with: {error}")) from error
    own = {id(module) for module in uncompiled(model).modules()}
    if shared := [name or "the network" for name, module in made.named_modules() if id(module) in own]:
        raise UnsupportedNetwork(sentence(must, f"its copy shares {shared[0]} with it", "Leave out __deepcopy__"))
    made = made.to("cpu", dtype).eval()
    for module in made.modules():
        module._compiled_call_impl = None
        for name, value in list(vars(module).items()) if not isinstance(module, torch.jit.ScriptModule) else ():
            if not name.startswith("_") and (changed := _in_format(value, dtype)) is not value:
                setattr(module, name, changed)
    return made


def uncompiled(model: Module) -> Module:
    """What ``torch.compile`` made faster, as it was."""
    original: Module = getattr(model, "_orig_mod", model)
    return original


def _in_format(value: Any, dtype: torch.dtype) -> Any:
    """The tensors of an attribute in another number format, as ``module.to`` changes those of buffers."""
    if isinstance(value, Tensor):
        return value.to("cpu", dtype) if value.is_floating_point() and not isinstance(value, nn.Parameter) else value
    if type(value) is dict:
        changed = {key: _in_format(item, dtype) for key, item in value.items()}
        return changed if any(changed[key] is not item for key, item in value.items()) else value
    if type(value) in (list, tuple):
        items = [_in_format(item, dtype) for item in value]
        return type(value)(items) if any(one is not other for one, other in zip(items, value, strict=True)) else value
    return value


def in_format(inputs: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy of the samples in a number format, because a network may write into what it is given; tokens stay so."""
    return inputs.to(dtype, copy=True) if inputs.is_floating_point() else inputs.clone()


def state_tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor or array of numbers that attributes and containers lead to."""
    seen: set[int] = set()
    left = [value]
    while left:
        part = left.pop()
        if isinstance(part, VALUES) or id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Tensor):
            yield part
        elif isinstance(part, np.ndarray):
            if part.dtype.kind in "biuf":
                yield torch.from_numpy(np.asarray(part))
            left += list(part.ravel()) if part.dtype.hasobject else []
        elif isinstance(part, Mapping):
            left += part.values()
        elif isinstance(part, list | tuple | set | frozenset | deque):
            left += part
        elif not isinstance(part, types.FunctionType):
            left += getattr(part, "__dict__", {}).values()
