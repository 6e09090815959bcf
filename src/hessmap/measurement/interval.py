"""From independent values to an estimate that knows its doubt."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from scipy import stats

from hessmap.errors import require
from hessmap.measurement.matrices import Floats

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Wanted:
    """When to stop: a standard error relative to the value or absolute, whichever is met first, or no more products."""

    relative_error: float
    absolute_error: float
    max_products: int

    def check(self) -> None:
        given = self.relative_error, self.absolute_error
        require(min(given) >= 0 and max(given) < inf, "errors must be finite and not negative", f"got {given}")
        require(max(given) > 0, "one of relative_error and absolute_error must be positive", "both are 0")
        require(self.max_products >= 1, "max_products must be at least 1", f"got {self.max_products}")

    def standard_error(self, value: float) -> float:
        return max(self.absolute_error, self.relative_error * abs(value))

    def is_met(self, value: float, standard_error: float) -> bool:
        return standard_error <= self.standard_error(value)


def standard_error(values: Floats) -> float:
    """Of the mean of independent values, scaled so that squares do not vanish; inf of a single one."""
    if len(values) < 2:
        return inf
    largest = float(np.abs(values).max())
    return largest * float(np.std(values / largest, ddof=1)) / len(values) ** 0.5 if largest else 0.0


def interval(value: float, error: float, count: int, method_error: float = 0.0) -> tuple[float, float]:
    """Student's interval of a mean of ``count`` values, widened by what the method may be off by."""
    if error == 0.0:
        return value - method_error, value + method_error
    half = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, max(1, count - 1))) + method_error
    return value - half, value + half
