"""The samples of a problem as its loss reads them, each with its weight in the mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from hessmap.curvature.batch_formats import as_tensor
from hessmap.curvature.frozen_model import FrozenModel
from hessmap.curvature.losses import Loss
from hessmap.curvature.memory import require_memory
from hessmap.curvature.nested_tensors import (
    Inputs,
    concatenate,
    move_to,
    num_bytes,
    num_rows,
    take_rows,
    tensors_with_paths,
)
from hessmap.curvature.samples import HeldSamples, Samples
from hessmap.errors import NotReproducible, require, sentence
from hessmap.records import data_hash

Batch = tuple[Any, Tensor, Tensor]  # inputs (a tensor or nested tensors), targets, weights
_NO_ORDER = (
    "weights need data in a fixed order",
    "two passes over the loader gave two orders",
    "Build the loader with shuffle=False",
)


@dataclass(frozen=True, eq=False)
class WeightedSamples:
    """``mass`` is what the weighted sum of losses is divided by; targets of held samples are prepared for the loss."""

    samples: Samples
    given_weights: Tensor | None
    loss: Loss
    output_dim: int
    dtype: torch.dtype
    device: torch.device
    mass: float

    def pairs(self, size: int | None) -> Iterator[tuple[Inputs, Tensor]]:
        """One pass over inputs and prepared targets."""
        if self.samples.is_held:
            yield from self.samples.batches(size)
        else:
            for inputs, targets in self.samples.batches(size):
                prepared = prepared_targets(self.loss, targets, self.output_dim, self.dtype, self.device)
                yield move_to(inputs, self.device, self.dtype), prepared

    def batches(self, size: int | None) -> Iterator[Batch]:
        """One pass as (inputs, targets, weights)."""
        start = 0
        for inputs, targets in self.pairs(size):
            yield inputs, targets, self.weights[start : start + len(targets)]
            start += len(targets)
        if self.given_weights is not None and not self.samples.is_ordered:
            raise NotReproducible(sentence(*_NO_ORDER))

    def ordered_batches(self, size: int | None) -> Iterator[Batch]:
        """One pass in the order of ``in_memory``: through it where a stream has no order of its own, or where it was
        gathered already."""
        samples = self.samples
        if samples.is_ordered and "in_memory" not in vars(self):
            yield from self.batches(size)
            return
        start = 0
        for inputs, targets in self.in_memory.batches(size):
            yield inputs, targets, self.weights[start : start + len(targets)]
            start += len(targets)

    def few(self, count: int) -> Batch:
        """Some samples: spread over the data where they are held, the first of a stream."""
        if not isinstance(self.samples, HeldSamples):
            return next(iter(self.batches(count)))
        size = self.samples.num_samples
        chosen = torch.linspace(0, size - 1, min(size, count)).long().to(self.device)
        return take_rows(self.samples.inputs, chosen), self.samples.targets[chosen], self.weights[chosen]

    @cached_property
    @torch.inference_mode(False)
    def weights(self) -> Tensor:
        """The weight of every sample in the mean."""
        given = torch.ones(self.samples.num_samples, dtype=torch.float64)
        given = given if self.given_weights is None else self.given_weights
        return (given / self.mass).to(self.device, self.dtype)

    @cached_property
    @torch.inference_mode(False)
    def in_memory(self) -> HeldSamples:
        """All samples; those of a stream are gathered, or refused if they do not fit."""
        if isinstance(self.samples, HeldSamples):
            return self.samples
        first, count = self.samples.first[0], self.samples.num_samples
        needed = 2 * int(num_bytes(first, self.dtype) / num_rows(first) * count)
        remedy = "Use fewer samples, or a function that streams them"
        require_memory(f"the inputs of {count} streamed samples", needed, remedy)
        inputs, targets = zip(*self.pairs(None), strict=True)
        return HeldSamples(concatenate(list(inputs)), torch.cat(targets))

    @cached_property
    def data_hash(self) -> str:
        """Equal for equal samples, targets and weights."""
        if isinstance(self.samples, HeldSamples):
            tensors = [tensor for _, tensor in tensors_with_paths(self.samples.inputs)]
            arrays = [*tensors, self.samples.targets, self.weights]
            return data_hash(*(array.cpu().numpy() for array in arrays))
        return f"{self.samples.num_samples} samples, sum {float(self.samples.digest().sums[0]):.12g}"

    def in_format(self, dtype: torch.dtype, loss: Loss) -> WeightedSamples:
        """The same samples for the same loss in another number format."""
        samples = self.samples
        if isinstance(samples, HeldSamples):
            samples = HeldSamples(*move_to((samples.inputs, samples.targets), self.device, dtype))
        return replace(self, samples=samples, loss=loss, dtype=dtype)


def weighted_samples(
    samples: Samples, given: Tensor | None, loss: Loss, output_dim: int, model: FrozenModel
) -> WeightedSamples:
    """The samples with their targets prepared, after one pass that adds up what the mean is divided by."""
    dtype, device = model.dtype, model.device
    if isinstance(samples, HeldSamples):
        samples = HeldSamples(samples.inputs, prepared_targets(loss, samples.targets, output_dim, dtype, device))
    found = WeightedSamples(samples, given, loss, output_dim, dtype, device, mass=0.0)
    mass, start = 0.0, 0
    for _, targets in found.pairs(None):
        masses = loss.mass(targets).to("cpu", torch.float64)
        part = torch.ones_like(masses) if given is None else given[start : start + len(masses)]
        mass += float(part @ masses)
        start += len(masses)
    require(mass > 0, "at least one sample must count", "the loss ignores every one of them")
    return replace(found, mass=mass)


def prepared_targets(loss: Loss, targets: Tensor, output_dim: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Targets as the loss reads them, on the device, in the number format of the outputs if they are no labels."""
    prepared = loss.prepare(targets, output_dim)
    return prepared.to(device, dtype if prepared.is_floating_point() else None)


def checked_weights(weights: Any, samples: Samples) -> Tensor | None:
    """Weights as a float64 vector, one per sample; None if none were given."""
    if weights is None:
        return None
    values = as_tensor(weights, "weights").detach().to("cpu", torch.float64, copy=True)
    shape, count = tuple(values.shape), samples.num_samples
    require(shape == (count,), f"weights must be one per sample, {count} of them", f"got shape {shape}")
    valid = bool(torch.isfinite(values).all() and (values >= 0).all() and 0 < values.sum() < torch.inf)
    got = f"the smallest is {float(values.min()):.3g}"
    require(valid, "weights must be finite, not negative and not all zero, and their sum finite", got)
    require(samples.is_ordered, *_NO_ORDER)
    return values
