"""What every law of eigenvalues can do: density, distribution function, quantiles, moments, draws, distances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap.theory.conditions import checked_count

Floats = NDArray[np.float64]
_HALVINGS = 80


class SpectralLaw(ABC):
    """A law on the real line with at most one atom; members are vectorised over their first argument."""

    @property
    @abstractmethod
    def support(self) -> tuple[float, float]:
        """The smallest interval that holds everything."""

    @property
    @abstractmethod
    def atom(self) -> tuple[float, float]:
        """Place and probability of the atom; the probability is zero where there is none."""

    @abstractmethod
    def pdf(self, x: ArrayLike) -> Floats:
        """The density of what is not in the atom."""

    @abstractmethod
    def _continuous_cdf(self, x: Floats) -> Floats:
        """The probability up to x of what is not in the atom."""

    @abstractmethod
    def moment(self, order: int) -> float:
        """E[y^order]."""

    @abstractmethod
    def sample(self, size: int, seed: int) -> Floats:
        """Independent draws."""

    def cdf(self, x: ArrayLike) -> Floats:
        """The probability of at most x."""
        values = np.asarray(x, dtype=np.float64)
        place, mass = self.atom
        return self._continuous_cdf(values) + mass * (values >= place)

    def cdf_below(self, x: ArrayLike) -> Floats:
        """The probability of less than x: the limit of ``cdf`` from the left."""
        values = np.asarray(x, dtype=np.float64)
        place, mass = self.atom
        return self._continuous_cdf(values) + mass * (values > place)

    def quantile(self, probability: ArrayLike) -> Floats:
        """The smallest x with cdf(x) >= probability, by bisection of the support to rounding."""
        wanted = np.asarray(probability, dtype=np.float64)
        inside = bool(np.all((wanted >= 0) & (wanted <= 1)))
        require(inside, "a probability must lie in [0, 1]", f"got {probability!r}")
        low, high = (np.full(wanted.shape, edge) for edge in self._bracket())
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            is_below = self.cdf(middle) < wanted
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        place, mass = self.atom
        below = float(self._continuous_cdf(np.asarray(place)))
        high = np.where((wanted > below) & (wanted <= below + mass), place, high)
        smallest, largest = self.support
        return np.where(wanted == 0, smallest, np.where(wanted == 1, largest, high))

    @property
    def mean(self) -> float:
        return self.moment(1)

    @property
    def variance(self) -> float:
        return self.moment(2) - self.moment(1) ** 2

    def kolmogorov_smirnov(self, values: ArrayLike) -> float:
        """The largest distance between the distribution function and the empirical one of the values."""
        ordered = np.sort(np.asarray(values, dtype=np.float64).ravel())
        require(ordered.size > 0, "a distance needs values to compare with", "there are none")
        places, first = np.unique(ordered, return_index=True)
        below, upto = first / ordered.size, np.append(first[1:], ordered.size) / ordered.size
        return float(max(np.abs(self.cdf(places) - upto).max(), np.abs(self.cdf_below(places) - below).max()))

    def _bracket(self) -> tuple[float, float]:
        """A finite interval that holds all but what float64 can tell from one: the support, if it is finite."""
        return self.support


def checked_order(order: Any) -> int:
    return checked_count("the order of a moment", order)
