"""How a certificate is made, apart from the networks and the samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from hessmap.certificates.bases import GivenBases
from hessmap.certificates.fit_settings import FitMoment, FitSettings
from hessmap.errors import checked_count, require_name
from hessmap.theory.pac_bayes import confidence_of

PosteriorKind = Literal["fitted", "prior", "tightest"]
FitOn = Literal["rest", "all"]


@dataclass(frozen=True, eq=False)
class Plan:
    """What a caller asks for: the fit, the deltas, the draws, and which posterior of which samples."""

    basis: str | GivenBases
    settings: FitSettings
    sampling_delta: float
    num_draws: int | None
    posterior: PosteriorKind
    fit_on: FitOn
    checkpoint: str | Path | None
    progress: Callable[[FitMoment], None] | None

    def __post_init__(self) -> None:
        confidence_of(*self.deltas)
        require_name("posterior", self.posterior, get_args(PosteriorKind))
        require_name("fit_on", self.fit_on, get_args(FitOn))
        if self.num_draws is not None:
            checked_count("num_draws", self.num_draws)

    @property
    def deltas(self) -> tuple[float, float]:
        return self.settings.delta, self.sampling_delta

    @property
    def share(self) -> float:
        """Of each delta that a posterior has: half where the better of two is chosen."""
        return 0.5 if self.posterior == "tightest" else 1.0
