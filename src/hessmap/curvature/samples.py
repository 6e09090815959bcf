"""The data of a problem as tensors, from tensors or from a loader that two passes find unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hessmap.curvature.untouched import random_state_kept
from hessmap.errors import InvalidInput, NotReproducible, require, sentence


@dataclass(frozen=True)
class Samples:
    """Inputs and targets, one sample a row, and the weights of the mean (not yet normalised)."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.inputs)


def gather(inputs: Any, targets: Tensor | None, weights: Tensor | None) -> Samples:
    """Samples from tensors, from a loader or from any iterable of (inputs, targets) batches that can be read twice."""
    notes: tuple[str, ...] = ()
    inputs = torch.as_tensor(inputs) if isinstance(inputs, np.ndarray) else inputs
    if not isinstance(inputs, Tensor):
        require(targets is None, "a loader brings its own targets", "targets were passed as well")
        inputs, targets, is_ordered = _read_twice(inputs)
        must, got = "weights need data in a fixed order", "two passes over the loader gave two orders"
        require(weights is None or is_ordered, must, got, "Build the loader with shuffle=False")
    require(targets is not None, "tensors of inputs need targets", "targets is None")
    targets = torch.as_tensor(targets).detach()
    require(inputs.ndim >= 1 and len(inputs) > 0, "the data must hold at least one sample", "it is empty")
    require(
        len(inputs) == len(targets),
        "inputs and targets must have the same number of samples",
        f"there are {len(inputs)} inputs and {len(targets)} targets",
    )
    if inputs.dtype.is_floating_point and inputs.dtype != torch.float64:
        notes = (f"the inputs were promoted from {str(inputs.dtype).removeprefix('torch.')} to float64",)
    return Samples(_real(inputs, "inputs"), _real(targets, "targets"), sample_weights(weights, len(inputs)), notes)


def _real(values: Tensor, name: str) -> Tensor:
    if not values.dtype.is_floating_point:
        return values.detach().to("cpu", copy=True)
    values = values.detach().to("cpu", torch.float64, copy=True)
    if not torch.isfinite(values).all():
        bad = int((~torch.isfinite(values)).reshape(len(values), -1).any(1).nonzero()[0])
        raise InvalidInput(sentence(f"{name} must be finite", f"sample {bad} has NaN or inf"))
    return values


def sample_weights(weights: Tensor | None, count: int) -> Tensor:
    if weights is None:
        return torch.ones(count, dtype=torch.float64)
    weights = torch.as_tensor(weights, dtype=torch.float64).detach()
    shape = tuple(weights.shape)
    require(shape == (count,), f"weights must be one per sample, {count} of them", f"got shape {shape}")
    valid = bool(torch.isfinite(weights).all() and (weights >= 0).all() and 0 < weights.sum() < torch.inf)
    got = f"the smallest is {float(weights.min()):.3g}"
    require(valid, "weights must be finite, not negative and not all zero, and their sum finite", got)
    return weights


def _read_twice(loader: Iterable[Any]) -> tuple[Tensor, Tensor, bool]:
    """One pass is kept; a second one, with other random numbers, must hold the same samples in any order. The last
    value tells whether it was the same order."""
    remedy = "Wrap it: torch.utils.data.DataLoader(dataset, batch_size=256)"
    got = f"got a {type(loader).__name__}, which gives single samples"
    require(not isinstance(loader, Dataset), "data must be tensors or a loader", got, remedy)
    if isinstance(loader, DataLoader):
        refuse_drop_last(loader)
    first, second = _one_pass(loader, seed=0), _one_pass(loader, seed=1)
    require(len(first[0]) > 0, "the data must hold at least one sample", "it is empty")
    if len(first[0]) != len(second[0]):
        got = f"two passes over the loader gave {len(first[0])} and {len(second[0])} samples"
        remedy = "A generator can be read only once: pass a list of batches, or tensors"
        raise NotReproducible(sentence("every pass must give the same samples", got, remedy))
    prints = _fingerprints(first), _fingerprints(second)
    if not _agree(prints[0].sort().values, prints[1].sort().values):
        got = "two passes over the loader gave different samples"
        remedy = "Switch off augmentation and sampling with replacement; shuffling is fine"
        raise NotReproducible(sentence("every pass must give the same samples", got, remedy))
    return *first, _agree(*prints)


def _agree(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-9, atol=0, equal_nan=True)


def refuse_drop_last(loader: DataLoader[Any]) -> None:
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


def _one_pass(loader: Iterable[Any], seed: int) -> tuple[Tensor, Tensor]:
    generators = [getattr(loader, "generator", None), getattr(getattr(loader, "sampler", None), "generator", None)]
    with random_state_kept(seed, generators[0]), random_state_kept(seed, generators[1]):
        pairs = list(_pairs(loader))
    if not pairs:
        return torch.empty(0), torch.empty(0)
    inputs, targets = zip(*pairs, strict=True)
    return torch.cat(inputs), torch.cat(targets)


def _pairs(loader: Iterable[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    for batch in loader:
        fits = isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(item, Tensor) for item in batch)
        require(
            fits,
            "a loader must give (inputs, targets) pairs of tensors",
            f"it gave a {type(batch).__name__}",
            "Pass a pair of tensors as two arguments, inputs and targets",
        )
        inputs, targets = batch
        aligned = inputs.ndim > 0 and targets.ndim > 0 and len(inputs) == len(targets)
        must, got = "a batch must hold as many targets as inputs", f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
        require(aligned, must, f"one holds shapes {got}", "Set a batch_size if these are single samples")
        yield inputs.detach().cpu(), targets.detach().cpu()


def _fingerprints(data: tuple[Tensor, Tensor]) -> Tensor:
    """One number per sample: equal samples have equal fingerprints."""
    generator = torch.Generator().manual_seed(7)
    total = torch.zeros(len(data[0]), dtype=torch.float64)
    for values in data:
        rows = values.reshape(len(values), -1).double()
        total += rows @ torch.rand(rows.shape[1], generator=generator, dtype=torch.float64)
    return total
