"""The inequalities behind a generalisation certificate: numbers in, numbers out, rounded so that a bound stays one.

Setting: N independent samples; a prior P chosen before them, a posterior Q chosen after; e(Q) the error of a network
drawn from Q, averaged over draws; e_S(Q) the same on the samples. For P = N(w_0, lambda I), fixed lambda, with
probability at least 1 - delta over the samples, for all Q at once (Langford & Seeger 2001; Dziugaite & Roy 2017):

    kl(e_S(Q) || e(Q)) <= (KL(Q || P) + log(N / delta)) / (N - 1)

The prior variance lambda may be chosen after the samples from a grid that was fixed before (``PriorGrid``), by a union
bound. e_S(Q) is itself estimated from draws and bounded by Chernoff's inequality, at another delta'.

Wu et al. 2022, appendix H, prints the divergence of the prior from the posterior (Eq 277) and allows the grid's point
j = 0, for which the union bound has no weight; both are corrected here.

Sharper forms, each evaluated in ball arithmetic and never rounded down.

Held-out samples, a fixed network: the tail of a binomial law (Langford 2005, Theorem 3.3). Draws in [0, 1]: a wager
against their mean (Markov's inequality; Waudby-Smith & Ramdas 2024, with stakes fixed beforehand). All posteriors at
once: Seeger's inequality with Maurer's constant, and a mixture of Catoni's. The smallest of several bounds is one if
their deltas together are the delta that is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import exp, inf, isfinite, log, log1p, nextafter, pi, sqrt
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from hessmap.errors import InvalidInput, checked_number, require, sentence

if TYPE_CHECKING:
    from flint import arb as Ball
__all__ = [
    "PriorGrid",
    "TightestBound",
    "binary_kl",
    "binary_kl_inverse",
    "catoni_mixture_inverse",
    "complexity",
    "confidence_of",
    "error_per_divergence",
    "gaussian_kl",
    "held_out_bound",
    "log_maurer_constant",
    "maurer_complexity",
    "mean_bound",
    "sampled_error_bound",
    "sampled_error_lower_bound",
    "tightest_bound",
    "wagered_bound",
]

EPS = 2.0**-52
BITS = 200  # of the balls in which an inverse is certified: 40 decimal digits to spare
_ROUNDING = 64 * EPS  # of a sum of billions of terms, added in pairs, each with a handful of operations


def binary_kl(observed: float, true: float) -> float:
    """kl(q || p) = q log(q / p) + (1 - q) log((1 - q) / (1 - p)), the divergence of two coins, infinite if impossible.

    Args:
        observed: Observed error rate q.
        true: True error rate p.

    Returns:
        The divergence, at least 0.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
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

    Args:
        observed: Observed error rate q.
        divergence: Divergence c.

    Returns:
        The largest p, rounded up.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Bisection over the floats, each decided in ball arithmetic: the one returned is the first that certainly has
        kl(q || p) >= c, so the exact value lies at most two floats below. c = 0 gives q, q = 1 gives 1.

    Example:
        Kl(0 || p) = -log(1 - p), so no error seen and c = log 2 leave a rate of one half.

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

    Args:
        observed: Observed error rate q.
        divergence: Divergence c.

    Returns:
        -dq / dc at constant p.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Where kl(q || p) = c with p fixed, -dq / dc = 1 / (logit p - logit q). Never more than the slope of Pinsker's
        gap, 1 / (4 sqrt(c / 2)), because p - q <= (logit p - logit q) / 4; the two meet at q = 1/2 as c goes to 0. In
        floats: it steers a fit and is no part of a bound.

    Example:
        Kl(1/4 || 3/4) = (3/4 - 1/4) log 3, where the log-odds differ by 2 log 3.

        >>> round(error_per_divergence(0.25, log(3) / 2) * 2 * log(3), 12)
        1.0
    """
    q = probability("observed", observed)
    require(0 < q < 1, "observed must be strictly between 0 and 1", f"got {observed}")
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

    Args:
        displacement_squared: Squared distance ||w - w_0||^2 of the means.
        variances: Variances of the posterior.
        prior_variance: Variance lambda of the prior.

    Returns:
        The divergence, rounded up.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        The divergence of the POSTERIOR from the prior; ``displacement_squared`` is ||w - w_0||^2 in any orthonormal
        basis. Rounded up, by more than the terms and their sums can have lost, also where they underflow.

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
        raise InvalidInput(sentence(f"{name} must be in [0, 1]", f"got {value}"))
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

    Attributes:
        scale: Factor of the variances: scale exp(-j / precision).
        precision: Number b of grid points per factor e of the variance.
        num_points: Number of points; None for infinitely many.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        Their shares of delta are 6 / (pi^2 j^2), or 1 / num_points each where the points are counted, and sum to at
        most 1; j = 0 has none and is not a point of the grid.

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
        require(index >= 1, "the index of a grid point must be at least 1", f"got {index}")
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

    Args:
        kl: Divergence KL(Q || P) of posterior from prior.
        num_samples: Number of samples N.
        grid_index: Index j >= 1 of the prior variance on its grid.
        delta: Probability of failure.

    Returns:
        B.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        Holds for every posterior and every grid point j at once. Wu et al. 2022, Eq 278, with j = b log(c / lambda).

        >>> round(complexity(2814.0, 60_000, 36, 0.025), 5)
        0.04727
    """
    require(isfinite(kl) and kl >= 0, "kl must be finite and not negative", f"got {kl}")
    require(num_samples >= 2, "a PAC-Bayes bound needs at least two samples", f"got {num_samples}")
    require(grid_index >= 1, "the index of a grid point must be at least 1", f"got {grid_index}")
    check_delta(delta)
    sum_of_terms = kl + 2 * log(grid_index) + log(pi**2 * num_samples / (6 * delta))
    return sum_of_terms / (num_samples - 1) * (1 + 8 * EPS)


