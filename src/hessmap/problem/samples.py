"""The data of a problem as samples: what a user passes, held in memory or streamed, each with its weight in the mean.

A pair of tensors is (inputs, targets); a dictionary has its targets under ``labels`` or gets them from ``targets=``; a
data set, a loader, a list or any other iterable that can be read again gives batches. Tensors, pairs and dictionaries
are held: they are copied, so that a problem is a snapshot. Everything else is streamed, which means read again at every
pass, and so are tensors larger than the memory budget. Every pass must give the same samples; the order may change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hessmap.errors import HessmapError, InvalidInput, NotReproducible, require, sentence
from hessmap.linalg import available_bytes, iterate_seeded, require_memory
from hessmap.losses import Loss
from hessmap.problem.data import (
    Inputs,
    Pair,
    WholeBatch,
    as_tensor,
    batch_pair,
    checked_pair,
    concatenate,
    is_pair,
    labelled_pair,
    move_to,
    num_bytes,
    num_rows,
    take_rows,
    tensor_or_same,
    tensors_with_paths,
    with_tensors,
)
from hessmap.problem.evaluation import FrozenModel
from hessmap.records import data_hash

_FIRST = 16  # samples that are kept for checks, also of streamed data


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
    """Inputs and targets in memory.

    Args:
        inputs: Inputs, one sample per row of each tensor.
        targets: Targets, one sample per row.
    """

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
    """Batches of (inputs, targets), read again at every pass and checked to be the same."""

    is_held = False

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.first: Pair = (torch.empty(0), torch.empty(0))  # the first samples of the first pass
        first, second = self._digest_of_pass(seed=0), self._digest_of_pass(seed=1)
        require(first.num_samples > 0, "the data must contain at least one sample", "it is empty")
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


class ObjectiveBatches:
    """The batches of an objective, each one row; every pass must give the same ones in the same order.

    Batches of a loader that shuffles are those of one seed.
    """

    is_held = False
    is_ordered = True

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.sizes: tuple[int, ...] = ()
        prints = []
        for batch in self._read():
            prints.append(_batch_fingerprint(batch))
            self.sizes = (*self.sizes, batch.size)
            if len(prints) == 1:
                self.first: Pair = (batch, torch.zeros(1))
        require(bool(prints), "the data must contain at least one batch", "it is empty")
        self._prints = torch.tensor(prints, dtype=torch.float64)
        self.num_samples = len(prints)
        for _ in self.batches():  # a second pass
            pass

    def batches(self, size: int | None = None) -> Iterator[Pair]:
        """One pass, a batch at a time."""
        count = 0
        for batch in self._read():
            known = float(self._prints[count]) if count < len(self._prints) else torch.nan
            if not abs(_batch_fingerprint(batch) - known) <= 1e-9 * max(1.0, abs(known)):
                raise _changed_batches_error(f"batch {count} of this pass differs from that of the first")
            count += 1
            yield batch, torch.zeros(1)
        if count < self.num_samples:
            raise _changed_batches_error(f"two passes gave {self.num_samples} and {count} batches")

    def digest(self) -> Digest:
        return Digest(self.num_samples, torch.stack([self._prints.sum(), self._prints.square().sum(), self._prints[0]]))

    def _read(self) -> Iterator[WholeBatch]:
        sampler = getattr(self._loader, "sampler", None)
        given = getattr(self._loader, "generator", None), getattr(sampler, "generator", None)
        generators = [generator for generator in given if isinstance(generator, torch.Generator)]
        for number, content in enumerate(_noting_errors(iterate_seeded(self._loader, 0, *generators))):
            batch = WholeBatch(content)
            for path, tensor in batch.tensors:
                is_finite = not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
                require(is_finite, "the data must be finite", f"batch {number}{path} has NaN or inf")
            yield batch


def _batch_fingerprint(batch: WholeBatch) -> float:
    """A number that is equal for equal batches."""
    generator, total = torch.Generator().manual_seed(7), 0.0
    for _, tensor in batch.tensors:
        flat = tensor.detach().reshape(-1).to("cpu")
        flat = flat.real.double() + flat.imag.double() if flat.is_complex() else flat.double()
        total += float(flat @ torch.rand(len(flat), generator=generator, dtype=torch.float64))
    return total


def _changed_batches_error(got: str) -> NotReproducible:
    remedy = "Switch off augmentation and random sampling, or pass a list of batches"
    return NotReproducible(sentence("an objective needs the same batches at every pass", got, remedy))


def objective_batches(data: Any) -> ObjectiveBatches:
    """The batches that a user means: a list, loader or data set gives several; anything else is one.

    Args:
        data: A list, loader or data set of batches, or one batch.

    Returns:
        ObjectiveBatches: Batches that are read again at every pass and compared with the first.
    """
    if isinstance(data, Iterator):
        got = f"got a {type(data).__name__}, which can be read only once"
        raise InvalidInput(sentence("data must be readable more than once", got, "Pass a list of batches or a loader"))
    if isinstance(data, Dataset):
        return ObjectiveBatches(DataLoader(data, batch_size=_BATCH))
    is_single = isinstance(data, Tensor | np.ndarray | Mapping | tuple) or not hasattr(data, "__iter__")
    require(data is not None, "an objective needs data", "got None", "Pass data=[batch, ..] or a loader")
    require(not isinstance(data, str | bytes), "data must contain tensors", f"got a {type(data).__name__}")
    return ObjectiveBatches([data] if is_single else data)


Samples = HeldSamples | StreamedSamples | ObjectiveBatches


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


Batch = tuple[Any, Tensor, Tensor]  # inputs (a tensor or nested tensors), targets, weights
_NO_ORDER = (
    "weights need data in a fixed order",
    "two passes over the loader gave two orders",
    "Build the loader with shuffle=False",
)


@dataclass(frozen=True, eq=False)
class WeightedSamples:
    """Samples with their weights. ``normaliser`` is what the weighted sum of losses is divided by; targets of held
    samples are prepared for the loss."""

    samples: Samples
    given_weights: Tensor | None
    loss: Loss
    output_dim: int
    dtype: torch.dtype
    device: torch.device
    normaliser: float

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
        return (given / self.normaliser).to(self.device, self.dtype)

    @cached_property
    @torch.inference_mode(False)
    def in_memory(self) -> HeldSamples:
        """All samples; those of a stream are gathered, or refused if they do not fit."""
        if isinstance(self.samples, HeldSamples):
            return self.samples
        if isinstance(self.samples, ObjectiveBatches):
            must, got = "inputs and targets in memory need a loss of single samples", "the problem has an objective"
            raise InvalidInput(sentence(must, got, "They are not defined for this objective"))
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
    found = WeightedSamples(samples, given, loss, output_dim, dtype, device, normaliser=0.0)
    normaliser, start = 0.0, 0
    for _, targets in found.pairs(None):
        counted = loss.target_weights(targets).to("cpu", torch.float64)
        part = torch.ones_like(counted) if given is None else given[start : start + len(counted)]
        normaliser += float(part @ counted)
        start += len(counted)
    require(normaliser > 0, "at least one target must count", "all targets are ignored (ignore_index)")
    return replace(found, normaliser=1.0 if loss.is_sum else normaliser)


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


_BATCH = 256  # samples at a time of a data set that comes without a loader


@torch.no_grad()
def as_samples(
    data: Any, targets: Any, dtype: torch.dtype, device: torch.device, budget: int
) -> tuple[Samples, tuple[str, ...]]:
    """The samples that a user means, and notes on what was done to them.

    Args:
        data: Tensors, a pair, a dictionary with labels, a data set, a loader or a list of batches.
        targets: Targets of ``data``, or None where they come with it.
        dtype: Number format of real inputs.
        device: Where samples are kept.
        budget: Bytes above which tensors are read in slices instead of copied.

    Returns:
        The samples, held or streamed, and the notes.
    """
    data, targets = tensor_or_same(data), None if targets is None else as_tensor(targets, "targets")
    if targets is None and is_pair(data):
        data, targets = data[0], as_tensor(data[1], "targets")
    if targets is None and isinstance(data, Mapping):
        data, targets = labelled_pair(data)
    if targets is None:
        return StreamedSamples(_batches_of(data)), ()
    must, got = "a loader provides its own targets", "targets were passed as well"
    require(not isinstance(data, Dataset | DataLoader), must, got)
    inputs, targets = checked_pair(with_tensors(data), targets, 0)
    if num_bytes(inputs, dtype) > budget:
        return StreamedSamples(_Slices(inputs, targets)), ("the samples are larger than the memory budget: streamed",)
    notes = _conversion_note(inputs, dtype)
    return HeldSamples(move_to(inputs, device, dtype, copy=True), targets.detach().clone()), notes


def all_samples(data: Any, targets: Any = None) -> Pair:
    """Read all samples into memory.

    Args:
        data: Whatever ``Problem`` accepts as data.
        targets: Targets of ``data``. Defaults to those that come with the data.

    Returns:
        Inputs and targets, in float64 where they are real.
    """
    device = torch.device("cpu")
    samples, _ = as_samples(data, targets, torch.float64, device, available_bytes() // 4)
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
    must, remedy = "the loader must yield every sample", "Build the loader with drop_last=False"
    sampler: Any = getattr(batches, "sampler", None)
    known = hasattr(sampler, "__len__") and not isinstance(loader.dataset, IterableDataset)
    require(known, must, "drop_last=True may drop some, and their number is not known", remedy)
    count, size = len(sampler), batches.batch_size
    got = f"drop_last=True drops {count % size} of {count} in batches of {size}"
    require(count % size == 0, must, got, remedy)
