"""Divergences of coins and of Gaussians, and the inverse that turns one into a bound, never rounded down."""

from __future__ import annotations

from math import exp, inf, log, log1p, nextafter, sqrt

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import InvalidInput, require, sentence

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
