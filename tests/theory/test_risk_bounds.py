"""Sharper bounds against sixty digits of mpmath, against each other, and against counts of how often they fail."""

from __future__ import annotations

from math import inf, log, nextafter, sqrt

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory.pac_bayes import (
    PriorGrid,
    binary_kl_inverse,
    catoni_mixture_inverse,
    held_out_bound,
    log_maurer_constant,
    maurer_complexity,
    mean_bound,
    tightest_bound,
    wagered_bound,
)

DIGITS = 60
# What the module documents: stakes 1, 1/2, .., 1/256 with half of the purse on the first; slopes 0.03 * 1.35^k.
STAKES = [(2.0**-k, 0.5 if k == 0 else 0.0625) for k in range(9)]
SLOPES = [0.03 * 1.35**k for k in range(20)]


def exact_tail(num_errors: int, count: int, p: float) -> mpmath.mpf:
    """P(Binomial(count, p) <= num_errors), term by term."""
    rate = mpmath.mpf(p)
    return mpmath.fsum(mpmath.binomial(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(num_errors + 1))


@share_of_examples(0.5)
@given(st.integers(1, 60), st.floats(0, 1), st.floats(1e-6, 0.3))
def test_held_out_bound_is_the_first_float_with_a_small_tail(count: int, share: float, delta: float) -> None:
    num_errors = int(share * count)
    p = held_out_bound(num_errors, count, delta)
    with mpmath.workdps(DIGITS):
        if num_errors == count:
            assert p == 1
        else:
            assert exact_tail(num_errors, count, p) <= delta
            assert exact_tail(num_errors, count, nextafter(nextafter(p, 0.0), 0.0)) > delta


@pytest.mark.parametrize(
    ("num_errors", "count", "delta"), [(350, 30_000, 0.035), (9000, 10_000, 1e-4), (0, 10**6, 0.1)]
)
def test_held_out_bound_of_many_samples_is_the_quantile_of_a_beta_law(num_errors, count, delta) -> None:
    wanted = beta.ppf(1 - delta, num_errors + 1, count - num_errors)
    assert held_out_bound(num_errors, count, delta) == pytest.approx(wanted, rel=1e-9)


def exact_purse(counts: list[int], m: float) -> mpmath.mpf:
    steps = len(counts) - 1
    return mpmath.fsum(
        share * mpmath.fprod((1 + stake * (mpmath.mpf(m) - mpmath.mpf(j) / steps)) ** n for j, n in enumerate(counts))
        for stake, share in STAKES
    )


@share_of_examples(0.5)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=8).filter(any), st.floats(1e-4, 0.9))
def test_wager_ends_at_the_first_float_that_wins(counts: list[int], delta: float) -> None:
    m = wagered_bound(counts, delta)
    with mpmath.workdps(DIGITS):
        assert m == 1 or exact_purse(counts, m) * delta >= 1
        before = nextafter(nextafter(m, 0.0), 0.0)
        mean = sum(j * n for j, n in enumerate(counts)) / (sum(counts) * (len(counts) - 1))
        assert before <= mean or exact_purse(counts, before) * delta < 1


def test_wager_is_far_below_chernoffs_inequality_where_draws_vary_little() -> None:
    counts = list(np.round(10_000 * binom.pmf(np.arange(101), 100, 0.01)).astype(int))
    mean = sum(j * n for j, n in enumerate(counts)) / (100 * sum(counts))
    assert wagered_bound(counts, 0.01) - mean < 0.3 * (mean_bound(mean, sum(counts), 0.01) - mean)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 57, 400])
def test_maurers_constant_is_its_sum_and_below_twice_the_root(count: int) -> None:
    with mpmath.workdps(DIGITS):
        shares = [mpmath.mpf(k) / count for k in range(count + 1)]
        wanted = mpmath.log(
            mpmath.fsum(mpmath.binomial(count, k) * x**k * (1 - x) ** (count - k) for k, x in enumerate(shares))
        )
        found = log_maurer_constant(count)
        assert wanted <= found < wanted + 1e-14 * (1 + wanted)
    assert found <= log(2 * sqrt(count)) + 1e-15


def exact_mixture(q: float, p: float, count: int) -> mpmath.mpf:
    """log mean_k exp(N D_k(q, p))."""
    rate = mpmath.mpf(p)
    terms = [
        mpmath.exp(count * (-mpmath.log(1 - rate * (1 - mpmath.exp(-mpmath.mpf(c)))) - mpmath.mpf(c) * mpmath.mpf(q)))
        for c in SLOPES
    ]
    return mpmath.log(mpmath.fsum(terms) / len(terms))


