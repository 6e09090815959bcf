"""What is tracked: a model with its loss and data, made into a problem whenever it is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from hessmap.errors import require
from hessmap.losses import AnyLoss
from hessmap.problem import Problem
from hessmap.records import data_hash
from hessmap.training import evaluation_mode


@dataclass(frozen=True)
class Subject:
    """A model, its loss and the data on which its curvature is measured; ``options`` go to ``Problem``."""

    model: nn.Module
    loss: AnyLoss | None
    data: Any
    options: dict[str, Any]

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
            return Problem(self.model, self.loss, self.data, **self.options)

    def weights_hash(self) -> str:
        """Equal for equal parameters and buffers."""
        return data_hash(*(_plain(value).numpy() for value in self.model.state_dict().values()))


def data_fingerprint(problem: Problem) -> str:
    """The same for the same samples in any order: a sum of squares, so that nothing cancels but rounding."""
    return f"{problem.num_samples} samples, {float(problem.samples.digest().sums[1]):.8g}"


def require_same_data(problem: Problem, before: str) -> None:
    """Refuse points on other data: they could not be compared."""
    now, remedy = data_fingerprint(problem), "Give the tracker data of its own that do not change"
    require(now == before, "all points of a track must be measured on the same data", f"{before} are now {now}", remedy)


def _plain(value: Tensor) -> Tensor:
    """On the processor, in a number format that numpy has."""
    there = value.detach().to("cpu")
    return there.float() if there.dtype == torch.bfloat16 else there
