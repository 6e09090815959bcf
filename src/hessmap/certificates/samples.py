"""Labelled samples as certificates use them: checked, split in two parts, and counted by their distinct inputs.

A bound from n samples needs n independent draws, and a data set may hold copies: oversampling, augmentation that was
stored, a table joined with itself. Rows with equal inputs are therefore kept on one side of a split, and n is the
number of distinct inputs. Nothing in the rows tells copies from independent draws that coincide, as they do in discrete
data, so the error that enters the bound is the larger one of two readings of the same n:

"distinct": one row of every distinct input. If equal rows are copies, these are independent draws, however often each
    was copied (the split and the choice of the row do not depend on the number of copies).
"rows": every row counts. If rows coincide by chance, their mean error is unbiased and every input has its own share of
    it; the bound for n of them holds for the larger number of rows as well, because it only grows as n falls. The same
    is true of data that were copied as a whole.

Each reading alone is a valid bound under its own assumption, so that the larger of the two is valid under either, with
the whole delta. One part of this is an estimate: where discrete data are split, inputs that the prior has seen have no
rows left to be tested on. Their rows enter the second reading with the outputs that the prior gives them, so that a
common input with contradicting labels counts where it is wrong, and such inputs are named under ``doubts``. A prior
that has seen no samples avoids this. Copies that were changed (rotated, noisy, in half precision) are not recognised:
leave them out of the data.

The embedded example is a small network on the digits, 0-4 against 5-9, with the weights its training started from.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.certificates.losses import BoundedLoss, ClassificationError
from hessmap.certificates.model_copies import in_format, model_copy
from hessmap.datasets import Data
from hessmap.errors import InvalidInput, checked_number, checked_seed, require, sentence
from hessmap.problem import all_samples
from hessmap.records import data_hash

if TYPE_CHECKING:
    from torch import nn

    from hessmap.datasets import Data

_CHUNK = 256  # samples converted at a time
_NUM_COMPARED = 8  # samples whose outputs in a batch are compared with those of each alone
STATEMENT = "that the prior depends on no other samples is the certifier's statement: no computation can show it"


def input_groups(inputs: Tensor) -> Tensor:
    """The distinct input of every row, numbered in the order in which they first appear.

    Inputs are compared in single precision, in which networks are evaluated: a copy in another number format or memory
    layout is the same input, and so is one with -0 in the place of 0.

    >>> input_groups(torch.tensor([[1.0, 0.0], [2.0, 0.0], [1.0, -0.0]])).tolist()
    [0, 1, 0]
    """
    return _numbered(_input_keys(inputs))


def _numbered(keys: list[bytes]) -> Tensor:
    known: dict[bytes, int] = {}
    return torch.tensor([known.setdefault(key, len(known)) for key in keys], dtype=torch.long)


def _input_keys(inputs: Tensor) -> list[bytes]:
    """A hash of every input; equal inputs have equal ones."""
    found = []
    for some in torch.split(inputs.detach(), _CHUNK):
        values = some.cpu().float().numpy() + np.float32(0.0)  # -0 becomes 0
        found += [hashlib.blake2b(sample.tobytes(), digest_size=16).digest() for sample in values]
    return found


def distinct_rows(groups: Tensor) -> Tensor:
    """One row of every group, drawn at random because the rows of an input may be sorted by their labels.

    >>> distinct_rows(torch.tensor([0, 1, 2])).tolist(), len(distinct_rows(torch.tensor([0, 0, 1, 0])))
    ([0, 1, 2], 2)
    """
    order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(0))
    _, first = np.unique(groups[order].numpy(), return_index=True)
    return order[torch.from_numpy(first)]


@dataclass(frozen=True)
class SampleSplit:
    """A random order of the distinct inputs: the first ``fraction`` trains the prior, the rest is certified on.

    All rows with one input are in the same part. Seed and fraction must be fixed before the samples are looked at.

    Args:
        fraction: Share of the distinct inputs in the first part, in [0, 1).
        seed: Seed of the order.

    >>> data = Data(torch.arange(10.0)[:, None], torch.zeros(10))
    >>> [len(part.inputs) for part in SampleSplit(0.3, seed=0).parts(data)]
    [3, 7]
    """

    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        fraction = checked_number("prior_fraction", self.fraction)
        require(0 <= fraction < 1, "prior_fraction must be in [0, 1)", f"got {fraction}")
        checked_seed(self.seed)

    def indices(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of the prior's part, and of the rest."""
        groups = input_groups(inputs)
        order = torch.randperm(len(groups), generator=torch.Generator().manual_seed(self.seed))
        _, first = np.unique(groups.numpy(), return_index=True)
        positions = torch.argsort(order)[torch.from_numpy(first)]  # of one row of every input: copies do not matter
        ranks = torch.argsort(torch.argsort(positions))[groups]
        by_rank = torch.argsort(ranks, stable=True)
        is_prior = ranks[by_rank] < round(self.fraction * len(positions))
        return by_rank[is_prior], by_rank[~is_prior]

    def parts(self, data: Data) -> tuple[Data, Data]:
        """The prior's part of the samples, and the rest."""
        first, second = (_rows(data, some) for some in self.indices(data.inputs))
        return first, second


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples as the network takes them, a hash of every input, and one of all samples as they were given."""

    data: Data
    keys: list[bytes]
    hash: str

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def num_distinct(self) -> int:
        return len(set(self.keys))

    @property
    def groups(self) -> Tensor:
        """The distinct input of every row, as ``input_groups`` numbers them."""
        return _numbered(self.keys)

    def num_contradicting(self) -> int:
        """Of inputs that occur with different targets."""
        targets: dict[bytes, set[tuple[float, ...]]] = {}
        for key, target in zip(self.keys, self.data.targets.reshape(len(self), -1).tolist(), strict=True):
            targets.setdefault(key, set()).add(tuple(target))
        return sum(len(found) > 1 for found in targets.values())

    def repeated_rows(self) -> Data:
        """The rows of inputs that occur more than once."""
        groups = self.groups
        return _rows(self.data, torch.bincount(groups)[groups] > 1)


@dataclass(frozen=True, eq=False)
class PriorPart:
    """The prior's samples: the number of distinct inputs, the hash of all rows, and the split, if there is one."""

    num_samples: int = 0
    hash: str = ""
    split: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class CertifiedSamples:
    """The samples that a bound is computed from: the two readings of the module's docstring.

    ``readings`` holds one row of every distinct input first; then, where some input is repeated, all rows, with those
    of inputs that the prior has seen repeatedly.
    """

    given: Samples
    readings: tuple[Data, ...]
    doubts: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Samples, seen: Samples | None) -> CertifiedSamples:
        distinct = _rows(given.data, distinct_rows(given.groups))
        repeated = None if seen is None else seen.repeated_rows()
        has_seen_repeats = repeated is not None and len(repeated.inputs) > 0
        if len(given) == given.num_distinct and not has_seen_repeats:
            return cls(given, (distinct,))
        rows = given.data
        doubts: tuple[str, ...] = ()
        if seen is not None and repeated is not None:
            rows = Data(*(torch.cat(parts) for parts in zip(rows, repeated, strict=True)))
            if count := seen.num_contradicting():
                words = "the error on them is estimated from rows that the prior was trained on"
                doubts = (f"{count:,} inputs of the prior's samples occur with different labels: {words}",)
        return cls(given, (distinct, rows), doubts)

    @property
    def distinct(self) -> Data:
        return self.readings[0]

    @property
    def num_samples(self) -> int:
        """Of distinct inputs: the n of the bound."""
        return len(self.distinct.inputs)

    def notes(self) -> tuple[str, ...]:
        if len(self.given) == self.num_samples:
            return ()
        return (
            f"the {len(self.given):,} certified rows have {self.num_samples:,} distinct inputs, which the bound counts",
        )


