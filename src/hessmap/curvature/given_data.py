"""From what a user passes as data to samples: one rule for every function.

A pair of tensors is (inputs, targets); a dictionary brings its targets under ``labels`` or gets them from ``targets=``;
a data set, a loader, a list or any other iterable that can be read again gives batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hessmap.curvature.batch_formats import (
    Pair,
    as_tensor,
    checked_pair,
    is_pair,
    labelled_pair,
    tensor_or_same,
    with_tensors,
)
from hessmap.curvature.memory import available_bytes
from hessmap.curvature.nested_tensors import Inputs, concatenate, move_to, num_bytes, take_rows, tensors_with_paths
from hessmap.curvature.samples import HeldSamples, Samples, StreamedSamples
from hessmap.errors import require

_BATCH = 256  # samples at a time of a data set that comes without a loader


@torch.no_grad()
def samples_of(
    data: Any, targets: Any, dtype: torch.dtype, device: torch.device, budget: int
) -> tuple[Samples, tuple[str, ...]]:
    """The samples that a user means, and notes on what was done to them."""
    data, targets = tensor_or_same(data), None if targets is None else as_tensor(targets, "targets")
    if targets is None and is_pair(data):
        data, targets = data[0], as_tensor(data[1], "targets")
    if targets is None and isinstance(data, Mapping):
        data, targets = labelled_pair(data)
    if targets is None:
        return StreamedSamples(_batches_of(data)), ()
    must, got = "a loader brings its own targets", "targets were passed as well"
    require(not isinstance(data, Dataset | DataLoader), must, got)
    inputs, targets = checked_pair(with_tensors(data), targets, 0)
    if num_bytes(inputs, dtype) > budget:
        return StreamedSamples(_Slices(inputs, targets)), ("the samples are larger than the memory budget: streamed",)
    notes = _conversion_note(inputs, dtype)
    return HeldSamples(move_to(inputs, device, dtype, copy=True), targets.detach().clone()), notes


def all_samples(data: Any, targets: Any = None) -> Pair:
    """Inputs and targets of all samples in memory, in float64 where they are real."""
    device = torch.device("cpu")
    samples, _ = samples_of(data, targets, torch.float64, device, available_bytes() // 4)
    if isinstance(samples, HeldSamples):
        return samples.inputs, samples.targets
    inputs, labels = zip(*samples.batches(), strict=True)
    return move_to(concatenate(list(inputs)), device, torch.float64), torch.cat(labels)


@dataclass(frozen=True)
class _Slices:
    """Tensors too large to be copied, as batches of rows."""

    inputs: Inputs
    targets: Tensor

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, len(self.targets), _BATCH):
            part = slice(start, start + _BATCH)
            yield take_rows(self.inputs, part), self.targets[part]


def _batches_of(data: Any) -> Any:
    """What gives batches whenever it is read: a loader, a data set behind one, a list of batches."""
    require(not isinstance(data, Tensor), "tensors of inputs need targets", "targets is None")
    loader = getattr(data, "loader", data)
    if isinstance(loader, DataLoader):
        _refuse_drop_last(loader)
        return data
    if isinstance(data, Dataset):
        return DataLoader(data, batch_size=_BATCH)
    must = "data must be tensors with targets, a data set, a loader or a list of batches"
    require(isinstance(data, Iterable) and not isinstance(data, str | bytes), must, f"got a {type(data).__name__}")
    return data


def _conversion_note(inputs: Inputs, dtype: torch.dtype) -> tuple[str, ...]:
    others = {tensor.dtype for _, tensor in tensors_with_paths(inputs) if tensor.is_floating_point()} - {dtype}
    if not others:
        return ()
    names = ", ".join(sorted(str(other).removeprefix("torch.") for other in others))
    change = "promoted" if dtype == torch.float64 else "converted"
    return (f"the inputs were {change} from {names} to {str(dtype).removeprefix('torch.')}",)


def _refuse_drop_last(loader: DataLoader[Any]) -> None:
    # Batches are made by the loader or by a batch sampler of the user's, from the samples that a sampler chose.
    batches: Any = loader if loader.batch_size is not None else loader.batch_sampler
    if not getattr(batches, "drop_last", False):
        return
    must, remedy = "the loader must give every sample", "Build the loader with drop_last=False"
    sampler: Any = getattr(batches, "sampler", None)
    known = hasattr(sampler, "__len__") and not isinstance(loader.dataset, IterableDataset)
    require(known, must, "drop_last=True may lose some, and their number is not known", remedy)
    count, size = len(sampler), batches.batch_size
    got = f"drop_last=True loses {count % size} of {count} in batches of {size}"
    require(count % size == 0, must, got, remedy)