@share_of_examples(0.5)
@given(st.floats(0, 0.9), st.floats(0.1, 200), st.integers(5, 3000))
def test_mixture_of_catonis_is_never_below_the_exact_value_and_two_floats_before_is(q, allowance, count) -> None:
    p = catoni_mixture_inverse(q, allowance, count)
    with mpmath.workdps(DIGITS):
        assert p == 1 or exact_mixture(q, p, count) >= allowance
        before = nextafter(nextafter(p, 0.0), 0.0)
        assert before <= q or exact_mixture(q, before, count) < allowance


def test_exponential_moments_behind_both_inequalities_are_at_most_one() -> None:
    """E exp(N D(mean, p)) over a binomial law, by summation: 1 for Catoni's mixture, xi(N) for kl, never more."""
    for count, p in ((5, 0.3), (40, 0.02), (200, 0.6)):
        with mpmath.workdps(DIGITS):
            weights = [
                mpmath.binomial(count, k) * mpmath.mpf(p) ** k * (1 - mpmath.mpf(p)) ** (count - k)
                for k in range(count + 1)
            ]
            moment = mpmath.fsum(w * mpmath.exp(exact_mixture(k / count, p, count)) for k, w in enumerate(weights))
            assert abs(moment - 1) < mpmath.mpf("1e-12")


@share_of_examples(0.5)
@given(st.floats(0, 0.5), st.floats(0, 500), st.integers(100, 50_000), st.floats(0, 5))
def test_tightest_bound_is_the_smaller_of_both_with_half_of_delta_each(q, kl, count, cost) -> None:
    delta = 0.025
    found = tightest_bound(q, kl, count, cost, delta)
    by_maurer = binary_kl_inverse(q, (kl + cost + log(2 / delta) + log_maurer_constant(count)) / count)
    by_catoni = catoni_mixture_inverse(q, kl + cost + log(2 / delta), count)
    assert found.value == pytest.approx(min(by_maurer, by_catoni), rel=1e-9)
    assert found.inequality == ("catoni" if by_catoni <= by_maurer else "maurer")
    assert found.value >= q


def test_constants_are_paid_in_full() -> None:
    assert maurer_complexity(3.0, 50, 1.5, 0.1) * 50 == pytest.approx(4.5 + log(20) + log_maurer_constant(50))
    assert mean_bound(0.2, 50, 0.1) == pytest.approx(binary_kl_inverse(0.2, log(10) / 50))


@pytest.mark.parametrize("grid", [PriorGrid(), PriorGrid(1.0, 10), PriorGrid(0.01, 1, num_points=7)])
def test_shares_of_a_grid_sum_to_at_most_one(grid: PriorGrid) -> None:
    last = grid.num_points or 100_000
    total = sum(np.exp(-grid.log_cost(index)) for index in range(1, last + 1))
    assert 0.9999 < total <= 1


def test_grid_that_ends_has_no_point_beyond_and_one_near_every_variance() -> None:
    grid = PriorGrid(0.01, 1, num_points=4)
    assert grid.indices_near(1.0) == (1,)
    assert grid.indices_near(1e-9) == (4,)
    assert grid.indices_near(grid.scale * np.exp(-2.5)) == (2, 3)
    with pytest.raises(InvalidInput, match="the grid has 4 points; got index 5"):
        grid.variance(5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: held_out_bound(3, 2, 0.1), "num_errors must be in 0..2; got 3"),
        (lambda: held_out_bound(0, 0, 0.1), "num_samples must be at least 1; got 0"),
        (lambda: wagered_bound([1], 0.1), "counts must contain at least two entries; got 1"),
        (lambda: wagered_bound([0, 0], 0.1), "counts must not be negative, nor all zero"),
        (lambda: catoni_mixture_inverse(0.1, inf, 5), "allowance must be finite and not negative; got inf"),
        (lambda: maurer_complexity(-1.0, 5, 0.0, 0.1), "kl must be finite and not negative; got -1.0"),
        (lambda: log_maurer_constant(0), "num_samples must be at least 1; got 0"),
        (lambda: PriorGrid(1.0, 1, num_points=0), "points of a grid must be counted by a whole number from 1; got 0"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(call, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()
