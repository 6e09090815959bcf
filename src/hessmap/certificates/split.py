"""Samples in two parts: one for the prior, one that is certified on; by position, or by what they contain."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hessmap.datasets.data import Data
from hessmap.errors import InvalidInput, checked_number, checked_seed, require, sentence

Digests = np.ndarray[Any, Any]
_DIGEST = 16  # bytes
_TOGETHER = 256  # samples converted at a time


def no_digests() -> Digests:
    return np.empty((0, _DIGEST), dtype=np.uint8)


@dataclass(frozen=True)
class SampleSplit:
    """A random order of N samples from a seed: the first ``fraction`` of them for the prior, the rest to certify on.

    The seed and the fraction are fixed before the samples are looked at.

    >>> data = Data(torch.arange(10.0)[:, None], torch.zeros(10))
    >>> [len(part.inputs) for part in SampleSplit(0.3, seed=0).parts(data)]
    [3, 7]
    """

    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        fraction = checked_number("prior_fraction", self.fraction)
        require(0 <= fraction < 1, "prior_fraction must lie in [0, 1)", f"got {fraction}")
        checked_seed(self.seed)

    def indices(self, num_samples: int) -> tuple[Tensor, Tensor]:
        """Positions of the samples of the prior, and of the rest."""
        order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(self.seed))
        cut = round(self.fraction * num_samples)
        return order[:cut], order[cut:]

    def parts(self, data: Data) -> tuple[Data, Data]:
        first, second = (Data(data.inputs[some], data.targets[some]) for some in self.indices(len(data.inputs)))
        return first, second


def sample_digests(inputs: Tensor) -> Digests:
    """A hash of every input, whatever number format it came in; one row of 16 bytes a sample.

    >>> same = sample_digests(torch.tensor([[1, 2], [3, 4]])) == sample_digests(torch.tensor([[1.0, 2.0], [0.0, 4.0]]))
    >>> same.all(axis=1).tolist()
    [True, False]
    """
    found = np.empty((len(inputs), _DIGEST), dtype=np.uint8)
    for start in range(0, len(inputs), _TOGETHER):
        values = inputs[start : start + _TOGETHER].detach().cpu().double().numpy() + 0.0  # -0 is 0
        for place, sample in enumerate(values, start):
            digest = hashlib.blake2b(sample.tobytes(), digest_size=_DIGEST).digest()
            found[place] = np.frombuffer(digest, dtype=np.uint8)
    return found


def num_in_common(digests: Digests, others: Digests) -> int:
    """How many of the first are among the second."""
    known = {row.tobytes() for row in others}
    return sum(row.tobytes() in known for row in digests)


def refuse_overlap(certified: Digests, seen: Digests) -> None:
    """Raise where a sample that is certified on has been seen by the prior."""
    if count := num_in_common(certified, seen):
        must = "the samples that are certified on must be none that the prior has seen"
        remedy = "Take them out of prior_data and train the prior anew, or split all samples with certify_from_data"
        raise InvalidInput(sentence(must, f"{count} of {len(certified)} are", remedy))
