"""Processes that compute together: sums over all of them with a timeout, and operators whose vectors are sharded.

A vector of a ``ShardedOperator`` is split over the processes of a group: each process has the entries that it owns, and
every entry is owned by exactly one process. Sums of vectors, and products with numbers, are local; inner products are
a sum over the processes.
"""

from __future__ import annotations

import os
import pickle
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import sqrt
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from hessmap.errors import HessmapError, InvalidInput, ProcessLost, require, sentence
from hessmap.linalg.devices import is_out_of_memory, widest_dtype
from hessmap.linalg.operator import SymmetricOperator

_Value = TypeVar("_Value")
_PIECE = 2**15  # entries of float32 vectors whose inner products are added up by torch; pieces are added in float64
_LOST = ("connection closed", "connection reset", "broken pipe", "connection refused", "no such process", "aborted")
_STUCK = ("timed out", "timeout")


class Processes:
    """The processes of a group of torch.distributed, or this one alone.

    All of them must make the same calls in the same order. A process that ended, or that does not take part within
    ``timeout`` seconds, raises ``ProcessLost`` in the others.

    Args:
        group: A process group. Defaults to that of all processes.
        timeout: Seconds. Defaults to 60.
        alone: Whether there is this process only, without a process group. Defaults to False.

    Raises:
        InvalidInput: If torch.distributed has no process group, or the timeout is not positive and finite.
    """

    def __init__(self, group: dist.ProcessGroup | None = None, timeout: float = 60.0, *, alone: bool = False) -> None:
        require(0 < timeout < float("inf"), "timeout must be positive and finite, in seconds", f"got {timeout}")
        if not alone:
            ready = dist.is_available() and dist.is_initialized()
            remedy = "Call torch.distributed.init_process_group, as under torchrun"
            require(ready, "several processes need an initialised process group", "there is none", remedy)
        self.group = group
        self.timeout = timeout
        self.rank = 0 if alone else dist.get_rank(group)
        self.count = 1 if alone else dist.get_world_size(group)

    def sum(self, part: Tensor) -> Tensor:
        """Add a tensor of equal shape up over all processes, on its own device.

        Args:
            part: The tensor of this process; it is not changed.

        Returns:
            Tensor: The sum, equal on all processes.

        Raises:
            ProcessLost: If a process ended or did not answer in time.
            InvalidInput: If the process group has no backend for the device.
        """
        if self.count == 1:
            return part.clone()
        self._require_backend(part.device)
        total = part.contiguous().clone()
        with self.noting_losses():
            work = dist.all_reduce(total, group=self.group, async_op=True)
            assert work is not None
            work.wait(timedelta(seconds=self.timeout))
            if total.device.type != "cpu":
                torch.accelerator.synchronize(total.device)  # an error of the backend is raised here, not later
        return total

    def sum_numbers(self, numbers: Tensor) -> Tensor:
        """Add few numbers of the host up over all processes, by whichever backend there is."""
        if self.count == 1 or "cpu" in self._backends:
            return self.sum(numbers)
        device = torch.device(next(iter(self._backends)))
        return self.sum(numbers.to(device, widest_dtype(device))).to(numbers)

    def gathered(self, numbers: Tensor) -> Tensor:
        """A vector of few numbers (float64) of every process as rows, in the order of the processes."""
        given = torch.zeros(self.count, len(numbers), dtype=torch.float64)
        given[self.rank] = numbers
        return self.sum_numbers(given)

    def all_equal(self, number: float) -> bool:
        """Whether a number is the same on all processes."""
        found = self.gathered(torch.tensor([number], dtype=torch.float64))
        return bool((found == found[0]).all())

    def largest(self, number: float) -> float:
        """The largest number of all processes."""
        return float(self.gathered(torch.tensor([number], dtype=torch.float64)).max())

    def first(self, value: _Value) -> _Value:
        """The value of the first process on all of them; it must be one that pickle knows."""
        if self.count == 1:
            return value
        content = pickle.dumps(value) if self.rank == 0 else b""
        size = int(self.largest(len(content)))
        sent = torch.zeros(size, dtype=torch.float64)
        sent[: len(content)] = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else 0.0
        received: _Value = pickle.loads(bytes(self.sum_numbers(sent).to(torch.uint8).numpy()))
        return received

    @contextmanager
    def noting_losses(self) -> Iterator[None]:
        """Errors of torch.distributed in a block are raised as ``ProcessLost``, with their reason."""
        try:
            yield
        except HessmapError:
            raise
        except RuntimeError as error:
            text = str(error).strip()
            low = text.lower()
            is_lost = any(word in low for word in _LOST)
            is_stuck = any(word in low for word in _STUCK)
            if is_out_of_memory(error) or not (is_lost or is_stuck or isinstance(error, dist.DistError)):
                raise
            must = f"every process must answer within {self.timeout:g} s"
            if is_lost:
                reason, remedy = "the connection to a process was closed", "Look for a process that ended"
            elif is_stuck:
                reason, remedy = "one did not answer in time", "Look for a process that waits, or raise timeout="
            else:
                reason, remedy = "the communication failed", "Look at the errors of the other processes"
            got = f"in process {self.rank} of {self.count} {reason} ({text.splitlines()[0][:160]})"
            raise ProcessLost(sentence(must, got, remedy)) from error

    @property
    def _backends(self) -> dict[str, str]:
        """The backend of every kind of device."""
        pairs = dist.get_backend_config(self.group).split(",")
        return dict(pair.split(":", 1) for pair in pairs if ":" in pair)

    def _require_backend(self, device: torch.device) -> None:
        backends = self._backends
        if device.type not in backends:
            known = ", ".join(f"{name} for {kind}" for kind, name in backends.items())
            must = f"the process group must have a backend for tensors on {device.type}"
            remedy = "Call init_process_group('cpu:gloo,cuda:nccl'), or move model and data to that device"
            raise InvalidInput(sentence(must, f"it has {known}", remedy))


