"""What is tracked: a model with its loss and data, made into a problem whenever it is measured.

The data are a seeded, fixed subset, small enough that a point costs little beside an epoch of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler, Subset

from hessmap.errors import checked_count, require, short_text
from hessmap.hessians import distributed
from hessmap.losses import AnyLoss
from hessmap.problem import Problem
from hessmap.records import data_hash
from hessmap.training import evaluation_mode

if TYPE_CHECKING:
    from hessmap.maps.track.point import TrackSettings


NumSamples = int | Literal["auto", "all"]
SHARE_OF_AN_EPOCH = 0.05  # of the gradients of single samples that an epoch takes
FEWEST = 16  # samples below which curvature says little about the data
SMALL = 512  # samples up to which the data are taken as they are: a subset that the user chose
# Gradients of a sample: a Hessian product takes about two. Products of a first point to a tolerance of 1e-2, at most,
# seen on two MLPs, untrained and trained: 56, 72 and 140 with 1, 5 and 10 eigenvalues.
_PER_PRODUCT, _FIRST_PRODUCTS, _PRODUCTS_PER_PAIR, _OTHER_PASSES = 2, 50, 9, 3
_PRECONDITIONED = 50  # products of the preconditioned sharpness


@dataclass(frozen=True)
class Subject:
    """A model, its loss and the data on which its curvature is measured; ``options`` go to ``Problem``.

    With ``is_distributed`` the data are those of this process, and the problem is that of all of them.
    """

    model: nn.Module
    loss: AnyLoss | None
    data: Any
    options: dict[str, Any]
    is_distributed: bool = False

    def __post_init__(self) -> None:
        got = f"got {type(self.model).__name__}"
        require(isinstance(self.model, nn.Module), "model must be a torch.nn.Module", got)
        is_shared = isinstance(self.data, DataLoader) and self.data.persistent_workers
        must = "a loader that is read in the middle of a training must not keep its workers"
        got = "this one has persistent_workers=True, and reading it again would restart the training's own pass"
        require(not is_shared, must, got, "Give the tracker a loader of its own")

    def problem(self) -> Problem:
        """The problem at the present weights, in evaluation mode: dropout off, batch-norm by its running statistics.

        Mode, gradients, buffers and random state of the model stay as they were.
        """
        with evaluation_mode(self.model), torch.enable_grad():
            own = Problem(self.model, self.loss, self.data, **self.options)
            return distributed(own) if self.is_distributed else own

    def weights_hash(self) -> str:
        """Equal for equal parameters and buffers."""
        return data_hash(*(_plain(value).numpy() for value in self.model.state_dict().values()))


def data_fingerprint(problem: Problem) -> str:
    """The same for the same samples in any order: a sum of squares, so that nothing cancels but rounding."""
    own = torch.tensor([float(problem.local.samples.digest().sums[1])], dtype=torch.float64)
    total = problem.mean_over_processes(own / problem.share)  # the sum of all
    return f"{problem.num_samples} samples, {float(total):.8g}"


def require_same_data(problem: Problem, before: str) -> None:
    """Refuse points on other data: they could not be compared."""
    now, remedy = data_fingerprint(problem), "Give the tracker data of its own that do not change"
    require(now == before, "all points of a track must be measured on the same data", f"{before} are now {now}", remedy)


def _plain(value: Tensor) -> Tensor:
    """On the processor, in a number format that numpy has."""
    there = value.detach().to("cpu")
    return there.float() if there.dtype == torch.bfloat16 else there


class ChosenData(NamedTuple):
    """The data to measure on, the weights of its samples, and how many samples there were to choose from (None: all
    are used)."""

    data: Any
    weights: Any
    num_available: int | None


def passes_of_a_point(settings: TrackSettings, has_optimizer: bool) -> int:
    """Gradients of every measured sample that a first point is expected to take, in counted passes."""
    quantities, products = settings.quantities, 0
    if "eigenvalues" in quantities:
        products += _FIRST_PRODUCTS + _PRODUCTS_PER_PAIR * settings.count
    if "trace" in quantities:
        products += settings.max_probes // 2
    if has_optimizer and "preconditioned_sharpness" in quantities:
        products += _PRECONDITIONED
    return _PER_PRODUCT * products + _OTHER_PASSES


def chosen_data(data: Any, weights: Any, wanted: NumSamples, seed: int, passes: int) -> ChosenData:
    """Some rows of tensors, samples of a data set or of a loader, or batches of a list, the same for the same seed.

    Args:
        data: As for ``Problem``.
        weights: Weights of the samples, or None.
        wanted: Number of samples, "auto" or "all".
        seed: Seed of the choice.
        passes: Gradients of a sample that a point takes.

    Returns:
        ChosenData: the data as they are where they are small, or where a part of them cannot be chosen (streams).
    """
    if wanted == "all" or data is None:
        return ChosenData(data, weights, None)
    is_count = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
    must = "num_samples must be a number of samples, 'auto' or 'all'"
    require(wanted == "auto" or is_count, must, f"got {short_text(wanted)}")
    available = _num_available(data)
    if available is None:
        return ChosenData(data, weights, None)
    count = checked_count("num_samples", wanted) if wanted != "auto" else _automatic_count(available, passes)
    if count >= available:
        return ChosenData(data, weights, None)
    order = torch.randperm(available, generator=torch.Generator().manual_seed(seed))[:count].sort().values
    kept = None if weights is None else torch.as_tensor(weights)[order]
    return ChosenData(_part(data, order), kept, available)


def _automatic_count(available: int, passes: int) -> int:
    if available <= SMALL:
        return available
    return max(FEWEST, int(SHARE_OF_AN_EPOCH * available / passes))


def _num_available(data: Any) -> int | None:
    """Samples to choose from; None where a part of the data cannot be chosen."""
    if isinstance(data, DataLoader):
        is_plain = isinstance(data.sampler, SequentialSampler | RandomSampler) and data.batch_size is not None
        return _num_available(data.dataset) if is_plain else None
    if isinstance(data, Dataset):
        return None if isinstance(data, IterableDataset) or not hasattr(data, "__len__") else len(data)
    lengths = {len(tensor) for tensor in _tensors(data)} if isinstance(data, tuple | Mapping) else set()
    is_pair = isinstance(data, list) and len(data) == 2 and isinstance(data[1], Tensor | np.ndarray)
    if is_pair:
        lengths = {len(tensor) for tensor in _tensors(data)}
    return lengths.pop() if len(lengths) == 1 else None


def _tensors(data: Any) -> list[Any]:
    if isinstance(data, Tensor | np.ndarray):
        return [data] if data.ndim else []
    if isinstance(data, tuple | list | Mapping):
        return [tensor for item in (data.values() if isinstance(data, Mapping) else data) for tensor in _tensors(item)]
    return []


def _part(data: Any, order: Tensor) -> Any:
    if isinstance(data, DataLoader):
        size = min(data.batch_size or 1, len(order))
        return DataLoader(Subset(data.dataset, order.tolist()), batch_size=size, collate_fn=data.collate_fn)
    if isinstance(data, Dataset):
        return Subset(data, order.tolist())
    if isinstance(data, Tensor):
        return data[order.to(data.device)] if data.ndim else data
    if isinstance(data, np.ndarray):
        return data[order.numpy()] if data.ndim else data
    if isinstance(data, Mapping):
        return {key: _part(value, order) for key, value in data.items()}
    if isinstance(data, tuple | list):
        items = [_part(item, order) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else type(data)(items)
    return data
