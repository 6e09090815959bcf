"""Which of two quantities correlates more with a third over the cases of a study, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from hessmap.errors import require

Floats = NDArray[np.float64]
_NUM_RESAMPLES = 4000
_COVERAGE = 0.95


class Interval(NamedTuple):
    """An estimate, and where 95 % of its resamples lie."""

    value: float
    low: float
    high: float

    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


class Rivalry(NamedTuple):
    """How two rivals correlate with one target, and by how much the first is ahead in magnitude."""

    first: Interval
    second: Interval
    lead: Interval


def rivalry(
    first: Sequence[float], second: Sequence[float], target: Sequence[float], *, by_order: bool = False, seed: int = 0
) -> Rivalry:
    """Correlations of both rivals with the target over the same resamples of the cases.

    Pearson's coefficient, or with ``by_order`` Spearman's: Pearson's of the places in order, which any monotone curve
    brings to 1. Intervals hold the middle 95 % of 4,000 resamples, drawn with replacement from ``seed``.

    >>> found = rivalry([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [-1, -2, -3, -4, -5])
    >>> str(found.first), round(found.second.value, 2)
    ('-1.00 [-1.00, -1.00]', -0.8)
    >>> round(found.lead.value, 2)
    0.2
    """
    given = np.array([first, second, target], dtype=np.float64)
    num_cases = given.shape[1]
    require(num_cases >= 3, "a correlation needs at least three cases", f"got {num_cases}")
    places = np.random.default_rng(seed).integers(num_cases, size=(_NUM_RESAMPLES, num_cases))
    places = np.concatenate([np.arange(num_cases)[None], places])  # the cases themselves first
    resampled = given[:, places]
    values = rankdata(resampled, axis=-1) if by_order else resampled
    one, other = (_coefficients(rival, values[2]) for rival in values[:2])
    return Rivalry(_interval(one), _interval(other), _interval(np.abs(one) - np.abs(other)))


def _coefficients(rival: Floats, target: Floats) -> Floats:
    """Pearson's coefficient over the last axis; 0 where a resample holds only one value."""
    rival, target = (values - values.mean(axis=-1, keepdims=True) for values in (rival, target))
    spread = np.sqrt((rival**2).sum(-1) * (target**2).sum(-1))
    coefficients: Floats = np.divide((rival * target).sum(-1), spread, out=np.zeros(spread.shape), where=spread > 0)
    return coefficients


def _interval(values: Floats) -> Interval:
    """The first value, and the middle 95 % of the others."""
    low, high = np.quantile(values[1:], [(1 - _COVERAGE) / 2, (1 + _COVERAGE) / 2])
    return Interval(float(values[0]), float(low), float(high))
