"""Lanczos vectors of several starts, kept orthogonal to half of all digits, which is all that their rules need.

As long as vectors q are orthogonal to sqrt(eps), the coefficients of the recurrence are right to eps (Simon 1984, "The
Lanczos algorithm with partial reorthogonalization"). How far they are from it follows from the coefficients,

    b_j w[j+1, k] = b_k w[j, k+1] + (a_k - a_j) w[j, k] + b_(k-1) w[j, k-1] - b_(j-1) w[j-1, k] + rounding

with w[j, k] = q_j . q_k, so a vector is cleared of all earlier ones only where that says so, and the next one with it.
Products whose own rounding is larger, as in float32, show in an inner product with a random mixture of earlier vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps
_ROUNDING = 10 * _EPS  # of the norm, in a step of the recurrence
_SEMI = _EPS**0.5
_SEEN = 1e-9  # in an inner product with the mixture
_MIXED = 8  # vectors that join the mixture at a time; the first ones are cleared
_SETTLED = 1e-8  # a pass that takes less, of the vector's length, leaves nothing above rounding


class SemiOrthogonalBasis:
    """The vectors of every start, shape (starts, steps, size); ``num_cleared`` counts those that were cleared."""

    def __init__(self, count: int, steps: int, size: int) -> None:
        self.vectors = torch.empty(count, steps, size, dtype=torch.float64)
        self.num_cleared = 0
        self._dimension = 0
        self._mixture = torch.zeros(count, 1, size, dtype=torch.float64)
        self._generator = torch.Generator().manual_seed(0)
        self._now = torch.zeros(count, steps + 1, dtype=torch.float64)  # w[j, :], estimated
        self._before = torch.zeros_like(self._now)  # w[j-1, :]
        self._now[:, 0] = 1.0
        self._again = torch.zeros(count, dtype=torch.bool)

    def cleared(self, current: Tensor, rest: Tensor, diagonal: Tensor, beside: Tensor) -> Tensor:
        """Hold the current vector of every start (a row), take it and earlier ones out of what the recurrence left, in
        place, where they are about to show, and return the lengths of what is left then.

        ``diagonal`` is known up to the current vectors, ``beside`` up to the ones before.
        """
        self._take(current)
        norm: Tensor = rest.norm(dim=1)
        reference = torch.stack([diagonal.abs().amax(1), beside.abs().amax(1), norm]).amax(0)
        length = torch.where(norm > 0, norm, 1.0)
        estimate = self._estimated(diagonal, beside, length, reference)
        seen = dots(self._mixture[:, 0], rest).abs() / length
        is_due = (estimate > _SEMI) | (seen > _SEEN)
        chosen = (is_due | self._again | (self._dimension < _MIXED)) & (norm > 0)
        self._again = is_due & ~self._again
        for place in chosen.nonzero()[:, 0].tolist():
            norm[place] = _clear(rest[place], self.vectors[place, : self._dimension])
        self._now[chosen, : self._dimension] = _ROUNDING
        self.num_cleared += int(chosen.sum())
        return norm

    def _take(self, current: Tensor) -> None:
        self.vectors[:, self._dimension] = current
        self._dimension += 1
        if self._dimension % _MIXED == 0:
            weights = torch.randn(len(current), 1, _MIXED, generator=self._generator, dtype=torch.float64)
            self._mixture.baddbmm_(weights, self.vectors[:, self._dimension - _MIXED : self._dimension])

    def _estimated(self, diagonal: Tensor, beside: Tensor, length: Tensor, reference: Tensor) -> Tensor:
        """The largest |w[j+1, k]| of every start, one step of the recurrence for w."""
        j = self._dimension - 1
        now, before, new = self._now, self._before, torch.zeros_like(self._now)
        rounding = (_ROUNDING * reference / length)[:, None]
        if j:
            later = beside[:, :j] * now[:, 1 : j + 1] + (diagonal[:, :j] - diagonal[:, j : j + 1]) * now[:, :j]
            later -= beside[:, j - 1 : j] * before[:, :j]
            later[:, 1:] += beside[:, : j - 1] * now[:, : j - 1]
            later /= length[:, None]
            new[:, :j] = later + torch.where(later < 0, -rounding, rounding)
        new[:, j], new[:, j + 1] = rounding[:, 0], 1.0
        self._before, self._now = now, new
        return new[:, : j + 1].abs().amax(1)


def dots(left: Tensor, right: Tensor) -> Tensor:
    """The inner products of rows with rows, without a copy of either."""
    return torch.bmm(left[:, None, :], right[:, :, None])[:, 0, 0]


def _clear(row: Tensor, vectors: Tensor) -> float:
    """Take vectors (rows) out of another one, in place, and once more unless that took next to nothing; its length."""
    length = 0.0
    for _ in range(2):
        inside = vectors @ row
        row.addmv_(vectors.T, inside, alpha=-1)
        length = float(row.norm())
        if float(inside.abs().max()) <= _SETTLED * length:
            break
    return length
