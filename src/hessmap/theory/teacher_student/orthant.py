"""The probability that two normal variables are both positive, through Owen's T function."""

from __future__ import annotations

from math import pi

import numpy as np

from hessmap.theory.teacher_student.weights import Array


def orthant_probability(left: Array, right: Array, correlation: Array, sine: Array) -> Array:
    """P(u > 0, v > 0) for unit variances, means ``left`` and ``right``; ``sine`` is sqrt(1 - correlation^2).

    Owen 1956: Phi_2(h, k; r) = (Phi(h) + Phi(k)) / 2 - T(h, (k - r h) / (h sine)) - T(k, (h - r k) / (k sine)) - d with
    d = 1/2 where h and k differ in sign. Where both are zero it is 1/4 + asin(r) / (2 pi). Given apart from the
    correlation, the sine is right also for nearly parallel units.

    >>> round(float(orthant_probability(np.array(0.0), np.array(0.0), np.array(0.5), np.array(0.75**0.5))), 12)
    0.333333333333
    """
    from scipy.special import ndtr

    left, right, correlation, sine = np.broadcast_arrays(left, right, correlation, sine)
    opposite = (left * right < 0) | ((left * right == 0) & (left + right < 0))
    general = (ndtr(left) + ndtr(right)) / 2 - _owen(left, right, correlation, sine)
    general = general - _owen(right, left, correlation, sine) - 0.5 * opposite
    at_zero = 0.25 + np.arctan2(correlation, sine) / (2 * pi)
    return np.where((left == 0) & (right == 0), at_zero, general)


def _owen(height: Array, other: Array, correlation: Array, sine: Array) -> Array:
    """T(h, a) with a = (k - r h) / (h sine): zero where the numerator is, infinite where only the denominator is."""
    from scipy.special import owens_t

    above, below = other - correlation * height, height * sine
    above = np.where(np.abs(above) <= 4 * np.finfo(float).eps * (np.abs(other) + np.abs(height)), 0.0, above)
    # At h = 0 the sign of a is that of k, as for small positive h.
    infinite = np.where((height < 0) == (above < 0), np.inf, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(above == 0, 0.0, np.where(below == 0, infinite, above / below))
    return np.asarray(owens_t(height, slope))
