"""The data of a problem: held in memory as tensors, or streamed, which means read again at every pass.

Tensors, pairs and dictionaries are held (a copy is made, so that a problem is a snapshot); loaders, data sets and lists
of batches are streamed, and so are tensors that are larger than the memory budget. Every pass must give the same
samples; the order may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from hessmap.curvature.batch_formats import Pair, batch_pair, checked_pair
from hessmap.curvature.nested_tensors import Inputs, take_rows, tensors_with_paths
from hessmap.curvature.random_state import iterate_seeded
from hessmap.errors import HessmapError, NotReproducible, require, sentence

_FIRST = 16


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


class HeldSamples:
    """Inputs and targets in memory, one sample a row."""

    is_held = True
    is_ordered = True

    def __init__(self, inputs: Inputs, targets: Tensor) -> None:
        self.inputs = inputs
        self.targets = targets
        self.num_samples = len(targets)

    @property
    def first(self) -> Pair:
        return take_rows(self.inputs, slice(_FIRST)), self.targets[:_FIRST]

    def batches(self, size: int | None = None) -> Iterator[Pair]:
        """One pass, in pieces of at most ``size`` samples."""
        size = size or self.num_samples
        for start in range(0, self.num_samples, size):
            part = slice(start, start + size)
            yield take_rows(self.inputs, part), self.targets[part]

    def digest(self) -> Digest:
        found = Digest()
        found.add(self.inputs, self.targets)
        return found


class StreamedSamples:
    """Batches of (inputs, targets), read anew at every pass and found the same each time."""

    is_held = False

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.first: Pair = (torch.empty(0), torch.empty(0))  # the first samples of the first pass
        first, second = self._digest_of_pass(seed=0), self._digest_of_pass(seed=1)
        require(first.num_samples > 0, "the data must hold at least one sample", "it is empty")
        if not first.same_samples(second):
            raise _changed_samples_error(first, second)
        self.is_ordered = first.same_order(second)
        self.num_samples = first.num_samples
        self._digest = first

    def batches(self, size: int | None = None) -> Iterator[Pair]:
        """One pass, in pieces of at most ``size`` samples; it must give what the first one gave."""
        found = Digest()
        for inputs, targets in self._batches(seed=0):
            found.add(inputs, targets)
            step = size or len(targets)
            for start in range(0, len(targets), step):
                yield take_rows(inputs, slice(start, start + step)), targets[start : start + step]
        if not found.same_samples(self._digest):
            raise _changed_samples_error(self._digest, found)
        self.is_ordered = self.is_ordered and found.same_order(self._digest)

    def digest(self) -> Digest:
        return self._digest

    def _batches(self, seed: int) -> Iterator[Pair]:
        sampler = getattr(self._loader, "sampler", None)
        given = getattr(self._loader, "generator", None), getattr(sampler, "generator", None)
        generators = [generator for generator in given if isinstance(generator, torch.Generator)]
        start = 0
        for batch in _noting_errors(iterate_seeded(self._loader, seed, *generators)):
            inputs, targets = checked_pair(*batch_pair(batch), start)
            start += len(targets)
            yield inputs, targets

    def _digest_of_pass(self, seed: int) -> Digest:
        found = Digest()
        for inputs, targets in self._batches(seed):
            if not found.num_samples and not len(self.first[1]):
                self.first = take_rows(inputs, slice(_FIRST)), targets[:_FIRST]
            found.add(inputs, targets)
        return found


Samples = HeldSamples | StreamedSamples


def _noting_errors(batches: Iterator[Any]) -> Iterator[Any]:
    """The batches; what the user's loader raises passes through with a note of where it happened."""
    count = 0
    try:
        for batch in batches:
            yield batch
            count += 1
    except HessmapError:
        raise
    except Exception as error:
        error.add_note(f"raised while the data were read, after {count} batches")
        raise


def _fingerprints(inputs: Inputs, targets: Tensor) -> Tensor:
    """One number per sample: equal samples have equal fingerprints."""
    generator = torch.Generator().manual_seed(7)
    total = torch.zeros(len(targets), dtype=torch.float64)
    for _, values in [*tensors_with_paths(inputs), ("", targets)]:
        flat = values.detach().reshape(len(values), -1).to("cpu")
        flat = flat.real.double() + flat.imag.double() if flat.is_complex() else flat.double()
        total += flat @ torch.rand(flat.shape[1], generator=generator, dtype=torch.float64)
    return total


def _changed_samples_error(first: Digest, other: Digest) -> NotReproducible:
    if first.num_samples != other.num_samples:
        got = f"two passes gave {first.num_samples} and {other.num_samples} samples"
        remedy = "A generator can be read only once: pass a list of batches, or tensors"
    else:
        got = "two passes gave different samples"
        remedy = "Switch off augmentation and sampling with replacement; shuffling is fine"
    return NotReproducible(sentence("every pass must give the same samples", got, remedy))