def checked_samples(
    model: nn.Module, data: Any, name: str, at_least: int = 2, loss: BoundedLoss | None = None
) -> Samples:
    """Inputs and targets that fit together and fit the network, from a pair of tensors or arrays or from a loader."""
    inputs, targets = raw_samples(data)
    got = f"got {len(inputs)} and {len(targets)}"
    require(len(inputs) == len(targets), f"{name} must contain as many inputs as labels", got)
    num_needed = "two samples" if at_least == 2 else "one sample"
    require(len(inputs) >= at_least, f"{name} must contain at least {num_needed}", f"got {len(inputs)}")
    require(bool(torch.isfinite(inputs).all()), f"the inputs of {name} must be finite", "some are not")
    loss = loss or ClassificationError()
    loss.check_form(targets, name)
    given = samples_hash(inputs, targets)
    taken, num_outputs = _taken(model, inputs, name)
    samples = Data(taken, loss.checked_targets(targets, num_outputs, name))
    found = Samples(samples, _input_keys(inputs), given)
    must = f"{name} must contain at least {at_least} distinct inputs"
    require(found.num_distinct >= at_least, must, f"its {len(found)} rows have {found.num_distinct}")
    return found


def samples_hash(inputs: Tensor, targets: Tensor) -> str:
    """A hash of the samples as they were given; labels of every integer type are the same."""
    kept = targets if targets.is_floating_point() else targets.long()
    return data_hash(inputs.numpy(), kept.numpy())


