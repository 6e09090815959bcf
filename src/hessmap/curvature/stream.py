"""Data that are read again at every pass: tensors by rows, a loader or any iterable of batches as it gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hessmap.curvature.samples import refuse_drop_last
from hessmap.curvature.structured import Inputs, leaves, num_rows, rows
from hessmap.curvature.untouched import random_state_kept
from hessmap.errors import NotReproducible, require, sentence

_LABELS = ("labels", "targets", "label", "target")
Pair = tuple[Inputs, Tensor]


@dataclass
class Digest:
    """What one pass gave, in three numbers: equal for the same samples; the last also tells their order."""

    num_samples: int = 0
    sums: Tensor = field(default_factory=lambda: torch.zeros(3, dtype=torch.float64))

    def add(self, inputs: Inputs, targets: Tensor) -> None:
        prints = _fingerprints(inputs, targets)
        places = torch.arange(self.num_samples, self.num_samples + len(prints), dtype=torch.float64)
        self.sums += torch.stack([prints.sum(), prints.square().sum(), (prints * places.sin()).sum()])
        self.num_samples += len(prints)

    def same_samples(self, other: Digest) -> bool:
        return self.num_samples == other.num_samples and bool(self._close(other)[:2].all())

    def same_order(self, other: Digest) -> bool:
        return self.num_samples == other.num_samples and bool(self._close(other).all())

    def _close(self, other: Digest) -> Tensor:
        # The first and the last may cancel: they are compared with what they are made of.
        squares = self.sums[1]
        size = (squares * self.num_samples).sqrt()
        return (self.sums - other.sums).abs() <= 1e-9 * torch.stack([size, squares, size])


class Stream:
    """Batches of (inputs, targets), read anew at every pass and found the same each time."""

    def __init__(self, data: Any, targets: Tensor | None) -> None:
        data = torch.as_tensor(data) if isinstance(data, np.ndarray) else data
        self._held: Pair | None = None
        if isinstance(data, Tensor) or targets is not None:
            require(targets is not None, "tensors of inputs need targets", "targets is None")
            self._held = _checked(data, torch.as_tensor(targets))
        else:
            remedy = "Wrap it: torch.utils.data.DataLoader(dataset, batch_size=256)"
            got = f"got a {type(data).__name__}, which gives single samples"
            require(not isinstance(data, Dataset), "data must be tensors or a loader", got, remedy)
            require(isinstance(data, Iterable), "data must be tensors or batches", f"got a {type(data).__name__}")
            if isinstance(data, DataLoader):
                refuse_drop_last(data)
        self._loader: Any = data
        self.first: Pair | None = None  # the first samples of the first pass
        self.digest: Digest | None = None
        self._read_first()

    @property
    def num_samples(self) -> int:
        assert self.digest is not None
        return self.digest.num_samples

    def passed(self, size: int | None = None) -> Iterator[Pair]:
        """One pass, in pieces of at most ``size`` samples; it must give what the first one gave."""
        found = Digest()
        for inputs, targets in self._batches():
            if self._held is None:
                found.add(inputs, targets)
            for start in range(0, len(targets), size or len(targets)):
                piece = slice(start, start + (size or len(targets)))
                yield rows(inputs, piece), targets[piece]
        if self._held is None and self.digest is not None and not found.same_samples(self.digest):
            raise _changed(self.digest, found)

    def _batches(self, seed: int = 0) -> Iterator[Pair]:
        if self._held is not None:
            yield self._held
            return
        generators = [getattr(self._loader, "generator", None)]
        generators.append(getattr(getattr(self._loader, "sampler", None), "generator", None))
        with random_state_kept(seed, generators[0]), random_state_kept(seed, generators[1]):
            for batch in self._loader:
                yield _checked(*_pair(batch))

    def _read_first(self) -> None:
        """What all passes must give: two of a loader, under different random numbers, must agree."""
        passes = []
        for seed in (0, 1):
            found = Digest()
            for inputs, targets in self._batches(seed):
                self.first = self.first or (rows(inputs, slice(16)), targets[:16])
                found.add(inputs, targets)
            passes.append(found)
            if self._held is not None:
                passes.append(found)
                break
        require(passes[0].num_samples > 0, "the data must hold at least one sample", "it is empty")
        if not passes[0].same_samples(passes[1]):
            raise _changed(*passes)
        self.is_ordered = passes[0].same_order(passes[1])
        self.digest = passes[0]


def _pair(batch: Any) -> Pair:
    """Inputs and targets of a batch: a pair, or a dictionary with its labels among the inputs."""
    if isinstance(batch, Mapping):
        for name in _LABELS:
            if isinstance(batch.get(name), Tensor):
                return {key: value for key, value in batch.items() if key != name}, batch[name]
        got = f"it gave a dictionary with the keys {', '.join(map(str, batch))}"
        require(False, f"a batch must hold its targets under one of {', '.join(_LABELS)}", got)
    fits = isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor)
    must = "a loader must give pairs of inputs and a tensor of targets"
    require(fits, must, f"it gave a {type(batch).__name__}", "Give ((first, second), targets) for several inputs")
    return batch[0], batch[1]


def _checked(inputs: Inputs, targets: Tensor) -> Pair:
    count = num_rows(inputs)
    got = f"there are {count} inputs and targets of shape {tuple(targets.shape)}"
    must = "inputs and targets must have the same number of samples"
    require(targets.ndim > 0 and len(targets) == count, must, got)
    for path, tensor in [*leaves(inputs), (" of targets", targets)]:
        got = f"there is NaN or inf in the tensor{path}"
        require(not tensor.is_floating_point() or bool(torch.isfinite(tensor).all()), "data must be finite", got)
    return inputs, targets.detach()


def _fingerprints(inputs: Inputs, targets: Tensor) -> Tensor:
    """One number per sample: equal samples have equal fingerprints."""
    generator = torch.Generator().manual_seed(7)
    total = torch.zeros(len(targets), dtype=torch.float64)
    for _, values in [*leaves(inputs), ("", targets)]:
        flat = values.detach().reshape(len(values), -1).to("cpu", torch.float64)
        total += flat @ torch.rand(flat.shape[1], generator=generator, dtype=torch.float64)
    return total


def _changed(first: Digest, other: Digest) -> NotReproducible:
    if first.num_samples != other.num_samples:
        got = f"two passes gave {first.num_samples} and {other.num_samples} samples"
        remedy = "A generator can be read only once: pass a list of batches, or tensors"
    else:
        got = "two passes gave different samples"
        remedy = "Switch off augmentation and sampling with replacement; shuffling is fine"
    return NotReproducible(sentence("every pass must give the same samples", got, remedy))
