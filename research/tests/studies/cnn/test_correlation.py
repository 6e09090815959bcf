"""Correlations with bootstrap intervals: known values, and intervals that say what they can."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from hessmap.errors import InvalidInput
from hessmap_research.studies.cnn.generalisation import compared_correlations as compared
from hessmap_research.studies.cnn.generalisation import reliability

GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.normal(size=(2, 60))
TARGET = X + 0.5 * GENERATOR.normal(size=60)


def test_coefficients_are_those_of_scipy() -> None:
    plain, ordered = compared(X, Y, np.exp(TARGET)), compared(X, Y, np.exp(TARGET), by_order=True)
    assert plain.first.value == pytest.approx(pearsonr(X, np.exp(TARGET)).statistic, abs=1e-14)
    assert plain.second.value == pytest.approx(pearsonr(Y, np.exp(TARGET)).statistic, abs=1e-14)
    assert ordered.first.value == pytest.approx(spearmanr(X, TARGET).statistic, abs=1e-14)


def test_ties_share_their_place() -> None:
    coarse = np.round(X)
    assert compared(coarse, Y, TARGET, by_order=True).first.value == pytest.approx(spearmanr(coarse, TARGET).statistic)


def test_the_interval_of_pearsons_coefficient_is_about_that_of_normal_samples() -> None:
    found = compared(X, Y, TARGET).first
    low, high = pearsonr(X, TARGET).confidence_interval()
    assert found.low == pytest.approx(low, abs=0.06)
    assert found.high == pytest.approx(high, abs=0.06)


def test_the_lead_is_of_magnitudes_and_decided_only_where_it_is_clear() -> None:
    assert compared(X, Y, -TARGET).lead.low > 0
    assert compared(Y, X, -TARGET).lead.high < 0
    lead = compared(X, X + 1e-3 * Y, TARGET).lead
    assert lead.low < 0 < lead.high or abs(lead.value) < 1e-3
    same = compared(X, -X, TARGET).lead
    assert same.low <= 0 <= same.high


def test_equal_seeds_give_equal_intervals_and_a_constant_has_no_correlation() -> None:
    assert compared(X, Y, TARGET, seed=1) == compared(X, Y, TARGET, seed=1) != compared(X, Y, TARGET, seed=2)
    assert compared(np.ones(60), Y, TARGET).first == (0.0, 0.0, 0.0)


def test_two_cases_are_too_few() -> None:
    with pytest.raises(InvalidInput, match="at least three cases; got 2"):
        compared([1, 2], [2, 1], [1, 2])


def test_seeds_widen_the_interval_and_their_noise_lowers_the_reliability() -> None:
    noise = np.random.default_rng(1).normal(size=(60, 5))
    noise -= noise.mean(1, keepdims=True)
    calm, loud = (TARGET[:, None] + scale * noise for scale in (0.01, 3.0))
    once, few, many = compared(X, Y, TARGET).first, compared(X, Y, calm).first, compared(X, Y, loud).first
    assert few.value == pytest.approx(once.value) == many.value
    assert many.high - many.low > few.high - few.low
    expected = 1 - noise.var(axis=1, ddof=1).mean() * 9 / 5 / TARGET.var(ddof=1)
    assert reliability(loud) == pytest.approx(expected)
    assert reliability(calm) > 0.999
