"""float64 numbers as what they are: integers times powers of two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require

Integers = NDArray[np.object_]


def dyadic_parts(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Odd mantissas (or zero) and exponents with value = mantissa * 2^exponent, exactly.

    >>> mantissas, exponents = dyadic_parts(np.array([0.75, -6.0, 0.0]))
    >>> mantissas.tolist(), exponents.tolist()
    ([3, -3, 0], [-2, 1, 0])
    """
    require(bool(np.isfinite(values).all()), "exact arithmetic needs finite numbers", "there is NaN or inf")
    fractions, exponents = np.frexp(values)
    whole = np.ldexp(fractions, 53).astype(np.int64)
    lowest_bits = np.where(whole == 0, 1, whole & -whole)
    trailing_zeros = np.frexp(lowest_bits.astype(np.float64))[1].astype(np.int64) - 1
    powers = np.where(whole == 0, 0, exponents.astype(np.int64) - 53 + trailing_zeros)
    return whole >> trailing_zeros, powers


def scaled_integers(values: NDArray[np.float64]) -> tuple[Integers, int]:
    """Python integers and one number of bits with value = integer / 2^bits, exactly.

    >>> scaled_integers(np.array([0.75, -6.0]))
    (array([3, -24], dtype=object), 2)
    """
    mantissas, exponents = dyadic_parts(values)
    bits = max(0, -int(exponents.min(initial=0)))
    integers = mantissas.astype(object) * np.left_shift(1, (exponents + bits).astype(object))
    return np.asarray(integers, dtype=object), bits
