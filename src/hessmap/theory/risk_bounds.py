"""Sharper forms of the inequalities of ``pac_bayes``, each decided in ball arithmetic and never rounded down.

Held-out samples, a fixed network: the tail of a binomial law (Langford 2005, Theorem 3.3). Draws in [0, 1]: a wager
against their mean (Markov's inequality; Waudby-Smith & Ramdas 2024, with stakes fixed beforehand). All posteriors at
once: Seeger's inequality with Maurer's constant, and a mixture of Catoni's. The smallest of several bounds is one if
their deltas together are the delta that is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import exp, inf, isfinite, log, log1p, nextafter
from typing import TYPE_CHECKING, Literal, NamedTuple

from scipy.special import betaincinv

from hessmap.errors import require
from hessmap.theory.pac_bayes import BITS, EPS, binary_kl_inverse, check_delta, probability

if TYPE_CHECKING:
    from flint import arb as Ball

Inequality = Literal["maurer", "catoni", "binomial", "chernoff"]
# Stakes of the wager, all at most 1, and their shares of the purse: half on the largest, which few errors want.
_STAKES = tuple((2.0**-place, 0.5 if place == 0 else 0.0625) for place in range(9))
_SMALL = 2.0**-120  # of a tail: what is left is bounded instead of summed
_NEAR = 1e-9  # relative: how close a quantile in floats is taken to be
_SLOPES = tuple(0.03 * 1.35**place for place in range(20))  # of Catoni's inequalities: 0.03 to 9


class TightestBound(NamedTuple):
    """The smallest of several bounds, and the inequality that gave it."""

    value: float
    inequality: Inequality


def held_out_bound(num_errors: int, num_samples: int, delta: float) -> float:
    """max {p : P(Binomial(N, p) <= k) >= delta}: the error of a fixed network from k errors in N held-out samples.

    Wrong with probability at most delta over the samples. Langford 2005, Theorem 3.3 (Clopper & Pearson 1934).

    By hand: no error in N samples leaves (1 - p)^N = delta.

    >>> round(held_out_bound(0, 1, 0.25), 12), round(held_out_bound(0, 2, 0.25), 12), held_out_bound(3, 3, 0.1)
    (0.75, 0.5, 1.0)
    """
    require(num_samples >= 1, "num_samples must be at least 1", f"got {num_samples}")
    is_count = 0 <= num_errors <= num_samples
    require(is_count, f"num_errors must lie in 0..{num_samples}", f"got {num_errors}")
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

    Hoeffding 1963, Theorem 1. By hand: a mean of 0 in one draw leaves 1 - delta.

    >>> round(mean_bound(0.0, 1, 0.25), 12)
    0.75
    """
    require(num_draws >= 1, "num_draws must be at least 1", f"got {num_draws}")
    check_delta(delta)
    return binary_kl_inverse(mean, -log(delta) / num_draws * (1 + 4 * EPS))


def wagered_bound(counts: Sequence[int], delta: float) -> float:
    """An upper bound on the mean of independent values j / s, ``counts[j]`` of them seen, j = 0 .. s.

    A gambler who holds that the mean is below m puts the share w_k of a purse of 1 on the stake a_k <= 1, and each
    value x multiplies it by 1 + a_k (m - x). At the true mean the purse has the mean 1, so that it exceeds 1 / delta
    with probability at most delta; it grows with m, and the bound is the first m at which it does. Unlike Chernoff's
    inequality this makes use of values that vary little, and it depends on the counts alone, not on their order.

    By hand: one value 0 of {0, 1} with the stake 1 would leave 1 + m = 1 / delta, above 1; nothing is known.

    >>> wagered_bound([1, 0], 0.25), round(wagered_bound([1000, 0], 0.01), 4)
    (1.0, 0.0053)
    """
    require(len(counts) >= 2, "counts must hold at least two entries", f"got {len(counts)}")
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

    E exp(N kl(mean || p)) <= xi(N) for the mean of N independent values in [0, 1] (Maurer 2004, Theorem 1, which goes
    on to xi(N) <= 2 sqrt(N)).

    By hand: xi(1) = 2, xi(2) = 1 + 1/2 + 1.

    >>> from math import exp
    >>> round(exp(log_maurer_constant(1)), 12), round(exp(log_maurer_constant(2)), 12)
    (2.0, 2.5)
    """
    require(num_samples >= 1, "num_samples must be at least 1", f"got {num_samples}")
    return _log_maurer_constant(int(num_samples))


def catoni_mixture_inverse(observed: float, allowance: float, num_samples: int) -> float:
    """max {p : log mean_k exp(N D_k(q, p)) <= a}, D_k(q, p) = -log(1 - p (1 - exp(-C_k))) - C_k q, never rounded down.

    E exp(N D_k) <= 1 for every slope C_k (Catoni 2007, Theorem 1.2.1), hence for the mean over slopes that were fixed
    beforehand; the logarithm of that mean is convex in (q, p) together, so that Jensen's inequality makes it a
    PAC-Bayes bound: a = KL + log(1 / delta), with no constant that grows with N. It grows with p and falls with q.

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

    For every posterior at once, and for the prior whose share among those fixed beforehand is exp(-log_cost). Seeger's
    inequality with Maurer's constant; the other half of delta is that of Catoni's (``tightest_bound``).

    >>> round(maurer_complexity(0.0, 1, 0.0, 0.5) - log(8), 12)
    0.0
    """
    return (_allowance(kl, log_cost, delta) + log_maurer_constant(num_samples)) / num_samples * (1 + 8 * EPS)


def tightest_bound(observed: float, kl: float, num_samples: int, log_cost: float, delta: float) -> TightestBound:
    """The smaller of two bounds on the error of every posterior at once, with half of delta each.

    kl(q || p) <= (KL + log_cost + log(2 xi(N) / delta)) / N, and the mixture of Catoni's with KL + log_cost + log(2 /
    delta). ``log_cost`` is -log of the share that the prior has among those fixed beforehand. The first is sharper for
    large divergences, the second for small ones.

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
