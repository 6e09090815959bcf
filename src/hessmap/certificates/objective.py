"""What a step of a fit lowers: an upper bound of the error, plus what the divergence is worth beside it.

The surrogate is E cross-entropy / log 2, an upper bound of the error for any number of classes (a wrong answer gives
its label a probability of at most one half). "pinsker" adds sqrt(B / 2), as Dziugaite & Roy 2017 and Wu et al. 2022 do;
that gap is loose where errors are rare, and the surrogate is several times the error. "bound" follows the slope of
the bound that is certified in the end: B is worth ``theory.pac_bayes.error_worth`` of the error, and the error is taken
to move in proportion to the surrogate, both as they were in the last steps.
"""

from __future__ import annotations

from math import log
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from hessmap.theory.pac_bayes import error_worth

Objective = Literal["bound", "pinsker"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_WINDOW = 100  # steps over which errors and surrogates are averaged


class FitObjective:
    """The objective of a fit with the errors and surrogates of its last steps; ``recent`` is all it remembers."""

    def __init__(self, kind: Objective) -> None:
        self.kind = kind
        self.recent: list[tuple[float, float]] = []

    @property
    def error(self) -> float:
        """Of the stochastic network, over the last batches; 1 before the first."""
        return sum(error for error, _ in self.recent) / len(self.recent) if self.recent else 1.0

    def of(self, outputs: Tensor, targets: Tensor, complexity: Tensor) -> Tensor:
        """The objective of a batch, whose error and surrogate are remembered."""
        surrogate = nn.functional.cross_entropy(outputs, targets) / log(2)
        with torch.no_grad():
            wrong = float((outputs.argmax(1) != targets).double().mean())
        self.recent = [*self.recent[1 - _WINDOW :], (wrong, float(surrogate.detach()))]
        if self.kind == "pinsker":
            return surrogate.double() + (complexity / 2).sqrt()
        return surrogate.double() + self._worth(float(complexity.detach()), len(targets)) * complexity

    def _worth(self, complexity: float, batch_size: int) -> float:
        """Of one unit of B, in the surrogate."""
        if not 0 < complexity < float("inf"):
            return 1.0  # the objective is no number, which the fit finds out
        resolution = 1 / (len(self.recent) * batch_size)
        error = min(max(self.error, resolution), 1 - resolution)
        surrogate = sum(surrogate for _, surrogate in self.recent) / len(self.recent)
        return error_worth(error, complexity) * surrogate / error
