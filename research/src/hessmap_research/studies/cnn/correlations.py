"""Which of two quantities correlates more with a target that was measured with several seeds, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]
_NUM_RESAMPLES, _COVERAGE = 4000, 0.95


class Interval(NamedTuple):
    """An estimate, and where 95 % of its resamples lie."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


class Comparison(NamedTuple):
    """How two quantities correlate with one target, and by how much the first is ahead in magnitude."""

    first: Interval
    second: Interval
    lead: Interval


def compared_correlations(
    first: Sequence[float], second: Sequence[float], target: ArrayLike, *, by_order: bool = False, seed: int = 0
) -> Comparison:
    """Which of two quantities correlates more with a target, over the same resamples of the cases.

    ``target`` has one value for each case, or a row of them, one for each seed; then the mean of the row counts. A
    resample draws cases with replacement, and seeds anew for each case that it drew. Pearson's coefficient, or with
    ``by_order`` Spearman's: Pearson's of the places in order, which any monotone curve brings to 1. Intervals hold the
    middle 95 % of 4,000 resamples, drawn from ``seed``.

    >>> found = compared_correlations([1, 2, 3, 4, 5], [2, 1, 4, 3, 5], [-1, -2, -3, -4, -5])
    >>> str(found.first), round(found.second.value, 2)
    ('-1.00 [-1.00, -1.00]', -0.8)
    >>> round(found.lead.value, 2)
    0.2
    """
    from scipy.stats import rankdata

    targets = np.asarray(target, dtype=np.float64).reshape(len(first), -1)
    num_cases, num_seeds = targets.shape
    require(num_cases >= 3, "a correlation needs at least three cases", f"got {num_cases}")
    generator = np.random.default_rng(seed)
    places = generator.integers(num_cases, size=(_NUM_RESAMPLES, num_cases))
    seeds = generator.integers(num_seeds, size=(_NUM_RESAMPLES, num_cases, num_seeds))
    drawn = targets[places[..., None], seeds].mean(-1)
    places = np.concatenate([np.arange(num_cases)[None], places])  # the cases themselves first
    quantities = np.array([first, second], dtype=np.float64)[:, places]
    values = np.concatenate([quantities, np.concatenate([targets.mean(-1)[None], drawn])[None]])
    if by_order:
        values = rankdata(values, axis=-1)
    one, other = (_coefficients(quantity, values[2]) for quantity in values[:2])
    return Comparison(_interval(one), _interval(other), _interval(np.abs(one) - np.abs(other)))


def reliability(targets: ArrayLike) -> float:
    """The share of the variance between cases that is not the noise of their seeds: 1 - var(seeds) / S / var(means).

    ``targets`` has a row for each case and a column for each of the S seeds. 1 is a difference between the cases that
    no other seeds would change; 0 or less is none that these seeds can tell.

    >>> reliability([[1, 1], [2, 2], [3, 3]])
    1.0
    >>> reliability([[0, 2], [2, 0], [0, 2]])
    -inf
    """
    values = np.asarray(targets, dtype=np.float64)
    between, within = values.mean(1).var(ddof=1), values.var(axis=1, ddof=1).mean() / values.shape[1]
    return float(1 - within / between) if between > 0 else float("-inf")


def _coefficients(quantity: Floats, target: Floats) -> Floats:
    """Pearson's coefficient over the last axis; 0 where a resample holds only one value."""
    one, other = (values - values.mean(axis=-1, keepdims=True) for values in (quantity, target))
    spread = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    coefficients: Floats = np.divide((one * other).sum(-1), spread, out=np.zeros(spread.shape), where=spread > 0)
    return coefficients


def _interval(values: Floats) -> Interval:
    """The first value, and the middle 95 % of the others."""
    low, high = np.quantile(values[1:], [(1 - _COVERAGE) / 2, (1 + _COVERAGE) / 2])
    return Interval(float(values[0]), float(low), float(high))
