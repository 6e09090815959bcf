"""The law of Marchenko and Pastur, with its atom."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import require
from hessmap.theory.teacher_student.spectral_law import Floats, SpectralLaw, checked_order


@dataclass(frozen=True)
class MarchenkoPastur(SpectralLaw):
    """The limit of the eigenvalues of W^T W, W of Nh x Ni independent entries of mean 0 and variance ``scale`` / Ni.

    With ``ratio`` = Nh / Ni = lam and a, b = scale (1 -+ sqrt lam)^2: the density sqrt((b-y)(y-a)) / (2 pi scale y) on
    [a, b], of mass min(1, lam), and an atom at 0 of mass 1 - lam if lam < 1. The law of the non-zero eigenvalues has
    max(1, lam) / lam times that density.

    Equation 15 of the teacher-student paper has scale 1 / Ni for entries of variance 1 / Ni; that is wrong: the scale
    is 1 (the mean eigenvalue of W^T W is Nh / Ni, not Nh / Ni^2).

    >>> law = MarchenkoPastur(ratio=0.25)
    >>> law.support, law.atom, law.mean
    ((0.0, 2.25), (0.0, 0.75), 0.25)
    """

    ratio: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("ratio", "scale"):
            value = getattr(self, name)
            require(0 < value < np.inf, f"the {name} of a Marchenko-Pastur law must be positive", f"got {value}")

    @property
    def edges(self) -> tuple[float, float]:
        """The ends a and b of the density."""
        root = float(np.sqrt(self.ratio))
        return self.scale * (1 - root) ** 2, self.scale * (1 + root) ** 2

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.edges
        return (0.0 if self.ratio < 1 else low), high

    @property
    def atom(self) -> tuple[float, float]:
        return 0.0, max(0.0, 1.0 - self.ratio)

    def pdf(self, x: ArrayLike) -> Floats:
        low, high = self.edges
        y = np.asarray(x, dtype=np.float64)
        inside = (y > low) & (y < high)
        safe = np.where(inside, y, (low + high) / 2)
        density = np.sqrt((high - safe) * (safe - low)) / (2 * np.pi * self.scale * safe)
        return np.where(inside, density, 0.0)

    def _continuous_cdf(self, x: Floats) -> Floats:
        """By the antiderivative R + (a+b)/2 asin((2y-a-b)/(b-a)) - sqrt(ab) asin(((a+b)y-2ab)/(y(b-a))) of R / y."""
        low, high = self.edges
        y = np.clip(x, low, high)
        safe = np.where(y > 0, y, 1.0)
        root = np.sqrt((high - y) * (y - low))
        middle = _arcsine((2 * y - low - high) / (high - low))
        inverse = np.where(y > 0, _arcsine(((low + high) * y - 2 * low * high) / (safe * (high - low))), -np.pi / 2)
        total = root + (low + high) / 2 * middle - np.sqrt(low * high) * inverse
        start = -np.pi / 2 * ((low + high) / 2 - np.sqrt(low * high))
        return np.asarray((total - start) / (2 * np.pi * self.scale))

    def moment(self, order: int) -> float:
        """scale^k sum_r N(k, r) lam^r with the numbers of Narayana, N(k, r) = C(k, r) C(k, r-1) / k."""
        k = checked_order(order)
        if k == 0:
            return 1.0
        terms = (comb(k, r) * comb(k, r - 1) // k * self.ratio**r for r in range(1, k + 1))
        return float(self.scale**k * sum(terms))

    def sample(self, size: int, seed: int) -> Floats:
        """Draws by the quantiles of uniform numbers."""
        return self.quantile(np.random.default_rng(seed).uniform(size=size))

    def nodes(self, upper: Floats, num_nodes: int) -> tuple[Floats, Floats]:
        """Nodes y and weights of the continuous part on [a, min(b, upper)], for each ``upper`` a row.

        With y = a + 2 scale sqrt(lam) (1 - cos t) the density is 2 lam scale sin^2 t / (pi y) dt. Both ends of t are
        resolved quadratically, for functions with a square root at ``upper`` and for lam near 1.
        """
        low, high = self.edges
        reached = np.clip((np.asarray(upper, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
        angle = 2 * np.arcsin(np.sqrt(reached))[..., None]
        points, weights = np.polynomial.legendre.leggauss(num_nodes)
        half = np.pi / 4 * (points + 1)
        t = angle * np.sin(half) ** 2
        step = angle * np.sin(2 * half) * np.pi / 4 * weights
        y = low + (high - low) * np.sin(t / 2) ** 2
        density = np.divide(np.sin(t) ** 2, y, out=np.zeros_like(y), where=y > 0)
        return y, 2 * self.ratio * self.scale / np.pi * density * step


def _arcsine(value: Floats) -> Floats:
    return np.arcsin(np.clip(value, -1.0, 1.0))
