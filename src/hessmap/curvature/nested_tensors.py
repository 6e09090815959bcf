"""Inputs as models take them: a tensor, or dictionaries, tuples and lists of tensors with the samples as rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from hessmap.errors import InvalidInput, require, sentence

Inputs = Any  # a tensor, or nested dictionaries, tuples and lists of tensors


def tensors_with_paths(inputs: Inputs) -> Iterator[tuple[str, Tensor]]:
    """Every tensor with the path to it, such as ``['mask'][0]``; anything else is refused."""
    if isinstance(inputs, Tensor):
        yield "", inputs
        return
    for key, value in _items(inputs):
        for path, tensor in tensors_with_paths(value):
            yield f"[{key!r}]{path}", tensor


def map_tensors(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """The same structure with every tensor replaced."""
    if isinstance(inputs, Tensor):
        return function(inputs)
    made = {key: map_tensors(function, value) for key, value in _items(inputs)}
    if isinstance(inputs, Mapping):
        return made
    return tuple(made.values()) if isinstance(inputs, tuple) else list(made.values())


def take_rows(inputs: Inputs, place: Any) -> Inputs:
    """Some of the samples: a slice, an index tensor, ..."""
    return map_tensors(lambda tensor: tensor[place], inputs)


def num_rows(inputs: Inputs) -> int:
    """How many samples there are; every tensor must hold as many."""
    found = {path: len(tensor) if tensor.ndim else None for path, tensor in tensors_with_paths(inputs)}
    must = "all tensors of the inputs must hold the same number of samples"
    require(bool(found), must, "there is no tensor in them")
    counts = set(found.values())
    got = ", ".join(f"inputs{path} holds {'a number' if count is None else count}" for path, count in found.items())
    require(len(counts) == 1 and None not in counts, must, got, "Close over what belongs to no sample with forward=")
    return int(next(iter(counts)) or 0)


def move_to(inputs: Inputs, device: torch.device, dtype: torch.dtype, *, copy: bool = False) -> Inputs:
    """On a device, the real tensors in a number format."""

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
    remedy = "Pass what is no tensor inside of forward=lambda model, inputs: ..."
    raise InvalidInput(sentence(must, f"there is a {type(inputs).__name__} among them", remedy))
