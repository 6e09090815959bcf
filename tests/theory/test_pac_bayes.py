"""PAC-Bayes inequalities: the inverse against decimals, the divergence against integrals, the grid's shares."""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import exp, inf, isclose, log, nextafter, pi, sqrt

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import binom, norm

from hessmap.errors import InvalidInput
from hessmap.theory.pac_bayes import (
    PriorGrid,
    binary_kl,
    binary_kl_inverse,
    complexity,
    confidence_of,
    error_per_divergence,
    gaussian_kl,
    sampled_error_bound,
    sampled_error_lower_bound,
)

RATES = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1 - 2**-53]))
DIVERGENCES = st.one_of(st.floats(0, 5), st.floats(0, 1e-12), st.sampled_from([0.0, 5e-324, 1e4, inf]))


def exact_kl(q: float, p: float) -> Decimal:
    """kl(q || p) to about 400 digits, infinite where it is."""
    with localcontext() as context:
        context.prec = 400
        exact_q, exact_p, one = Decimal(q), Decimal(p), Decimal(1)
        if exact_p in (0, 1):
            return Decimal(0) if exact_q == exact_p else Decimal("Infinity")
        heads = exact_q * (exact_q / exact_p).ln() if q > 0 else Decimal(0)
        tails = (one - exact_q) * ((one - exact_q) / (one - exact_p)).ln() if q < 1 else Decimal(0)
        return heads + tails


@given(RATES, DIVERGENCES)
def test_inverse_is_never_below_the_exact_value_and_two_floats_before_is(q: float, c: float) -> None:
    p = binary_kl_inverse(q, c)

    assert q <= p <= 1
    if q < 1 and c > 0:
        assert p == 1 or exact_kl(q, p) >= Decimal(c)
        before = nextafter(nextafter(p, 0.0), 0.0)
        assert before <= q or exact_kl(q, before) < Decimal(c)


@given(RATES, RATES, DIVERGENCES, DIVERGENCES)
def test_inverse_is_monotone_in_both_arguments(q: float, r: float, c: float, d: float) -> None:
    assert binary_kl_inverse(min(q, r), min(c, d)) <= binary_kl_inverse(max(q, r), max(c, d))


@pytest.mark.parametrize(("q", "c", "p"), [(0.0, 0.0, 0.0), (1.0, 3.0, 1.0), (0.3, 0.0, 0.3), (0.2, inf, 1.0)])
def test_inverse_is_exact_at_the_ends(q: float, c: float, p: float) -> None:
    assert binary_kl_inverse(q, c) == p


@given(st.floats(1e-6, 20))
def test_inverse_without_observed_error_is_one_minus_exponential(c: float) -> None:
    assert isclose(binary_kl_inverse(0.0, c), -np.expm1(-c), rel_tol=1e-15)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_divergence_of_coins_agrees_with_decimals(q: float, p: float) -> None:
    assert isclose(binary_kl(q, p), float(exact_kl(q, p)), rel_tol=1e-9, abs_tol=1e-15)


@given(st.floats(0, 1), st.floats(0, 1))
def test_pinskers_gap_is_never_below_the_difference(q: float, p: float) -> None:
    assert abs(p - q) <= sqrt(binary_kl(q, p) / 2) * (1 + 1e-12) + 1e-7


@given(st.floats(0.001, 0.9), st.floats(0.001, 1.0))
def test_error_per_divergence_keeps_the_bound_where_it_is(q: float, c: float) -> None:
    step = 1e-6 * min(c, q, 1 - q)
    error_less = error_per_divergence(q, c) * step

    moved = binary_kl_inverse(q - error_less, c + step) - binary_kl_inverse(q, c)
    alone = binary_kl_inverse(q, c + step) - binary_kl_inverse(q, c)
    assert abs(moved) <= 1e-3 * alone + 1e-15


@given(st.floats(1e-9, 1 - 1e-9), st.floats(1e-15, 100))
@example(1 - 1e-9, 30.0)  # p is 1 to rounding
def test_error_per_divergence_is_never_above_the_slope_of_pinskers_gap(q: float, c: float) -> None:
    assert 0 < error_per_divergence(q, c) <= 1 / (4 * sqrt(c / 2)) * (1 + 1e-15)


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_error_per_divergence_is_one_over_the_difference_of_log_odds(q: float, p: float) -> None:
    q, p = min(q, p), max(q, p) + 1e-3
    difference = log(p / (1 - p)) - log(q / (1 - q))
    assert isclose(error_per_divergence(q, binary_kl(q, p)), 1 / difference, rel_tol=1e-7)


