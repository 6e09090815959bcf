"""Which eigenpairs are asked for, when one counts as found, and whether one beyond them may have been missed.

Let u be a unit eigenvector, of value z, of an operator on m dimensions, and q a random unit vector. The orthonormal
polynomials p_0, .., p_j of q, whose coefficients are those of j steps of Lanczos, have u . p_i(A) q = p_i(z) (u . q),
and the vectors p_i(A) q are orthonormal, so that

    (u . q)^2 (p_0(z)^2 + .. + p_j(z)^2) <= 1.

Outside of all Ritz values the sum grows: its value at a point is a lower bound for every z beyond. So either no
eigenvalue is beyond the point, or |u . q| is below a number that the coefficients give, and for a random q that is as
improbable as the number is small (van Dorsselaer, Hochstenbach & van der Vorst 2000, "Computing probabilistic bounds
for extreme eigenvalues of symmetric matrices with the Lanczos method").
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, lgamma, pi
from typing import Literal, get_args

import torch
from torch import Tensor

End = Literal["largest", "smallest", "both_ends", "magnitude"]
Reference = Literal["norm", "eigenvalue"]
Points = tuple[float | None, float | None]  # below and above which no further eigenvalue may lie; None: it may
ENDS: tuple[End, ...] = get_args(End)
_ROUNDING = 1e-14  # of the norm: no product is better
_LEAST_SLACK = 1e-12  # of the norm: values closer to each other are copies


MISSED = 1e-3  # the probability of a missed eigenvalue, at most
_OVERFLOW = 1e200


@dataclass(frozen=True)
class Selection:
    """Which eigenpairs are asked for, and when one of them counts as found.

    ``floor`` is the smallest residual, of the norm, that products in float32 can be asked for; None in float64.
    """

    which: End
    count: int
    tolerance: float
    relative_to: Reference
    floor: float | None = None

    def total(self, size: int) -> int:
        return min(size, 2 * self.count if self.which == "both_ends" else self.count)

    def wanted_places(self, values: Tensor, extra: int = 0) -> Tensor:
        """Places of the wanted Ritz values (ascending order given), the best ones last."""
        last = len(values)
        if self.which == "largest":
            return torch.arange(max(0, last - self.count - extra), last)
        if self.which == "smallest":
            return torch.arange(min(last, self.count + extra)).flip(0)
        if self.which == "magnitude":
            return values.abs().argsort(stable=True)[max(0, last - self.count - extra) :]
        low = min(last // 2, self.count + extra // 2)
        high = max(low, last - self.count - extra // 2)
        return torch.cat([torch.arange(low), torch.arange(high, last)])

    def are_converged(self, values: Tensor, residuals: Tensor, norm: float) -> bool:
        """Whether the residuals of all these values are small enough."""
        allowed = torch.clamp(self._allowed_residuals(values, norm), min=(self.floor or _ROUNDING) * norm)
        return bool((residuals <= allowed).all())

    def are_out_of_reach(self, values: Tensor, norm: float) -> bool:
        """Whether one of them asks for more than products in float32 can give."""
        return self.floor is not None and bool((self._allowed_residuals(values, norm) < self.floor * norm).any())

    def _allowed_residuals(self, values: Tensor, norm: float) -> Tensor:
        reference = values.abs() if self.relative_to == "eigenvalue" else torch.full_like(values, norm)
        return self.tolerance * reference

    def margin(self, known: Tensor, norm: float) -> float:
        """How far an eigenvalue may lie beyond the last wanted one without counting as missed."""
        return max(float(self._allowed_residuals(known, norm).min()), _LEAST_SLACK * norm)

    def bounds(self, known: Tensor, slack: float) -> Points:
        """Below and above which numbers no eigenvalue may lie that is not among the known ones; None: there is none."""
        if self.which == "largest":
            return None, float(known.min()) + slack
        if self.which == "smallest":
            return float(known.max()) - slack, None
        if self.which == "magnitude":
            least = float(known.abs().min()) + slack
            return -least, least
        ends = known.sort().values
        return float(ends[self.count - 1]) - slack, float(ends[-self.count]) + slack

    def have_changed(self, known: Tensor, values: Tensor, slack: float) -> bool:
        """Whether the wanted ones among these values are others than those that were known."""
        found = values[self.wanted_places(values)]
        return float((self._in_order(found) - self._in_order(known)).abs().max()) > slack

    def _in_order(self, values: Tensor) -> Tensor:
        return (values.abs() if self.which == "magnitude" else values).sort().values


def missed_probability(num_probes: int) -> float:
    """The probability that a probe may overlook an eigenvalue: those of all probes in a row add up to ``MISSED``.

    >>> round(sum(missed_probability(place) for place in range(1, 1000)) / MISSED, 3)
    1.0
    """
    return 0.9 * MISSED if num_probes == 1 else 0.1 * MISSED / (num_probes * (num_probes - 1))


def least_overlap(num_dimensions: int, probability: float) -> float:
    """What a coordinate of a random unit vector stays below, in magnitude, with at most this probability.

    >>> round(least_overlap(3, 0.5), 12)  # uniform between -1 and 1
    0.5
    """
    half = num_dimensions / 2
    return float(probability * pi**0.5 / 2 * exp(lgamma(half - 0.5) - lgamma(half)))


def overlap_bound(diagonal: Tensor, beside: Tensor, point: float) -> float:
    """What |u . q| cannot exceed for an eigenvalue at the point or beyond; 0 where the space of q has ended.

    The coefficients a and b of Lanczos, the last b that of the next vector; the point is outside of the Ritz values.
    """
    before, now, total, coupling = 0.0, 1.0, 1.0, 0.0
    for a, b in zip(diagonal.tolist(), beside.tolist(), strict=True):
        if not b or total > _OVERFLOW:
            return 0.0
        before, now, coupling = now, ((point - a) * now - coupling * before) / b, b
        total += now * now
    return float(total**-0.5)
