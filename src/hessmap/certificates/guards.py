"""Which tensors a network reads while it runs, told by the operations that receive them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from hessmap.curvature.operation_reader import Operation, OperationReader, storage_address

# What python may ask of a parameter without reading its values.
_FACTS = frozenset(
    ["shape", "dtype", "device", "layout", "requires_grad", "grad_fn", "_version", "size", "dim", "ndim", "numel"]
) | {"stride", "__len__", "__hash__", "is_leaf", "is_contiguous", "is_floating_point", "is_complex", "is_nested"}

_SPELLED = 16  # numbers of a tensor, at most, that are taken for constants of the code
_LOADS = ("aten.set_.source_Storage", "aten.from_file")  # operations that take memory which no operation has filled


class ForbiddenUse(Exception):
    """A tensor was read that the network at hand must not know."""


class OperationGuard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Raises ``ForbiddenUse`` where an operation receives the memory of a forbidden tensor, also by a view of it.

    With ``known`` tensors it collects in ``foreign`` those that are neither known nor results of the operations seen.
    """

    def __init__(self, forbidden: Iterable[Tensor], known: Iterable[Tensor] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forbidden = {place for tensor in forbidden if (place := storage_address(tensor))}
        self.known = None if known is None else {storage_address(tensor) for tensor in known}
        self.results: list[Any] = []  # alive, so that their memory is not given to somebody else
        self.foreign: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for tensor in _tensors((args, kwargs)):
            place = storage_address(tensor)
            if place in self.forbidden:
                raise ForbiddenUse(f"{func} receives a weight")
            # lift_fresh receives the numbers that a line of python spells out, or has from a file.
            is_spelled = "lift_fresh" in str(func) and tensor.numel() <= _SPELLED
            if self.known is not None and place not in self.known and not is_spelled:
                self.foreign.append(tensor)
        found = func(*args, **(kwargs or {}))
        if self.known is not None:
            if str(func).startswith(_LOADS):
                self.foreign += [tensor for tensor in _tensors(found) if storage_address(tensor) not in self.known]
            self.results.append(found)
            self.known |= {storage_address(tensor) for tensor in _tensors(found)}
        return found


def conversion_guard(forbidden: Iterable[Tensor]) -> OperationReader:
    """Raises where python takes the values of a forbidden tensor by a way that is no operation: ``.data``, numpy."""
    known = {id(tensor): tensor for tensor in forbidden}

    def read(func: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The getter of a property is a method of the property, which has the name.
        name = getattr(getattr(func, "__self__", None), "__name__", None) or getattr(func, "__name__", "")
        if name not in _FACTS and any(id(tensor) in known for tensor in _tensors((args, kwargs))):
            raise ForbiddenUse(f"{name} receives a weight")
        return func(*args, **kwargs)

    return OperationReader(read)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor)]
