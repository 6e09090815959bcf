"""Gaussian moments of relu and leaky relu in closed form: ramps of the units and of their mirror images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hessmap.theory.teacher_student.gaussian_moments import GaussianMoments, PairMoments, Second, Units
from hessmap.theory.teacher_student.ramp_moments import RampPairs, ramp_single
from hessmap.theory.teacher_student.weights import Array


@dataclass(frozen=True)
class Rectifier(GaussianMoments):
    """g(t) = max(t, 0) + slope min(t, 0) = ramp(t) - slope ramp(-t)."""

    slope: float

    def pairs(self, left: Units, right: Units) -> PairMoments:
        signs = [(1, 1.0), (-1, -self.slope)] if self.slope else [(1, 1.0)]
        return RectifierPairs(
            tuple(
                _Term(k, m, above * below, RampPairs(_mirrored_units(left, k), _mirrored_units(right, m)))
                for k, above in signs
                for m, below in signs
            )
        )

    def single(self, order: int, units: Units) -> Array:
        value = ramp_single(order, units)
        return (
            value - self.slope * (-1) ** order * ramp_single(order, _mirrored_units(units, -1)) if self.slope else value
        )


def _mirrored_units(units: Units, sign: int) -> Units:
    return units if sign > 0 else Units(-units.rows, None if units.offsets is None else -units.offsets)


@dataclass(frozen=True)
class _Term:
    """``weight`` times the ramps of ``left_sign`` z_k and ``right_sign`` z_m."""

    left_sign: int
    right_sign: int
    weight: float
    ramps: RampPairs

    def factor(self, i: int, j: int) -> float:
        """What a derivative of these orders in the units themselves multiplies by."""
        return float(self.weight * self.left_sign**i * self.right_sign**j)


@dataclass(frozen=True)
class RectifierPairs(PairMoments):
    """A sum of moments of ramps, their coefficients turned from those of mirrored rows into those of the rows."""

    terms: tuple[_Term, ...]

    def constant(self, i: int, j: int) -> Array:
        return np.asarray(sum(term.factor(i, j) * term.ramps.constant(i, j) for term in self.terms))

    def first(self, i: int, j: int) -> tuple[Array, Array]:
        found = [(term, term.factor(i, j), *term.ramps.first(i, j)) for term in self.terms]
        left = sum(factor * term.left_sign * left for term, factor, left, _ in found)
        right = sum(factor * term.right_sign * right for term, factor, _, right in found)
        return np.asarray(left), np.asarray(right)

    def second(self, i: int, j: int) -> Second:
        parts = []
        for term in self.terms:
            factor, found = term.factor(i, j), term.ramps.second(i, j)
            crossed = term.left_sign * term.right_sign * found.left_right
            parts.append([factor * part for part in (found.identity, found.left_left, crossed, found.right_right)])
        return Second(*(np.asarray(sum(column)) for column in zip(*parts, strict=True)))