def test_error_per_divergence_of_fair_coins_is_the_slope_of_pinskers_gap_as_the_divergence_vanishes() -> None:
    assert isclose(error_per_divergence(0.5, 1e-6), 1 / (4 * sqrt(0.5e-6)), rel_tol=1e-6)


@pytest.mark.parametrize(("q", "c"), [(0.0, 0.1), (1.0, 0.1), (0.2, 0.0), (0.2, inf)])
def test_error_per_divergence_refuses_where_it_has_no_value(q: float, c: float) -> None:
    with pytest.raises(InvalidInput, match="must"):
        error_per_divergence(q, c)


def test_gaussian_divergence_is_that_of_the_posterior_from_the_prior() -> None:
    mean, variance, prior_variance = 0.7, 0.3, 2.0
    posterior, prior = norm(mean, sqrt(variance)), norm(0, sqrt(prior_variance))
    integral, _ = quad(lambda x: posterior.pdf(x) * (posterior.logpdf(x) - prior.logpdf(x)), -8, 8)
    reverse, _ = quad(lambda x: prior.pdf(x) * (prior.logpdf(x) - posterior.logpdf(x)), -12, 12)

    assert isclose(gaussian_kl(mean**2, [variance], prior_variance), integral, rel_tol=1e-10)
    assert abs(reverse - integral) > 0.1


def test_gaussian_divergence_adds_over_coordinates() -> None:
    variances = np.array([0.1, 0.5, 3.0])

    whole = gaussian_kl(2.0, variances, 0.5)

    assert isclose(whole, gaussian_kl(2.0, variances[:1], 0.5) + gaussian_kl(0.0, variances[1:], 0.5))


def test_gaussian_divergence_of_nearly_equal_laws_keeps_its_digits() -> None:
    variances = np.full(1000, 1.0 + 1e-7)

    assert isclose(gaussian_kl(0.0, variances, 1.0), 0.25 * 1000 * 1e-14, rel_tol=1e-2)


@given(
    st.floats(0, 1e3),
    st.lists(st.one_of(st.floats(1e-12, 1e3), st.floats(0.99, 1.01)), min_size=1, max_size=30),
    st.floats(1e-6, 10),
)
@example(5e-324, [1.0], 1.0)
@example(5e-324, [10.0], 10.0)
@example(1.5e-323, [1.0], 1.0)
def test_gaussian_divergence_is_never_rounded_down(distance: float, variances: list[float], prior: float) -> None:
    with localcontext() as context:
        context.prec = 60
        ratios = [Decimal(variance) / Decimal(prior) for variance in variances]
        exact = (sum(ratio - 1 - ratio.ln() for ratio in ratios) + Decimal(distance) / Decimal(prior)) / 2

    found = Decimal(gaussian_kl(distance, variances, prior))

    assert exact <= found
    assert found - exact <= Decimal("1e-13") * (exact + sum(1 + ratio + abs(ratio.ln()) for ratio in ratios))


def test_shares_of_the_grid_sum_to_delta() -> None:
    delta, count = 0.025, 200_000
    shares = 6 * delta / (pi**2 * np.arange(1.0, count + 1) ** 2)

    assert isclose(shares.sum(), delta, rel_tol=1e-5)
    for index in (1, 36, 1000):
        direct = (5.0 + log(1000 / shares[index - 1])) / 999
        assert isclose(complexity(5.0, 1000, index, delta), direct, rel_tol=1e-12)


@given(st.floats(1e-9, 1.0))
def test_points_near_a_variance_enclose_it(variance: float) -> None:
    grid = PriorGrid()

    indices = grid.indices_near(variance)

    assert indices[0] >= 1
    if variance <= grid.variance(1):
        assert grid.variance(indices[0]) >= variance * (1 - 1e-10) >= grid.variance(indices[-1]) * (1 - 1e-9)
    else:
        assert indices == (1,)


@pytest.mark.parametrize(("true_rate", "num_draws"), [(0.02, 300), (0.4, 50), (0.0, 10)])
def test_sampled_error_bound_fails_at_most_as_often_as_it_says(true_rate: float, num_draws: int) -> None:
    delta = 0.1
    counts = np.arange(num_draws + 1)
    fails = np.array([sampled_error_bound(int(count), num_draws, delta) < true_rate for count in counts])

    assert binom.pmf(counts, num_draws, true_rate)[fails].sum() <= delta