def prior_part(
    certified: Samples, seen: Samples | None, split: SampleSplit | None = None, whole: Data | None = None
) -> PriorPart:
    """The prior's part, whose inputs must not occur in the certified part."""
    if seen is None:
        return PriorPart()
    known = set(seen.keys)
    num_common = sum(key in known for key in certified.keys)
    must = "certified samples must not be among those that the prior was trained on"
    remedy = "Take them out of prior_data and train the prior again, or split all samples with certify_from_data"
    require(num_common == 0, must, f"{num_common} of {len(certified)} are", remedy)
    stated: dict[str, object] = {}
    if split is not None and whole is not None:
        stated = {"prior_fraction": float(split.fraction), "seed": int(split.seed)}
        stated |= {"num_samples": len(whole.inputs), "hash": samples_hash(*whole)}
    return PriorPart(seen.num_distinct, seen.hash, stated)


def raw_samples(data: Any) -> tuple[Tensor, Tensor]:
    """Inputs and targets as they were given, as two tensors."""
    is_pair = isinstance(data, tuple | list) and len(data) == 2
    if is_pair and all(isinstance(part, Tensor | np.ndarray) for part in data):
        inputs, targets = (_tensor(part).detach().cpu() for part in data)
    else:
        inputs, targets = all_samples(data)
        require(isinstance(inputs, Tensor), "the inputs must be one tensor", f"got a {type(inputs).__name__}")
        assert isinstance(inputs, Tensor)
    is_dense = inputs.layout == targets.layout == torch.strided
    require(is_dense, "samples must be dense tensors", f"got {inputs.layout} and {targets.layout}")
    require(not inputs.is_complex(), "inputs must be real", f"got {inputs.dtype}", "Use torch.view_as_real")
    require(inputs.ndim > 0 and targets.ndim > 0, "samples must be stacked along the first axis", "got a single number")
    inputs, targets = (part.clone() if part.is_inference() else part for part in (inputs, targets))
    return inputs, targets


