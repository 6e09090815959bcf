"""Divergences of coins and of Gaussians, and the inverse that turns one into a bound, never rounded down.

Prior variances among which one is chosen after the samples, by a union bound.

From divergences and counts of errors to what holds with a stated probability.

The inequalities behind a generalisation certificate: numbers in, numbers out, rounded so that a bound stays one.

Setting: N independent samples; a prior P chosen before them, a posterior Q chosen after; e(Q) the error of a network
drawn from Q, averaged over draws; e_S(Q) the same on the samples. For P = N(w_0, lambda I), fixed lambda, with
probability at least 1 - delta over the samples, for all Q at once (Langford & Seeger 2001; Dziugaite & Roy 2017):

    kl(e_S(Q) || e(Q)) <= (KL(Q || P) + log(N / delta)) / (N - 1)

The prior variance lambda may be chosen after the samples from a grid that was fixed before (``PriorGrid``), by a union
bound. e_S(Q) is itself estimated from draws and bounded by Chernoff's inequality, at another delta'.

Wu et al. 2022, appendix H, prints the divergence of the prior from the posterior (Eq 277) and allows the grid's point
j = 0, for which the union bound has no weight; both are corrected here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import exp, inf, isfinite, log, log1p, nextafter, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import InvalidInput, checked_number, require, sentence

__all__ = [
    "PriorGrid",
    "binary_kl",
    "binary_kl_inverse",
    "complexity",
    "confidence_of",
    "error_per_divergence",
    "gaussian_kl",
    "sampled_error_bound",
    "sampled_error_lower_bound",
]


EPS = 2.0**-52
BITS = 200  # of the balls in which an inverse is certified: 40 decimal digits to spare
_ROUNDING = 64 * EPS  # of a sum of billions of terms, added in pairs, each with a handful of operations


def binary_kl(observed: float, true: float) -> float:
    """kl(q || p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)), the divergence of two coins, infinite if impossible.

    >>> binary_kl(0.25, 0.25), binary_kl(0.0, 0.5) == log(2), binary_kl(0.5, 1.0)
    (0.0, True, inf)
    """
    q, p = probability("observed", observed), probability("true", true)
    if q == p:
        return 0.0
    if p in (0.0, 1.0):
        return inf
    heads = q * log(q / p) if q > 0 else 0.0
    tails = (1 - q) * (log1p(-q) - log1p(-p)) if q < 1 else 0.0
    return max(0.0, heads + tails)


def binary_kl_inverse(observed: float, divergence: float) -> float:
    """max {p >= q : kl(q || p) <= c}: the largest true rate that a divergence of c allows, never rounded down.

    Bisection over the floats, each decided in ball arithmetic: the one returned is the first that certainly has
    kl(q || p) >= c, so the exact value lies at most two floats below. c = 0 gives q, q = 1 gives 1.

    By hand: kl(0 || p) = -log(1 - p), so no error seen and c = log 2 leave a rate of one half.

    >>> binary_kl_inverse(0.0, log(2)), binary_kl_inverse(0.3, 0.0), binary_kl_inverse(0.0, inf)
    (0.5, 0.3, 1.0)
    """
    q = probability("observed", observed)
    require(divergence >= 0, "divergence must not be negative", f"got {divergence}")
    if q == 1 or divergence == 0:
        return q
    low, high = q, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if _certainly_reaches(q, middle, divergence) else (middle, high)
    return high


def error_per_divergence(observed: float, divergence: float) -> float:
    """How much observed error a unit of divergence replaces, at the same bound p = ``binary_kl_inverse``.

    Where kl(q || p) = c with p fixed, -dq / dc = 1 / (logit p - logit q). Never more than the slope of Pinsker's gap,
    1 / (4 sqrt(c / 2)), because p - q <= (logit p - logit q) / 4; the two meet at q = 1/2 as c goes to 0. In floats: it
    steers a fit and is no part of a bound.

    By hand: kl(1/4 || 3/4) = (3/4 - 1/4) log 3, where the log-odds differ by 2 log 3.

    >>> round(error_per_divergence(0.25, log(3) / 2) * 2 * log(3), 12)
    1.0
    """
    q = probability("observed", observed)
    require(0 < q < 1, "observed must lie strictly between 0 and 1", f"got {observed}")
    require(0 < divergence < inf, "divergence must be positive and finite", f"got {divergence}")
    low = sqrt(8 * divergence)  # of the difference of log-odds: kl(q || p) is at most an eighth of its square
    high = low
    while _kl_at_log_odds(q, high) < divergence:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if _kl_at_log_odds(q, middle) >= divergence else (middle, high)
    return 1 / high


def gaussian_kl(displacement_squared: float, variances: ArrayLike, prior_variance: float) -> float:
    """KL(N(w, diag s) || N(w_0, lambda I)) = 1/2 (sum (s / lambda - 1 - log(s / lambda)) + ||w - w_0||^2 / lambda).

    The divergence of the POSTERIOR from the prior; ``displacement_squared`` is ||w - w_0||^2 in any orthonormal basis.
    Rounded up, by more than the terms and their sums can have lost, also where they underflow.

    >>> round(gaussian_kl(3.0, [2.0, 2.0, 2.0], 2.0), 12)
    0.75
    """
    s = np.asarray(variances, dtype=np.float64)
    require(prior_variance > 0, "prior_variance must be positive", f"got {prior_variance}")
    require(bool((s > 0).all()), "variances must be positive", f"the smallest is {s.min(initial=inf)}")
    require(bool((s < inf).all()), "variances must be finite", "some are not")
    require(displacement_squared >= 0, "displacement_squared must not be negative", f"got {displacement_squared}")
    with np.errstate(over="ignore"):
        ratios = s / prior_variance
    if not np.isfinite(ratios).all():
        return inf
    # ratio - 1 - log ratio is not negative; near 1 the subtraction would lose all digits if done on the sums.
    above, logs = ratios - 1, np.log(ratios)
    lost = _ROUNDING * float(np.sum(np.abs(above) + np.abs(logs)))
    distance = displacement_squared / prior_variance * (1 + _ROUNDING)
    half = 0.5 * (max(0.0, float(np.sum(above - logs))) + lost + distance)
    return nextafter(half, inf) if displacement_squared > 0 else half


def probability(name: str, value: float) -> float:
    """The value as a number in [0, 1]; ``name`` is what it is called if it is none."""
    number = float(value)
    if not 0 <= number <= 1:
        raise InvalidInput(sentence(f"{name} must lie in [0, 1]", f"got {value}"))
    return number


def _kl_at_log_odds(q: float, difference: float) -> float:
    """kl(q || p) for logit p = logit q + difference, also where p is 1 to rounding."""
    log_odds = log(q) - log1p(-q) + difference
    rest = log1p(exp(-abs(log_odds)))
    return q * (log(q) + max(-log_odds, 0) + rest) + (1 - q) * (log1p(-q) + max(log_odds, 0) + rest)


def _certainly_reaches(q: float, p: float, divergence: float) -> bool:
    """Whether kl(q || p) >= divergence beyond doubt, decided in balls."""
    from flint import arb, ctx

    if divergence == inf:
        return p == 1
    bits, ctx.prec = ctx.prec, BITS
    try:
        heads = arb(q) * (arb(q) / arb(p)).log() if q > 0 else arb(0)
        tails = (1 - arb(q)) * ((-arb(q)).log1p() - (-arb(p)).log1p())
        return bool(heads + tails >= arb(divergence))
    finally:
        ctx.prec = bits


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


def complexity(kl: float, num_samples: int, grid_index: int, delta: float) -> float:
    """B = (KL + 2 log j + log(pi^2 N / (6 delta))) / (N - 1): what kl(e_S || e) is below with probability 1 - delta.

    Holds for every posterior and every grid point j at once. Wu et al. 2022, Eq 278, with j = b log(c / lambda).

    >>> round(complexity(2814.0, 60_000, 36, 0.025), 5)
    0.04727
    """
    require(isfinite(kl) and kl >= 0, "kl must be finite and not negative", f"got {kl}")
    require(num_samples >= 2, "a PAC-Bayes bound needs at least two samples", f"got {num_samples}")
    require(grid_index >= 1, "a point of the grid has an index of at least 1", f"got {grid_index}")
    check_delta(delta)
    sum_of_terms = kl + 2 * log(grid_index) + log(pi**2 * num_samples / (6 * delta))
    return sum_of_terms / (num_samples - 1) * (1 + 8 * EPS)


def sampled_error_bound(num_errors: int, num_draws: int, delta: float, samples_per_draw: int = 1) -> float:
    """An upper bound on e_S(Q) from independent draws, wrong with probability at most delta.

    A draw is a network from Q with ``samples_per_draw`` samples, chosen uniformly; its share of errors lies in [0, 1]
    and has the mean e_S(Q). Chernoff's inequality (Hoeffding 1963, Theorem 1) counts networks, whatever the samples of
    each: kl(observed || e_S) <= log(2 / delta) / n.

    By hand: no error in one draw leaves 1 - delta / 2.

    >>> round(sampled_error_bound(0, 1, 0.5), 12)
    0.75
    """
    rate = _observed_rate(num_errors, num_draws, delta, samples_per_draw)
    return binary_kl_inverse(rate, log(2 / delta) / num_draws * (1 + 4 * EPS))


def sampled_error_lower_bound(num_errors: int, num_draws: int, delta: float, samples_per_draw: int = 1) -> float:
    """The same from below: an upper bound on the share of right answers, turned round and never rounded up.

    >>> round(sampled_error_lower_bound(1, 1, 0.5), 12)
    0.25
    """
    num_right = num_draws * samples_per_draw - num_errors
    return max(0.0, nextafter(1 - sampled_error_bound(num_right, num_draws, delta, samples_per_draw), -inf))


def confidence_of(*deltas: float) -> float:
    """1 - the sum of the deltas, never rounded up; together they stay below one half.

    >>> confidence_of(0.25, 0.125)
    0.625
    """
    for delta in deltas:
        check_delta(delta)
    rest = 1 - sum(map(Fraction, deltas))
    broken = f"together they are {float(1 - rest):.4g}"
    require(rest > Fraction(1, 2), "the deltas of a certificate must leave a confidence above one half", broken)
    rounded = float(rest)
    return rounded if Fraction(rounded) <= rest else nextafter(rounded, 0.0)


def check_delta(delta: float) -> None:
    """Raise unless it is a probability strictly between 0 and 1."""
    require(0 < checked_number("delta", delta) < 1, "delta must lie strictly between 0 and 1", f"got {delta}")


def _observed_rate(num_errors: int, num_draws: int, delta: float, samples_per_draw: int) -> float:
    """The share of errors, rounded up."""
    require(num_draws >= 1, "num_draws must be at least 1", f"got {num_draws}")
    require(samples_per_draw >= 1, "samples_per_draw must be at least 1", f"got {samples_per_draw}")
    count = num_draws * samples_per_draw
    require(0 <= num_errors <= count, "num_errors must lie between 0 and the number of answers", f"got {num_errors}")
    check_delta(delta)
    rate = num_errors / count
    return nextafter(rate, inf) if Fraction(rate) < Fraction(num_errors, count) else rate
