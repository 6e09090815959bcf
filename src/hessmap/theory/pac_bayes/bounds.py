"""From divergences and counts of errors to what holds with a stated probability."""

from __future__ import annotations

from fractions import Fraction
from math import inf, isfinite, log, nextafter, pi

from hessmap.errors import checked_number, require
from hessmap.theory.pac_bayes.divergences import EPS, binary_kl_inverse


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
