"""How a posterior is fitted, where a fit is, and what each of its steps lowers.

A step lowers a surrogate, E cross-entropy / log 2, which is an upper bound of the error for any number of classes (a
wrong answer gives its label a probability of at most one half), plus a weight times the complexity B. "pinsker" adds
sqrt(B / 2), as Dziugaite & Roy 2017 and Wu et al. 2022 do; that gap is loose where errors are rare, and the surrogate
is several times the error. "bound" follows the slope of the bound that is certified in the end: a unit of B replaces
``theory.pac_bayes.error_per_divergence`` of the error, and the error is taken to move in proportion to the surrogate,
both as they were in the last steps. "balanced" takes the geometric mean of both slopes: a network that errs less than
that of "bound", with a bound between the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.certificates.losses import BoundedLoss, ClassificationError, bounded_loss
from hessmap.errors import checked_count, checked_number, checked_seed, require, unknown_name
from hessmap.theory.pac_bayes import PriorGrid, error_per_divergence

Objective = Literal["bound", "pinsker", "balanced"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_WINDOW = 100  # steps over which errors and surrogates are averaged
_COUNTS = ("iterations", "batch_size", "refresh_every", "basis_samples", "progress_every")


@dataclass(frozen=True)
class FitSettings:
    """How a posterior is fitted. Every field determines the result and is stored in the certificate.

    Args:
        iterations: Steps of the fit. Defaults to 6000.
        objective: "bound" (default) follows the slope of the certified bound; "pinsker", that of the papers, gives a
            better network with a looser bound; "balanced" is between the two.
        batch_size: Samples in a step. Defaults to 128.
        learning_rate: Learning rate of the means. Defaults to 3e-3.
        deviation_learning_rate: Learning rate of the log deviations. Defaults to 1e-2.
        smoothing: Decay of the running mean of squared gradients in RMSprop. Defaults to 0.9.
        refresh_every: Iterations between two computations of an iterative basis. Defaults to 400.
        basis_samples: Samples that a basis is computed from. Defaults to 2000.
        delta: Probability that the samples mislead. Defaults to 0.025.
        grid: Prior variances, fixed before the samples were seen. Default: ``PriorGrid()``.
        seed: Seed of the fit. Defaults to 0.
        progress_every: Iterations between two progress updates, among which the best posterior is chosen. Defaults to
            200.
        loss: "cross_entropy" (default), "bce" or "squared".
        starts_at_prior: Whether the fit starts with the deviations of a prior that was trained on samples of its own,
            instead of deviations of the size of the weights. Defaults to False.

    Raises:
        InvalidInput: If a setting is out of range.
    """

    iterations: int = 6000
    objective: Objective = "bound"
    batch_size: int = 128
    learning_rate: float = 3e-3
    deviation_learning_rate: float = 1e-2
    smoothing: float = 0.9
    refresh_every: int = 400
    basis_samples: int = 2000
    delta: float = 0.025
    grid: PriorGrid = field(default_factory=PriorGrid)
    seed: int = 0
    progress_every: int = 200
    loss: str = "cross_entropy"
    starts_at_prior: bool = False

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)
        for name in _COUNTS:
            checked_count(name, getattr(self, name))
        checked_seed(self.seed)
        bounded_loss(self.loss)
        require(isinstance(self.grid, PriorGrid), "grid must be a PriorGrid", f"got {self.grid!r}")
        for name in ("learning_rate", "deviation_learning_rate"):
            rate = checked_number(name, getattr(self, name))
            require(isfinite(rate) and rate >= 0, f"{name} must be finite and not negative", f"got {rate}")


@dataclass(frozen=True)
class FitMoment:
    """Progress of a fit.

    Attributes:
        iteration: Iterations done.
        iterations: Iterations in total.
        bound: Estimate of the bound from the last batches; not a certificate.
        error: Error of the stochastic network over the last batches.
        kl: Divergence of the posterior from the prior.
    """

    iteration: int
    iterations: int
    bound: float
    error: float
    kl: float


class FitObjective:
    """The objective of a fit with the errors and surrogates of its last steps; ``recent`` is all it remembers."""

    def __init__(self, kind: Objective, loss: BoundedLoss | None = None) -> None:
        self.kind, self.loss = kind, loss or ClassificationError()
        self.recent: list[tuple[float, float]] = []

    @property
    def error(self) -> float:
        """Of the stochastic network, over the last batches; 1 before the first."""
        return sum(error for error, _ in self.recent) / len(self.recent) if self.recent else 1.0

    def of(self, outputs: Tensor, targets: Tensor, complexity: Tensor) -> Tensor:
        """The objective of a batch, whose error and surrogate are remembered."""
        surrogate = self.loss.surrogate(outputs, targets)
        with torch.no_grad():
            wrong = float(self.loss.values(outputs, targets).mean())
        self.recent = [*self.recent[1 - _WINDOW :], (wrong, float(surrogate.detach()))]
        if self.kind == "pinsker":
            return surrogate.double() + (complexity / 2).sqrt()
        slope = self._slope(float(complexity.detach()), len(targets))
        if self.kind == "balanced":
            slope = (slope * _pinsker_slope(float(complexity.detach()))) ** 0.5
        return surrogate.double() + slope * complexity

    def _slope(self, complexity: float, batch_size: int) -> float:
        """How much of the surrogate a unit of B replaces, at the same bound."""
        if not 0 < complexity < float("inf"):
            return 1.0  # the objective is no number, which the fit finds out
        resolution = 1 / (len(self.recent) * batch_size)
        error = min(max(self.error, resolution), 1 - resolution)
        surrogate = sum(surrogate for _, surrogate in self.recent) / len(self.recent)
        return error_per_divergence(error, complexity) * surrogate / error


def _pinsker_slope(complexity: float) -> float:
    """d sqrt(B / 2) / dB."""
    return 1 / (8 * complexity) ** 0.5 if 0 < complexity < float("inf") else 1.0
