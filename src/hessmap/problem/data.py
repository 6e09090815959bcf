"""Inputs as models take them, a tensor or dictionaries, tuples and lists of tensors with the samples as rows; batches.

A batch has inputs and targets, the same number of each, and finite values.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import InvalidInput, require, sentence
from hessmap.linalg import is_out_of_memory

Inputs = Any  # a tensor, nested dictionaries, tuples and lists of tensors, or a WholeBatch


@dataclass(frozen=True, eq=False)
class WholeBatch:
    """A batch of any structure that an objective evaluates as a whole: one row of a problem's data."""

    content: Any

    @property
    def tensors(self) -> list[tuple[str, Tensor]]:
        """Every tensor with the path to it."""
        found: dict[str, Tensor] = {}
        _map_content(lambda path, tensor: found.setdefault(path, tensor), self.content, "")
        return list(found.items())

    @property
    def size(self) -> int:
        """The common first dimension of its tensors; 1 where there is none."""
        lengths = {len(tensor) for _, tensor in self.tensors if tensor.ndim}
        return lengths.pop() if len(lengths) == 1 else 1

    def map(self, function: Callable[[Tensor], Tensor]) -> WholeBatch:
        return WholeBatch(_map_content(lambda _, tensor: function(tensor), self.content, ""))


def _map_content(function: Callable[[str, Tensor], Tensor], content: Any, path: str) -> Any:
    """The same structure with every tensor and array replaced; anything else stays as it is."""
    if isinstance(content, Tensor | np.ndarray):
        return function(path, as_tensor(content, f"batch{path}"))
    if isinstance(content, Mapping):
        mapped = {key: _map_content(function, value, f"{path}[{key!r}]") for key, value in content.items()}
        if type(content) is dict:
            return mapped
        other = copy.copy(content)  # a mapping with methods of its own, as tokenisers return
        for key, value in mapped.items():
            other[key] = value  # type: ignore[index]
        return other
    if isinstance(content, tuple | list):
        items = [_map_content(function, value, f"{path}[{place}]") for place, value in enumerate(content)]
        return type(content)(*items) if hasattr(content, "_fields") else type(content)(items)
    if is_dataclass(content) and not isinstance(content, type):
        values = {field.name: getattr(content, field.name) for field in fields(content) if field.init}
        mapped = {name: _map_content(function, value, f"{path}.{name}") for name, value in values.items()}
        return replace(content, **mapped)
    return content


def tensors_with_paths(inputs: Inputs) -> Iterator[tuple[str, Tensor]]:
    """List every tensor of a structure of inputs.

    Args:
        inputs: A tensor, or nested tuples, lists and dictionaries of tensors.

    Returns:
        Pairs of path, such as ``['mask'][0]``, and tensor.

    Raises:
        InvalidInput: If the structure has anything else than tensors.
    """
    if isinstance(inputs, Tensor):
        yield "", inputs
        return
    if isinstance(inputs, WholeBatch):
        yield from inputs.tensors
        return
    for key, value in _items(inputs):
        for path, tensor in tensors_with_paths(value):
            yield f"[{key!r}]{path}", tensor


