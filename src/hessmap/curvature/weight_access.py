"""Weights that a model reaches by another way than its attributes, where they would silently be constants.

Derivatives are taken with tensors in the place of a module's parameters. A weight in a plain list, or one of the
original model that a function closes over, is not replaced: the outputs would not change with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import resolve_name

from hessmap.curvature.operation_reader import Operation, OperationReader, storage_address, tensors_among
from hessmap.errors import UnsupportedNetwork, sentence

_READS = ("numpy", "tolist", "item")
_NARROW = (torch.float32, torch.bfloat16, torch.float16)


class WeightSearch:
    """Notes operations on memory that belongs to one of some weights, reads of values past autograd, and casts."""

    def __init__(self, addresses: Mapping[int, str], given: Mapping[int, str]) -> None:
        self.addresses = addresses
        self.given = given
        self.found: tuple[str, str] | None = None
        self.constants: set[str] = set()
        self.narrow: tuple[str, torch.dtype] | None = None

    def read(self, func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        if name in _READS or (name == "__get__" and getattr(func, "__self__", None) is Tensor.data):
            self.constants |= {self.given[id(value)] for value in args[:1] if id(value) in self.given}
        elif name != "__get__" and self.found is None:
            places = [storage_address(tensor) for tensor in tensors_among((args, kwargs))]
            weight = next((self.addresses[place] for place in places if place in self.addresses), None)
            self.found = None if weight is None else (weight, resolve_name(func) or name)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.dtype in _NARROW and self.narrow is None:
            is_cast = any(tensor.dtype == torch.float64 for tensor in tensors_among(args))
            self.narrow = (resolve_name(func) or name, result.dtype) if is_cast else None
        return result


def require_module_weights(
    forward: Callable[[dict[str, Tensor]], Any], named: Mapping[str, Tensor], *models: nn.Module
) -> tuple[torch.dtype | None, tuple[str, ...]]:
    """Evaluate once with copies of the weights: the models' own must not be seen. The narrower number format in which a
    float64 model computes some of its values, if it does, and notes on constants and casts."""
    addresses = {
        storage_address(value): name.replace("_orig_mod.", "")
        for model in models
        for name, value in model.named_parameters()
        if name.replace("_orig_mod.", "") in named and value.numel()
    }
    given = {name: value.clone() for name, value in named.items()}
    search = WeightSearch(addresses, {id(value): name for name, value in given.items()})
    with OperationReader(search.read), torch.no_grad():
        forward(given)
    require_unwritten(given, [0] * len(given))
    if search.found is not None:
        name, operation = search.found
        must = "a model must reach its weights through its modules"
        got = f"{operation} has parameter '{name}' from elsewhere, where it would stay constant"
        remedy = "Read it from its module in forward (self.layer.weight), not from a list, a closure or another model"
        raise UnsupportedNetwork(sentence(must, got, remedy))
    notes = [f"the model reads values of '{name}' past autograd: constant there" for name in sorted(search.constants)]
    operation, narrow = search.narrow or ("", None)
    if narrow is not None:
        name, rounding = str(narrow).removeprefix("torch."), torch.finfo(narrow).eps
        notes.append(f"the model computes some of its values in {name} ({operation}): right to about {rounding:.0e}")
    return narrow, tuple(notes)


def require_unwritten(named: Mapping[str, Tensor], versions: Sequence[int]) -> None:
    """``versions`` are those of the tensors before a forward pass; a model that writes into its weights is refused."""
    for (name, value), before in zip(named.items(), versions, strict=True):
        if value._version != before:
            must, got = "a forward pass must leave the weights as they are", f"this one writes into parameter '{name}'"
            remedy = "Do it once before, or write the changed weight into a variable"
            raise UnsupportedNetwork(sentence(must, got, remedy))