def sampled_error_bound(num_errors: int, num_draws: int, delta: float, samples_per_draw: int = 1) -> float:
    """An upper bound on e_S(Q) from independent draws, wrong with probability at most delta.

    Args:
        num_errors: Number k of errors.
        num_draws: Number of independent draws n.
        delta: Probability of failure.
        samples_per_draw: Samples that are evaluated with each drawn network. Defaults to 1.

    Returns:
        The upper bound on e_S(Q).

    Notes:
        A draw is a network from Q with ``samples_per_draw`` samples, chosen uniformly; its share of errors lies in [0,
        1] and has the mean e_S(Q). Chernoff's inequality (Hoeffding 1963, Theorem 1) counts networks, whatever the
        samples of each: kl(observed || e_S) <= log(2 / delta) / n.

    Example:
        No error in one draw leaves 1 - delta / 2.

        >>> round(sampled_error_bound(0, 1, 0.5), 12)
        0.75
    """
    rate = _observed_rate(num_errors, num_draws, delta, samples_per_draw)
    return binary_kl_inverse(rate, log(2 / delta) / num_draws * (1 + 4 * EPS))


def sampled_error_lower_bound(num_errors: int, num_draws: int, delta: float, samples_per_draw: int = 1) -> float:
    """The same from below: an upper bound on the share of right answers, turned round and never rounded up.

    Args:
        num_errors: Number k of errors.
        num_draws: Number of independent draws n.
        delta: Probability of failure.
        samples_per_draw: Samples that are evaluated with each drawn network. Defaults to 1.

    Returns:
        The lower bound on e_S(Q).

    Example:
        >>> round(sampled_error_lower_bound(1, 1, 0.5), 12)
        0.25
    """
    num_right = num_draws * samples_per_draw - num_errors
    return max(0.0, nextafter(1 - sampled_error_bound(num_right, num_draws, delta, samples_per_draw), -inf))


