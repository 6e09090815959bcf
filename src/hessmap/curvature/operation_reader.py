"""The one torch-function mode that reads what a model does, for whoever wants to know.

Readers are ordinary functions: the recorder of layers, the search for weights that are reached past their modules, the
guard that a certificate's network reads no weight it must not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

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