def map_tensors(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """Replace every tensor of a structure of inputs.

    Args:
        function: Called with every tensor.
        inputs: A tensor, or nested tuples, lists and dictionaries of tensors.

    Returns:
        The same structure with the results.
    """
    if isinstance(inputs, Tensor):
        return function(inputs)
    if isinstance(inputs, WholeBatch):
        return inputs.map(function)
    made = {key: map_tensors(function, value) for key, value in _items(inputs)}
    if isinstance(inputs, Mapping):
        return made
    return tuple(made.values()) if isinstance(inputs, tuple) else list(made.values())


def take_rows(inputs: Inputs, index: Any) -> Inputs:
    """Some samples of a batch.

    Args:
        inputs: A tensor, or nested tuples, lists and dictionaries of tensors; or a whole batch of an objective,
            which is one row and is returned as it is.
        index: A slice or an index tensor.

    Returns:
        The same structure with these rows.
    """
    return inputs if isinstance(inputs, WholeBatch) else map_tensors(lambda tensor: tensor[index], inputs)


def num_rows(inputs: Inputs) -> int:
    """The number of samples of a batch.

    Args:
        inputs: A tensor, or nested tuples, lists and dictionaries of tensors.

    Returns:
        The common length of all tensors.

    Raises:
        InvalidInput: If their lengths differ.
    """
    if isinstance(inputs, WholeBatch):
        return 1
    found = dict[str, int | None]()
    for path, tensor in tensors_with_paths(inputs):
        found[path] = len(tensor) if tensor.ndim else None
    must = "all tensors of the inputs must contain the same number of samples"
    require(bool(found), must, "there is no tensor in them")
    counts = set(found.values())
    got = ", ".join(f"inputs{path} holds {'a number' if count is None else count}" for path, count in found.items())
    require(
        len(counts) == 1 and None not in counts,
        must,
        got,
        "If all samples share a tensor (an edge_index), capture it: forward=lambda model, x: model(x, edge_index)",
    )
    return int(next(iter(counts)) or 0)


def move_to(inputs: Inputs, device: torch.device, dtype: torch.dtype, *, copy: bool = False) -> Inputs:
    """Move inputs to a device, and their real tensors to a number format.

    Args:
        inputs: A tensor, or a structure of tensors.
        device: Where they go.
        dtype: Number format of real tensors.
        copy: Whether tensors that are there already are copied. Defaults to False.

    Returns:
        Inputs: The same structure.
    """

    def moved(tensor: Tensor) -> Tensor:
        return tensor.detach().to(device, dtype if tensor.is_floating_point() else None, copy=copy)

    return map_tensors(moved, inputs)


def concatenate(parts: list[Inputs]) -> Inputs:
    """Batches of one structure, one after the other."""
    first = parts[0]
    if isinstance(first, Tensor):
        return torch.cat(parts)
    if isinstance(first, Mapping):
        return {key: concatenate([part[key] for part in parts]) for key in first}
    made = [concatenate([part[place] for part in parts]) for place in range(len(first))]
    return tuple(made) if isinstance(first, tuple) else made


def num_bytes(inputs: Inputs, dtype: torch.dtype) -> int:
    """What the tensors take once the real ones are in a number format."""
    sizes = [
        tensor.numel() * (dtype.itemsize if tensor.is_floating_point() else tensor.element_size())
        for _, tensor in tensors_with_paths(inputs)
    ]
    return sum(sizes)


def _items(inputs: Inputs) -> list[tuple[Any, Any]]:
    if isinstance(inputs, Mapping):
        return list(inputs.items())
    if isinstance(inputs, tuple | list):
        return list(enumerate(inputs))
    must = "inputs must be tensors, or dictionaries, tuples and lists of them"
    remedy = "Capture other objects in forward=lambda model, inputs: ..."
    raise InvalidInput(sentence(must, f"there is a {type(inputs).__name__} among them", remedy))


Pair = tuple[Inputs, Tensor]
_LABELS = ("labels", "targets", "label", "target")


def is_pair(data: Any) -> bool:
    """A pair of tensors, or of nested tensors and a tensor, is (inputs, targets)."""
    if not isinstance(data, tuple | list) or len(data) != 2 or not isinstance(data[1], Tensor | np.ndarray):
        return False
    return isinstance(data[0], Tensor | np.ndarray | Mapping) or (isinstance(data, tuple) and _is_nested(data[0]))


def _is_nested(data: Any) -> bool:
    return isinstance(data, tuple) and all(isinstance(item, Tensor | np.ndarray | Mapping) for item in data)


def labelled_pair(batch: Mapping[str, Any]) -> Pair:
    """A dictionary brings its targets among its inputs."""
    name = label_name(batch)
    return {key: value for key, value in batch.items() if key != name}, as_tensor(batch[name], name)


def label_name(batch: Mapping[str, Any]) -> str:
    """The key of a dictionary's targets."""
    for name in _LABELS:
        if isinstance(batch.get(name), Tensor | np.ndarray):
            return name
    got = f"there is a dictionary with the keys {', '.join(map(str, batch))}"
    remedy = "Put them there, or pass targets="
    raise InvalidInput(
        sentence(f"a dictionary must contain its targets under one of {', '.join(_LABELS)}", got, remedy)
    )


def batch_pair(batch: Any) -> Pair:
    """Inputs and targets of a batch."""
    if isinstance(batch, Mapping):
        inputs, targets = labelled_pair(batch)
    else:
        fits = isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor | np.ndarray)
        must = "a loader must yield (inputs, targets) pairs of tensors"
        remedy = "Give ((first, second), targets) for several inputs, or a dictionary with its labels"
        require(fits, must, f"it gave a {type(batch).__name__}", remedy)
        inputs, targets = batch[0], as_tensor(batch[1], "targets")
    inputs = with_tensors(inputs)
    first = next((tensor for _, tensor in tensors_with_paths(inputs)), torch.empty(0))
    aligned = first.ndim > 0 and targets.ndim > 0 and len(first) == len(targets)
    must, got = "a batch must contain as many targets as inputs", f"{tuple(first.shape)} and {tuple(targets.shape)}"
    require(aligned, must, f"one has shapes {got}", "Set a batch_size if these are single samples")
    return inputs, targets