def confidence_of(*deltas: float) -> float:
    """1 - the sum of the deltas, never rounded up; together they stay below one half.

    Args:
        deltas: Probabilities of failure that are added.

    Returns:
        The confidence, rounded down.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
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
    require(0 < checked_number("delta", delta) < 1, "delta must be strictly between 0 and 1", f"got {delta}")


def _observed_rate(num_errors: int, num_draws: int, delta: float, samples_per_draw: int) -> float:
    """The share of errors, rounded up."""
    require(num_draws >= 1, "num_draws must be at least 1", f"got {num_draws}")
    require(samples_per_draw >= 1, "samples_per_draw must be at least 1", f"got {samples_per_draw}")
    count = num_draws * samples_per_draw
    require(0 <= num_errors <= count, "num_errors must be between 0 and the number of answers", f"got {num_errors}")
    check_delta(delta)
    rate = num_errors / count
    return nextafter(rate, inf) if Fraction(rate) < Fraction(num_errors, count) else rate


Inequality = Literal["maurer", "catoni", "binomial", "chernoff"]
# Stakes of the wager, all at most 1, and their shares of the purse: half on the largest, which few errors want.
_STAKES = tuple((2.0**-place, 0.5 if place == 0 else 0.0625) for place in range(9))
_SMALL = 2.0**-120  # of a tail: what is left is bounded instead of summed
_NEAR = 1e-9  # relative: how close a quantile in floats is taken to be
_SLOPES = tuple(0.03 * 1.35**place for place in range(20))  # of Catoni's inequalities: 0.03 to 9


class TightestBound(NamedTuple):
    """The smallest of several bounds, and the inequality that gave it.

    Attributes:
        value: The bound.
        inequality: Name of the inequality that gave it.
    """

    value: float
    inequality: Inequality


def held_out_bound(num_errors: int, num_samples: int, delta: float) -> float:
    """max {p : P(Binomial(N, p) <= k) >= delta}: the error of a fixed network from k errors in N held-out samples.

    Args:
        num_errors: Number k of errors.
        num_samples: Number of samples N.
        delta: Probability of failure.

    Returns:
        The upper bound on the error.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Wrong with probability at most delta over the samples. Langford 2005, Theorem 3.3 (Clopper & Pearson 1934).

    Example:
        No error in N samples leaves (1 - p)^N = delta.

        >>> round(held_out_bound(0, 1, 0.25), 12), round(held_out_bound(0, 2, 0.25), 12), held_out_bound(3, 3, 0.1)
        (0.75, 0.5, 1.0)
    """
    require(num_samples >= 1, "num_samples must be at least 1", f"got {num_samples}")
    is_count = 0 <= num_errors <= num_samples
    require(is_count, f"num_errors must be in 0..{num_samples}", f"got {num_errors}")
    check_delta(delta)
    if num_errors == num_samples:
        return 1.0

    def is_unlikely(p: float) -> bool:
        from flint import arb

        return bool(_lower_tail(num_errors, num_samples, arb(p)) <= arb(delta))

    guess = float(betaincinv(num_errors + 1, num_samples - num_errors, 1 - delta))
    return _first_float(num_errors / num_samples, is_unlikely, guess)


def mean_bound(mean: float, num_draws: int, delta: float) -> float:
    """max {p : n kl(mean || p) <= log(1 / delta)}: Chernoff's inequality, from one side, for n values in [0, 1].

    Args:
        mean: Mean of the draws, in [0, 1].
        num_draws: Number of draws n.
        delta: Probability of failure.

    Returns:
        The upper bound on the expectation.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Example:
        Hoeffding 1963, Theorem 1. By hand: a mean of 0 in one draw leaves 1 - delta.

        >>> round(mean_bound(0.0, 1, 0.25), 12)
        0.75
    """
    require(num_draws >= 1, "num_draws must be at least 1", f"got {num_draws}")
    check_delta(delta)
    return binary_kl_inverse(mean, -log(delta) / num_draws * (1 + 4 * EPS))


def wagered_bound(counts: Sequence[int], delta: float) -> float:
    """An upper bound on the mean of independent values j / s, ``counts[j]`` of them seen, j = 0 .. s.

    Args:
        counts: ``counts[j]`` is the number of values j / s that were observed, j = 0 .. s.
        delta: Probability of failure.

    Returns:
        The upper bound on the expectation.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        A gambler who holds that the mean is below m puts the share w_k of a purse of 1 on the stake a_k <= 1, and each
        value x multiplies it by 1 + a_k (m - x). At the true mean the purse has the mean 1, so that it exceeds 1 /
        delta with probability at most delta; it grows with m, and the bound is the first m at which it does. Unlike
        Chernoff's inequality this makes use of values that vary little, and it depends on the counts alone, not on
        their order.

    Example:
        One value 0 of {0, 1} with the stake 1 would leave 1 + m = 1 / delta, above 1; nothing is known.

        >>> wagered_bound([1, 0], 0.25), round(wagered_bound([1000, 0], 0.01), 4)
        (1.0, 0.0053)
    """
    require(len(counts) >= 2, "counts must contain at least two entries", f"got {len(counts)}")
    require(min(counts) >= 0 < sum(counts), "counts must not be negative, nor all zero", f"got {list(counts)[:8]}")
    check_delta(delta)
    steps, total = len(counts) - 1, sum(counts)
    seen = [(place, count) for place, count in enumerate(counts) if count]

    def is_won(m: float) -> bool:
        from flint import arb

        gaps = [(count, arb(m) - arb(place) / steps) for place, count in seen]
        purse = sum(
            arb(share) * sum((count * (arb(stake) * gap).log1p() for count, gap in gaps), arb(0)).exp()
            for stake, share in _STAKES
        )
        return bool(purse * arb(delta) >= 1)

    def seems_won(m: float) -> bool:
        gaps = [(count, m - place / steps) for place, count in seen]
        logs = (sum(count * log1p(stake * gap) for count, gap in gaps) for stake, _ in _STAKES)
        return sum(share * exp(min(one, 700.0)) for one, (_, share) in zip(logs, _STAKES, strict=True)) * delta >= 1

    mean = sum(place * count for place, count in seen) / (steps * total)
    low = min(mean, nextafter(1.0, 0.0))
    return _first_float(low, is_won, guess=_first_float(low, seems_won)) if mean < 1 else 1.0


def log_maurer_constant(num_samples: int) -> float:
    """log of xi(N) = sum_k C(N, k) (k / N)^k (1 - k / N)^(N - k) = e^N Gamma(N + 1, N) / N^N, never rounded down.

    Args:
        num_samples: Number of samples N.

    Returns:
        log xi(N), rounded up.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        E exp(N kl(mean || p)) <= xi(N) for the mean of N independent values in [0, 1] (Maurer 2004, Theorem 1, which
        goes on to xi(N) <= 2 sqrt(N)).

    Example:
        Xi(1) = 2, xi(2) = 1 + 1/2 + 1.

        >>> from math import exp
        >>> round(exp(log_maurer_constant(1)), 12), round(exp(log_maurer_constant(2)), 12)
        (2.0, 2.5)
    """
    require(num_samples >= 1, "num_samples must be at least 1", f"got {num_samples}")
    return _log_maurer_constant(int(num_samples))


def catoni_mixture_inverse(observed: float, allowance: float, num_samples: int) -> float:
    """max {p : log mean_k exp(N D_k(q, p)) <= a}, D_k(q, p) = -log(1 - p (1 - exp(-C_k))) - C_k q, never rounded down.

    Args:
        observed: Observed error rate q.
        allowance: Right-hand side a = KL + log(1 / delta).
        num_samples: Number of samples N.

    Returns:
        The largest p, rounded up.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        E exp(N D_k) <= 1 for every slope C_k (Catoni 2007, Theorem 1.2.1), hence for the mean over slopes that were
        fixed beforehand; the logarithm of that mean is convex in (q, p) together, so that Jensen's inequality makes it
        a PAC-Bayes bound: a = KL + log(1 / delta), with no constant that grows with N. It grows with p and falls with
        q.

    Example:
        >>> by_maurer = binary_kl_inverse(0.01, (8.0 + log_maurer_constant(30_000)) / 30_000)
        >>> catoni_mixture_inverse(0.01, 8.0, 30_000) < by_maurer
        True
    """
    q = probability("observed", observed)
    require(num_samples >= 1, "num_samples must be at least 1", f"got {num_samples}")
    require(isfinite(allowance) and allowance >= 0, "allowance must be finite and not negative", f"got {allowance}")
    if q == 1:
        return 1.0

    def is_excluded(p: float) -> bool:
        from flint import arb

        total = arb(0)
        for slope in map(arb, _SLOPES):
            total += (num_samples * (-((-arb(p) * (1 - (-slope).exp())).log1p()) - slope * arb(q))).exp()
        return bool(total / len(_SLOPES) >= arb(allowance).exp())

    return _first_float(q, is_excluded)


def maurer_complexity(kl: float, num_samples: int, log_cost: float, delta: float) -> float:
    """B = (KL + log_cost + log(2 xi(N) / delta)) / N: what kl(e_S || e) is below with probability 1 - delta / 2.

    Args:
        kl: Divergence KL(Q || P) of posterior from prior.
        num_samples: Number of samples N.
        log_cost: Minus the logarithm of the share that the prior has among those fixed beforehand.
        delta: Probability of failure.

    Returns:
        B.

    Example:
        For every posterior at once, and for the prior whose share among those fixed beforehand is exp(-log_cost).
        Seeger's inequality with Maurer's constant; the other half of delta is that of Catoni's (``tightest_bound``).

        >>> round(maurer_complexity(0.0, 1, 0.0, 0.5) - log(8), 12)
        0.0
    """
    return (_allowance(kl, log_cost, delta) + log_maurer_constant(num_samples)) / num_samples * (1 + 8 * EPS)


def tightest_bound(observed: float, kl: float, num_samples: int, log_cost: float, delta: float) -> TightestBound:
    """The smaller of two bounds on the error of every posterior at once, with half of delta each.

    Args:
        observed: Observed error rate q.
        kl: Divergence KL(Q || P) of posterior from prior.
        num_samples: Number of samples N.
        log_cost: Minus the logarithm of the share that the prior has among those fixed beforehand.
        delta: Probability of failure.

    Returns:
        The smaller bound and its inequality.

    Notes:
        kl(q || p) <= (KL + log_cost + log(2 xi(N) / delta)) / N, and the mixture of Catoni's with KL + log_cost + log(2
        / delta). ``log_cost`` is -log of the share that the prior has among those fixed beforehand. The first is
        sharper for large divergences, the second for small ones.

    Example:
        >>> [tightest_bound(0.02, kl, 30_000, 0.0, 0.025).inequality for kl in (1.0, 3000.0)]
        ['catoni', 'maurer']
    """
    by_maurer = binary_kl_inverse(observed, maurer_complexity(kl, num_samples, log_cost, delta))
    by_catoni = catoni_mixture_inverse(observed, _allowance(kl, log_cost, delta), num_samples)
    return min(TightestBound(by_catoni, "catoni"), TightestBound(by_maurer, "maurer"))


def _allowance(kl: float, log_cost: float, delta: float) -> float:
    """KL + log_cost + log(2 / delta), rounded up."""
    check_delta(delta)
    for name, value in (("kl", kl), ("log_cost", log_cost)):
        require(isfinite(value) and value >= 0, f"{name} must be finite and not negative", f"got {value}")
    return (kl + log_cost + log(2 / delta)) * (1 + 8 * EPS)


def _lower_tail(num_errors: int, num_samples: int, p: Ball) -> Ball:
    """P(Binomial(N, p) <= k), or a little more: terms from k downwards, and a geometric series above the small ones."""
    from flint import arb

    first, rest = arb(num_errors + 1), arb(num_samples - num_errors + 1)
    choices = arb(num_samples + 1).lgamma() - first.lgamma() - rest.lgamma()
    term = (choices + num_errors * p.log() + (num_samples - num_errors) * (-p).log1p()).exp()
    total, odds = term, (1 - p) / p
    for place in range(num_errors, 0, -1):
        ratio = odds * place / (num_samples - place + 1)
        term *= ratio
        total += term
        if bool(ratio < 1) and bool(term < total * _SMALL):
            return total + term * ratio / (1 - ratio)
    return total


@lru_cache(maxsize=256)
def _log_maurer_constant(num_samples: int) -> float:
    from flint import arb, ctx

    bits, ctx.prec = ctx.prec, BITS
    try:
        count = arb(num_samples)
        ball = count + count.gamma_upper(count + 1).log() - count * count.log()
        return nextafter(float(ball.upper()), inf)
    finally:
        ctx.prec = bits


def _first_float(low: float, is_certain: Callable[[float], bool], guess: float | None = None) -> float:
    """The first float above ``low``, by bisection, for which a property that grows is certain; 1 where none has it.

    A ``guess`` only makes it quicker: it is used where the property is seen to change close by.
    """
    from flint import ctx

    bits, ctx.prec = ctx.prec, BITS
    try:
        high = 1.0
        if guess is not None:
            near = (guess * (1 - _NEAR), min(1.0, guess * (1 + _NEAR)))
            if low < near[0] and not is_certain(near[0]) and is_certain(near[1]):
                low, high = near
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if is_certain(middle) else (middle, high)
        return high
    finally:
        ctx.prec = bits
