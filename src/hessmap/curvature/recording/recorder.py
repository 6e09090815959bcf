"""The reader of layers: it follows parameters through the operations of a forward pass and shows their uses.

Nothing is hooked into the user's modules. A weight that acts twice (tied, a module called twice) is seen twice, and so
is what is made of parameters alone: views, slices, transposes, casts, parametrised weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from hessmap.curvature.operation_reader import OperationReader, tensors_among
from hessmap.curvature.recording.calls import layer_call
from hessmap.curvature.recording.layer_call import LayerCall
from hessmap.curvature.recording.uses import ParameterPart


@dataclass(frozen=True, eq=False)
class FromParameters:
    """A tensor that is made of parameters alone; ``part`` if its entries are entries of one of them."""

    tensor: Tensor
    names: frozenset[str]
    part: ParameterPart | None


@dataclass(frozen=True, eq=False)
class ParameterCall:
    """An operation that took parameters: together with data (a use), or alone.

    ``layer`` is None where the operation is not known as a layer. ``first`` and ``last`` are autograd's sequence
    numbers before and after it.
    """

    operation: str
    names: frozenset[str]
    layer: LayerCall | None
    is_use: bool
    is_differentiable: bool
    first: int
    last: int


class Listener(Protocol):
    """Who says what the outputs of a layer call are."""

    def layer_outputs(self, call: LayerCall) -> Tensor:
        """The outputs as rows; they may be perturbed."""


class Recorder:
    """Follows parameters, known by identity, through the operations of a forward pass.

    With ``data`` it also follows what depends on the inputs, so that it can tell a use of a parameter from the making
    of a tensor out of parameters alone; it then holds every tensor of the pass.
    """

    def __init__(
        self, parameters: Mapping[str, Tensor], listener: Listener, data: Iterable[Tensor] | None = None
    ) -> None:
        self.listener = listener
        self.followed: dict[int, FromParameters] = {
            id(value): FromParameters(value, frozenset([name]), ParameterPart(name, num_entries=value.numel()))
            for name, value in parameters.items()
        }
        self.calls: list[ParameterCall] = []
        self._data: dict[int, Tensor] | None = None if data is None else {id(value): value for value in data}

    def reading(self) -> OperationReader:
        """The mode in which the forward pass is to be made."""
        return OperationReader(self._replay if self._data is None else self._record)

    def _part(self, tensor: Any) -> ParameterPart | None:
        found = self.followed.get(id(tensor))
        return None if found is None else found.part

    def _replay(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = layer_call(func, args, kwargs, self._part)
        if call is not None:
            return call.returned(self.listener.layer_outputs(call))
        result = func(*args, **kwargs)
        if func in _SELECTIONS and args and id(args[0]) in self.followed:
            self._follow(func, args, kwargs, result, self.followed[id(args[0])].names)
        return result

    def _record(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert self._data is not None
        first = _sequence_number()
        call = layer_call(func, args, kwargs, self._part)
        tensors = list(tensors_among([args, kwargs]))
        own = [self.followed[id(tensor)] for tensor in tensors if id(tensor) in self.followed]
        names: frozenset[str] = frozenset().union(*(found.names for found in own))
        result = func(*args, **kwargs) if call is None else call.returned(self.listener.layer_outputs(call))
        made = list(tensors_among(result))
        is_use = any(id(tensor) in self._data for tensor in tensors)
        if is_use:
            self._data |= {id(tensor): tensor for tensor in made}
        elif names:
            self._follow(func, args, kwargs, result, names)
        if names and made:
            is_differentiable = torch.is_grad_enabled() and any(found.tensor.requires_grad for found in own)
            name = call.operation if call is not None else getattr(func, "__name__", str(func))
            last = _sequence_number()
            self.calls.append(ParameterCall(name, names, call, is_use, is_differentiable, first, last))
        return result

    def _follow(self, func: Callable[..., Any], args: Any, kwargs: Any, result: Any, names: frozenset[str]) -> None:
        """Remember what was made of parameters, and which of their entries it holds if it only moved them."""
        made = list(tensors_among(result))
        places: list[Tensor | None] = [None] * len(made)
        source = self.followed.get(id(args[0])) if args else None
        if func in _SELECTIONS and source is not None and source.part is not None:
            index = source.part.index
            if index is None:
                index = torch.arange(source.tensor.numel()).reshape(source.tensor.shape)
            with torch._C.DisableTorchFunction():
                moved = index if func in _CASTS else func(index, *args[1:], **kwargs)
            places = list(tensors_among(moved))
        for tensor, place in zip(made, places, strict=True):
            if id(tensor) in self.followed and place is not None:
                continue  # a cast or a copy that was not needed returns the parameter itself
            whole = None if place is None or source is None else source.part
            part = None if whole is None else ParameterPart(whole.name, place, whole.num_entries)
            self.followed[id(tensor)] = FromParameters(tensor, names, part)


def _sequence_number() -> int:
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]
    return number


_PROPERTIES = tuple(getattr(torch.Tensor, name).__get__ for name in ("T", "mT", "H", "mH", "data"))
_CASTS = frozenset((torch.Tensor.to, torch.Tensor.type, torch.Tensor.double, torch.Tensor.float, torch.Tensor.type_as))
_MOVES = (
    *("t", "transpose", "permute", "view", "reshape", "flatten", "unflatten", "chunk", "split", "split_with_sizes"),
    *("tensor_split", "unbind", "narrow", "select", "squeeze", "unsqueeze", "contiguous", "clone", "detach"),
    *("movedim", "moveaxis", "swapaxes", "swapdims", "ravel", "__getitem__"),
)
# Operations that move or choose entries, and change none.
_SELECTIONS = (
    frozenset(getattr(torch.Tensor, name) for name in _MOVES if hasattr(torch.Tensor, name))
    | frozenset(getattr(torch, name) for name in _MOVES if hasattr(torch, name))
    | frozenset(_PROPERTIES)
    | _CASTS
)