def checked_pair(inputs: Inputs, targets: Tensor, start: int) -> Pair:
    """As many finite inputs as targets; ``start`` is the number of the first sample, for messages."""
    named = [(f"inputs{path}", tensor) for path, tensor in tensors_with_paths(inputs)] + [("targets", targets)]
    for name, tensor in named:
        kind = "a nested tensor" if tensor.is_nested else tensor.layout
        is_plain = tensor.layout == torch.strided and not tensor.is_meta and not tensor.is_nested
        require(is_plain, f"{name} must be plain dense tensors", f"got {kind} on {tensor.device}")
    count = num_rows(inputs)
    rows = len(targets) if targets.ndim else "a number of"
    must = "inputs and targets must have the same number of samples"
    require(targets.ndim > 0 and len(targets) == count, must, f"there are {count} inputs and {rows} targets")
    require(count > 0, "the data must contain at least one sample", "it is empty")
    for name, tensor in named:
        numbers = tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor  # of eight bits
        if tensor.is_floating_point() and not bool(torch.isfinite(numbers).all()):
            bad = start + int((~torch.isfinite(numbers)).reshape(count, -1).any(1).nonzero()[0])
            raise InvalidInput(sentence(f"{name} must be finite", f"sample {bad} has NaN or inf"))
    return inputs, targets.detach()


def tensor_or_same(data: Any) -> Any:
    """Convert a numpy array to a tensor.

    Args:
        data: Anything.

    Returns:
        A tensor of an array; anything else as it is.
    """
    return as_tensor(data, "inputs") if isinstance(data, np.ndarray) else data


def as_tensor(values: Any, name: str) -> Tensor:
    has_gaps = isinstance(values, np.ma.MaskedArray) and bool(np.ma.getmaskarray(values).any())
    must, remedy = f"{name} must not contain masked entries", "Call .filled(value)"
    require(not has_gaps, must, "the masked array has some", remedy)
    try:
        return torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        got = f"got a {type(values).__name__} ({error})"
        raise InvalidInput(sentence(f"{name} must be a tensor or an array", got)) from error


def with_tensors(inputs: Any) -> Inputs:
    """Arrays inside of a structure as tensors."""
    if isinstance(inputs, Mapping):
        return {key: with_tensors(value) for key, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        made = [with_tensors(value) for value in inputs]
        return tuple(made) if isinstance(inputs, tuple) else made
    return tensor_or_same(inputs)
