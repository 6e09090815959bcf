"""A problem whose samples are split over processes: its means are those over all of them.

Everything that is a mean over samples (risk, gradient, products, diagonals, Kronecker factors) is computed by each
process on its ``local`` problem and added up by ``mean``. A distributed problem has no separate samples, so that
whatever reads single samples raises instead of using those of one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import InvalidInput, NotReproducible, require, sentence
from hessmap.linalg import Processes, widest_dtype
from hessmap.problem.problem import Problem, require_problem
from hessmap.problem.samples import Samples, WeightedSamples
from hessmap.records import data_hash

_Value = TypeVar("_Value")


class DistributedProblem(Problem):
    """The mean over the samples of all processes, from the problem on those of each; see ``distributed``.

    Every process must make the same calls in the same order.

    Args:
        local: The problem on the samples of this process.
        timeout: Seconds after which a process that does not answer is an error in the others. Defaults to 60.
    """

    def __init__(self, local: Problem, timeout: float = 60.0) -> None:
        require_problem(local)
        self.processes = Processes(timeout=timeout)
        self._take(local)

    def _take(self, local: Problem) -> None:
        """Be the problem of all processes of which this one has ``local``."""
        self.__dict__.update(vars(local))
        self._local = local
        elsewhere = _Elsewhere(self.processes.count)
        self.samples, self._data = cast(Samples, elsewhere), cast(WeightedSamples, elsewhere)
        must = "l2 is part of each process's risk, whose sum would count it once a process"
        is_once = not (local.l2 and local.loss.is_sum)
        require(is_once, must, "the loss is summed (reduction='sum')", "Use reduction='mean', or l2=0")
        hashed = divmod(int(local.data_hash, 16), 2**32)
        own = torch.tensor([local.normaliser, local.num_samples, *hashed], dtype=torch.float64)
        numbers = self.processes.gathered(own)
        mass, total = numbers[:, :2].sum(0).tolist()
        self.num_samples = int(total)
        self.share = 1.0 if local.loss.is_sum else local.normaliser / mass
        self.normaliser = 1.0 if local.loss.is_sum else mass
        self._hash = data_hash(np.ascontiguousarray(numbers[:, 2:].numpy()))
        self.memory_budget = self.least(local.memory_budget)
        self._cache = {}
        self._require_one_point(local)

    @property
    def local(self) -> Problem:
        return self._local

    @property
    def is_objective(self) -> bool:
        return self._local.is_objective

    @property
    def data_hash(self) -> str:
        return self._hash

    @property
    def difference_error(self) -> float:
        return self._local.difference_error

    @property
    def notes(self) -> tuple[str, ...]:
        mean = "sum" if self._local.loss.is_sum else "mean"
        kind = "batches" if self.is_objective else "samples"
        found = f"the {mean} over {self.num_samples} {kind} of {self.processes.count} processes"
        apart = [] if self._has_equal_buffers else ["buffers differ between processes: each one uses its own"]
        return (*self._local.notes, found, *apart)

    def mean_over_processes(self, own: Tensor, mass: float | None = None) -> Tensor:
        share = self.share
        if mass is not None:
            total = self.processes.sum_numbers(torch.tensor([share * mass], dtype=torch.float64))
            share = share * mass / float(total)
        add = self.processes.sum_numbers if own.device.type == "cpu" else self.processes.sum
        return add(share * own)

    def agreed(self, value: _Value) -> _Value:
        return self.processes.first(value)

    def least(self, number: int) -> int:
        return -int(self.processes.largest(-number))

    def at(self, point: Tensor) -> Problem:
        moved = super().at(point)
        assert isinstance(moved, DistributedProblem)
        moved._local = self._local.at(point)
        return moved

    def risk(self, parameters: Tensor | None = None, buffers: Mapping[str, Tensor] | None = None) -> float:
        own = torch.tensor([self._local.risk(parameters, buffers)], dtype=torch.float64)
        return float(self.processes.sum_numbers(self.share * own))

    def gradient(self) -> Tensor:
        return self.mean_over_processes(self._local.gradient())

    def in_single_precision(self) -> Problem | None:
        single = self._local.in_single_precision()
        if self.processes.largest(float(single is None)):
            return None
        assert single is not None
        return self._of(single)

    def in_double_precision(self) -> Problem:
        return self._of(self._local.in_double_precision())

    def _of(self, local: Problem) -> DistributedProblem:
        found = object.__new__(DistributedProblem)
        found.processes = self.processes
        found._take(local)
        return found

    def _require_one_point(self, local: Problem) -> None:
        """All processes differentiate at the same parameters: none is apart from their mean."""
        own = local.parameters.to(widest_dtype(local.device))
        mean = self.processes.sum(own / self.processes.count)
        apart = self.processes.largest(float((own - mean).abs().max()))
        allowed = 1e-12 if own.dtype == torch.float64 else 1e-6
        if apart > allowed * max(1.0, float(mean.abs().max())):
            must, got = "all processes must have the same parameters", f"they differ by up to {apart:.2g}"
            raise NotReproducible(sentence(must, got, "Broadcast the model from process 0 first"))
        norm = sum(float(buffer.double().norm()) for buffer in local.model.buffers())
        self._has_equal_buffers = self.processes.all_equal(norm)


class _Elsewhere:
    """What a distributed problem has in the place of samples: whatever reads them raises."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __getattr__(self, name: str) -> NoReturn:
        must, got = (
            "this needs single samples, each of which is on one process only",
            f"the data are split over {self._count} processes",
        )
        raise InvalidInput(sentence(must, got, "Use problem.local, the problem on the samples of this process"))