@given(st.integers(2, 10**7), st.floats(0, 1e6), st.integers(1, 10**4), st.floats(1e-9, 1 - 1e-9))
def test_bound_is_finite_everywhere(num_samples: int, kl: float, index: int, delta: float) -> None:
    bound = binary_kl_inverse(0.0, complexity(kl, num_samples, index, delta))

    assert 0 < bound <= 1


# Wu et al. 2022, Table 10: KL, error of the stochastic network, log standard deviation of the prior, and the bound.
TABLE_10 = [
    (4612.6, 0.03373, -1.3313, 0.1540),
    (3980.6, 0.03417, -1.6063, 0.1432),
    (3766.1, 0.02347, -1.2913, 0.1198),
    (3929.9, 0.02494, -1.3213, 0.1255),
    (6966.6, 0.03262, -1.4163, 0.1921),
    (5086.5, 0.02473, -1.7963, 0.1456),
    (5021.1, 0.02316, -1.4763, 0.1413),
    (3873.2, 0.02514, -1.4763, 0.1249),
    (1144.8, 0.5070, -1.8263, 0.6046),
    (390.25, 0.5066, -2.4713, 0.5653),
    (9095.8, 0.04159, -1.6013, 0.2424),
]


@pytest.mark.parametrize(("kl", "error", "log_deviation", "published"), TABLE_10)
def test_published_bounds_follow_from_their_divergence_and_error(
    kl: float, error: float, log_deviation: float, published: float
) -> None:
    index = round(100 * (log(0.1) - 2 * log_deviation))

    assert isclose(binary_kl_inverse(error, complexity(kl, 60_000, index, 0.025)), published, abs_tol=1.1e-4)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: binary_kl(1.5, 0.5), r"observed must be in \[0, 1\]; got 1.5"),
        (lambda: binary_kl_inverse(0.5, -1.0), "divergence must not be negative"),
        (lambda: binary_kl_inverse(float("nan"), 1.0), r"observed must be in \[0, 1\]; got nan"),
        (lambda: gaussian_kl(1.0, [0.0], 1.0), "variances must be positive; the smallest is 0.0"),
        (lambda: gaussian_kl(1.0, [1.0], 0.0), "prior_variance must be positive"),
        (lambda: complexity(1.0, 1, 1, 0.1), "needs at least two samples; got 1"),
        (lambda: complexity(1.0, 10, 0, 0.1), "the index of a grid point must be at least 1; got 0"),
        (lambda: complexity(1.0, 10, 1, 1.0), "delta must be strictly between 0 and 1"),
        (lambda: complexity(float("nan"), 10, 1, 0.5), "kl must be finite"),
        (lambda: sampled_error_bound(5, 4, 0.1), "num_errors must be between 0 and the number of answers"),
        (lambda: PriorGrid(scale=0.0), "scale of a grid must be positive and finite; got 0.0"),
        (lambda: PriorGrid(scale="x"), "scale of a grid must be positive and finite; got 'x'"),
        (lambda: PriorGrid(precision=2.5), "precision of a grid must be a whole number from 1; got 2.5"),
        (lambda: sampled_error_bound(0, 4, 0.1, 0), "samples_per_draw must be at least 1; got 0"),
        (lambda: confidence_of(0.3, 0.2), "leave a confidence above one half; together they are 0.5"),
        (lambda: confidence_of(0.1, -0.1), "delta must be strictly between 0 and 1; got -0.1"),
        (lambda: PriorGrid().variance(0), "the index of a grid point must be at least 1; got 0"),
    ],
)
def test_bad_numbers_are_refused_in_a_sentence(call, words) -> None:
    with pytest.raises(InvalidInput, match=words):
        call()


def test_one_draw_without_error_leaves_half_of_delta() -> None:
    assert isclose(sampled_error_bound(0, 1, 0.2), 1 - exp(-log(10.0)))


mpmath.mp.dps = 60


def kl_in_many_digits(q: mpmath.mpf, p: mpmath.mpf) -> mpmath.mpf:
    if p == 1 != q:  # to 60 digits
        return mpmath.inf
    heads = q * mpmath.log(q / p) if q else mpmath.mpf(0)
    return heads + ((1 - q) * mpmath.log((1 - q) / (1 - p)) if q != 1 else 0)