def is_first_process() -> bool:
    """Whether this is the process that prints and writes: the first of its group, or the only one.

    Before a process group exists, the variables of torchrun and of Lightning's launcher decide.

    Returns:
        bool: True for rank 0, and without any of these.
    """
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    names = ("RANK",) if "RANK" in os.environ else ("LOCAL_RANK", "NODE_RANK")
    return all(os.environ.get(name, "0") == "0" for name in names)


class ShardedOperator(SymmetricOperator):
    """A symmetric operator whose vectors are sharded: ``matmat`` takes and returns the rows that this process owns.

    ``size`` counts all rows, ``local_size`` those of this process. ``product_error`` is the relative error
    that is expected of products; ``last_error`` and ``difference_error`` are those estimated of the last product, and
    the largest so far, or 0 without an estimate.
    """

    processes: Processes
    product_error: float = 0.0
    last_error: float = 0.0
    difference_error: float = 0.0

    @property
    @abstractmethod
    def local_size(self) -> int: ...

    def inner(self, left: Tensor, right: Tensor) -> Tensor:
        """left^T right of columns over all processes, on the host in float64."""
        wide = widest_dtype(left.device)
        found = torch.zeros(left.shape[1], right.shape[1], dtype=wide, device=left.device)
        step = left.shape[0] if left.dtype == wide else _PIECE
        for start in range(0, left.shape[0], max(1, step)):
            piece = slice(start, start + max(1, step))
            found += (left[piece].T @ right[piece]).to(wide)
        return self.processes.sum(found).to("cpu", torch.float64)

    def norm(self, vector: Tensor) -> float:
        """The norm of one vector over all processes."""
        column = vector.reshape(-1, 1)
        return sqrt(float(self.inner(column, column)))

    def random_signs(self, count: int, generator: torch.Generator) -> Tensor:
        """Random signs in the rows of this process, from a generator of its own."""
        signs = torch.randint(0, 2, (self.local_size, count), generator=generator, dtype=torch.int8)
        return (2 * signs - 1).to(self.device, self.dtype)

    def random_normals(self, count: int, generator: torch.Generator) -> Tensor:
        """Normal numbers in the rows of this process, from a generator of its own."""
        numbers = torch.randn(self.local_size, count, generator=generator, dtype=torch.float32)
        return numbers.to(self.device, self.dtype)

    def generator(self, seed: int) -> torch.Generator:
        """A generator whose numbers differ between processes, and are the same for the same seed."""
        return torch.Generator().manual_seed((seed * 1_000_003 + 7919 * self.processes.rank) % 2**63)

    def to_dense(self) -> Tensor:
        must = "a dense form needs all rows on one process"
        raise InvalidInput(sentence(must, "the vectors of this operator are sharded", "Use products with it"))
