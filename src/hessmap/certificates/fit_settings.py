"""How a posterior is fitted, and where a fit is."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite

from hessmap.certificates.objective import OBJECTIVES, Objective
from hessmap.errors import require, unknown_name
from hessmap.theory.pac_bayes import PriorGrid


@dataclass(frozen=True)
class FitSettings:
    """How a posterior is fitted; every field decides the outcome, and enters the certificate.

    The best posterior is chosen among those at every ``progress_every`` iterations.
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

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)
        for name in ("iterations", "batch_size", "refresh_every", "basis_samples", "progress_every"):
            require(getattr(self, name) >= 1, f"{name} must be at least 1", f"got {getattr(self, name)}")
        for name in ("learning_rate", "deviation_learning_rate"):
            rate = getattr(self, name)
            require(isfinite(rate) and rate >= 0, f"{name} must be finite and not negative", f"got {rate}")


@dataclass(frozen=True)
class FitMoment:
    """Where a fit is: ``bound`` is an estimate from the last batches, not a certificate."""

    iteration: int
    iterations: int
    bound: float
    error: float
    kl: float