def inverse_in_many_digits(q: mpmath.mpf, c: mpmath.mpf) -> mpmath.mpf:
    """By bisection, with no word of how it is done here."""
    low, high = q, mpmath.mpf(1)
    for _ in range(190):
        middle = (low + high) / 2
        low, high = (middle, high) if kl_in_many_digits(q, middle) < c else (low, middle)
    return (low + high) / 2


def assert_rounded_up(found: float, exact: mpmath.mpf, slack: float = 1e-13) -> None:
    assert exact <= found <= exact * (1 + slack) + slack * 1e-3


@given(st.floats(0, 1e6), st.integers(2, 10**9), st.integers(1, 10**6), st.floats(1e-12, 0.49))
def test_complexity_is_never_rounded_down(kl: float, num_samples: int, index: int, delta: float) -> None:
    terms = mpmath.mpf(kl) + 2 * mpmath.log(index) + mpmath.log(mpmath.pi**2 * num_samples / (6 * mpmath.mpf(delta)))

    assert_rounded_up(complexity(kl, num_samples, index, delta), terms / (num_samples - 1))


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(1e-9, 0.49), st.integers(1, 100))
@example(123, 0.9999999999999999, 0.25, 100)  # 1e-94 from 1
def test_bounds_on_the_sampled_error_are_rounded_apart(count: int, share: float, delta: float, each: int) -> None:
    num_errors = int(share * count * each)
    rate, divergence = mpmath.mpf(num_errors) / (count * each), mpmath.log(2 / mpmath.mpf(delta)) / count

    above = sampled_error_bound(num_errors, count, delta, each)
    under = sampled_error_lower_bound(num_errors, count, delta, each)

    assert_rounded_up(above, inverse_in_many_digits(rate, divergence))
    exact = 1 - inverse_in_many_digits(1 - rate, divergence)
    assert exact - 1e-13 <= under <= exact


@given(st.floats(1e-12, 0.3), st.floats(1e-12, 0.19))
def test_confidence_is_never_rounded_up(delta: float, other: float) -> None:
    found = confidence_of(delta, other)

    exact = 1 - mpmath.mpf(delta) - mpmath.mpf(other)
    assert exact * (1 - mpmath.mpf(2) ** -51) <= found <= exact


@given(
    st.floats(0, 1e3),
    st.lists(st.one_of(st.floats(1e-12, 1e3), st.floats(0.99, 1.01)), min_size=1, max_size=30),
    st.integers(1, 2000),
    st.floats(0, 0.6),
)
def test_whole_bound_is_never_rounded_down(distance: float, variances: list[float], index: int, error: float) -> None:
    """From the variances to the bound, every step in its own rounding, against one computation in sixty digits."""
    prior = mpmath.mpf(PriorGrid().variance(index))
    ratios = [mpmath.mpf(variance) / prior for variance in variances]
    kl = (sum(ratio - 1 - mpmath.log(ratio) for ratio in ratios) + mpmath.mpf(distance) / prior) / 2
    terms = kl + 2 * mpmath.log(index) + mpmath.log(mpmath.pi**2 * 5000 / (6 * mpmath.mpf(0.025)))
    exact = inverse_in_many_digits(mpmath.mpf(error), terms / 4999)

    found_kl = gaussian_kl(distance, variances, PriorGrid().variance(index))
    found = binary_kl_inverse(error, complexity(found_kl, 5000, index, 0.025))

    assert exact <= found
    assert found <= exact + mpmath.mpf("1e-9")


@pytest.mark.parametrize(("true_rate", "each"), [(0.1, 5), (0.4, 20)])
def test_bound_from_shares_fails_at_most_as_often_as_it_says(true_rate: float, each: int) -> None:
    # Draws whose samples are all right or all wrong are the worst that shares can be: coins, counted `each` times.
    delta, num_draws = 0.1, 60
    counts = np.arange(num_draws + 1)
    fails = np.array([sampled_error_bound(int(n) * each, num_draws, delta, each) < true_rate for n in counts])
    misses = np.array([sampled_error_lower_bound(int(n) * each, num_draws, delta, each) > true_rate for n in counts])

    for failed in (fails, misses):
        assert binom.pmf(counts, num_draws, true_rate)[failed].sum() <= delta