def _tensor(part: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if isinstance(part, Tensor):
        return part
    require(part.dtype.kind in "biuf", "samples must be arrays of real numbers", f"got {part.dtype}")
    has_tensor = part.flags.writeable and all(stride >= 0 for stride in part.strides)
    return torch.from_numpy(part if has_tensor else part.copy())


def _rows(data: Data, some: Tensor) -> Data:
    return Data(data.inputs[some], data.targets[some])


def _taken(model: nn.Module, inputs: Tensor, name: str) -> tuple[Tensor, int]:
    """The samples as the network takes them, and the number of its outputs: whole numbers are tried as real ones first,
    and left as tokens where the network wants those."""
    network = model_copy(model, torch.float64)
    floats = inputs if inputs.is_floating_point() else inputs.float()
    for taken in (floats,) if inputs.is_floating_point() else (floats, inputs):
        try:
            return taken, _num_outputs(network, taken)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if isinstance(error, InvalidInput):
                raise
            broken = f"for shape {tuple(inputs[:1].shape)} it raised {error}".splitlines()[0].rstrip(".")
            cause = error
    remedy = "Tensors in attributes or buffers change their number format with a copy" if "dtype" in broken else ""
    raise InvalidInput(sentence(f"the network must accept the inputs of {name}", broken, remedy)) from cause


@torch.no_grad()
def _num_outputs(network: nn.Module, inputs: Tensor) -> int:
    """The number of outputs; the network must give them one sample at a time, whatever else is in the batch."""
    some = in_format(inputs[:_NUM_COMPARED], torch.float64)
    together = network(some.clone())
    is_tensor = isinstance(together, Tensor)
    got = f"it gave {tuple(together.shape)}" if is_tensor else f"it gave a {type(together).__name__}"
    is_table = is_tensor and together.ndim == 2 and len(together) == len(some) and together.is_floating_point()
    require(is_table, "the network must return one vector of outputs per sample", f"{got} for {len(some)}")
    require(
        torch.allclose(together, network(some.clone()), rtol=1e-6, atol=1e-9, equal_nan=True),
        "the outputs must depend only on the weights and the samples",
        "two evaluations on the same samples differ",
        "Outputs must not depend on random numbers or on earlier calls",
    )
    alone = torch.cat([network(sample.clone()) for sample in torch.split(some, 1)])
    require(
        torch.allclose(alone, together, rtol=1e-6, atol=1e-9, equal_nan=True),
        "the network must treat samples independently",
        "its outputs depend on the other samples of a batch",
        "Draws of weights and samples would not be independent",
    )
    return int(together.shape[1])


_NUM_TRAINING_SAMPLES = 1500
_SEED_OF_SPLIT = 0
# Inputs are (pixel - centre) / spread, in round numbers: statistics of the samples would make the prior depend on them.
_CENTRE, _SPREAD = 0.3, 0.4


class Task(NamedTuple):
    """A network, the weights its training started from, and its samples.

    Attributes:
        model: The trained network.
        initial: The network before training.
        data: The training samples.
        test: The test samples.
    """

    model: nn.Module
    initial: nn.Module
    data: Data
    test: Data


@dataclass(frozen=True)
class NormalStart:
    """A ReLU network with biases whose parameters are all initialised from N(0, deviation^2).

    Args:
        widths: Widths of the layers, from the inputs to the outputs.
        deviation: Standard deviation of the initial parameters.
    """

    widths: tuple[int, ...]
    deviation: float

    def build(self, seed: int = 0, init: str = "gaussian") -> nn.Sequential:
        import torch

        from hessmap.networks import FullyConnected

        network = FullyConnected(self.widths, bias=True, activation="relu").build(seed=seed, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_(0, self.deviation, generator=generator)
        return network


def digits_example(seed: int = 0) -> Task:
    """A network of 20 hidden units, trained in a few seconds to classify digits as 0-4 or 5-9.

    Args:
        seed: Seed of initialisation and training. Defaults to 0.

    Returns:
        Task: The network before and after training, with training and test samples.
    """
    from hessmap.datasets import two_halves
    from hessmap.training import train

    samples, test = map(two_halves, split_digits())
    start = NormalStart((64, 20, 2), deviation=0.1)
    model = start.build(seed=seed)
    train(model, samples, epochs=100, batch_size=100, learning_rate=0.01, record_every=100, seed=seed)
    return Task(model, start.build(seed=seed), samples, test)


def split_digits() -> tuple[Data, Data]:
    """Training and test samples of the digits, with all ten labels.

    Returns:
        The training samples and the test samples, in float32, in which posteriors are fitted.
    """
    from hessmap.datasets import by_name, subsample

    shuffled = subsample(by_name("digits"), None, seed=_SEED_OF_SPLIT)
    scaled = type(shuffled)(((shuffled.inputs - _CENTRE) / _SPREAD).float(), shuffled.targets)
    first, last = slice(None, _NUM_TRAINING_SAMPLES), slice(_NUM_TRAINING_SAMPLES, None)
    return type(scaled)(*(part[first] for part in scaled)), type(scaled)(*(part[last] for part in scaled))
