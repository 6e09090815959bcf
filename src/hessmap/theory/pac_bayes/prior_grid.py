"""Prior variances among which one is chosen after the samples, by a union bound."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite, log, pi

from hessmap.errors import require
from hessmap.theory.pac_bayes.divergences import EPS


@dataclass(frozen=True)
class PriorGrid:
    """The prior variances lambda_j = scale exp(-j / precision), j = 1, 2, .., num_points; fixed before the samples.

    Their shares of delta are 6 / (pi^2 j^2), or 1 / num_points each where the points are counted, and sum to at most 1;
    j = 0 has none and is not a point of the grid.

    >>> grid = PriorGrid()
    >>> grid.indices_near(grid.variance(36))
    (36,)
    >>> round(PriorGrid(0.01, precision=1, num_points=5).log_cost(3) - log(5), 12)
    0.0
    """

    scale: float = 0.1
    precision: int = 100
    num_points: int | None = None

    def __post_init__(self) -> None:
        is_scale = isinstance(self.scale, int | float) and isfinite(self.scale) and self.scale > 0
        require(is_scale, "the scale of a grid must be positive and finite", f"got {self.scale!r}")
        is_precision = isinstance(self.precision, int) and self.precision >= 1
        require(is_precision, "the precision of a grid must be a whole number from 1", f"got {self.precision!r}")
        is_number = self.num_points is None or (isinstance(self.num_points, int) and self.num_points >= 1)
        require(is_number, "the points of a grid must be counted by a whole number from 1", f"got {self.num_points!r}")

    def variance(self, index: int) -> float:
        self._check(index)
        return self.scale * exp(-index / self.precision)

    def log_cost(self, index: int) -> float:
        """-log of the share of delta that a point has, never rounded down."""
        self._check(index)
        cost = 2 * log(index) + log(pi**2 / 6) if self.num_points is None else log(self.num_points)
        return cost * (1 + 8 * EPS)

    def _check(self, index: int) -> None:
        require(index >= 1, "a point of the grid has an index of at least 1", f"got {index}")
        last = self.num_points
        require(last is None or index <= last, f"the grid has {last} points", f"got index {index}")

    def indices_near(self, variance: float) -> tuple[int, ...]:
        """The one or two grid points around a variance that was found by optimisation; the last one if outside."""
        require(variance > 0, "variance must be positive", f"got {variance}")
        place = max(1.0, self.precision * log(self.scale / variance))
        if self.num_points is not None:
            place = min(place, float(self.num_points))
        if abs(place - round(place)) < 1e-9:
            return (round(place),)
        return (int(place), int(place) + 1)
