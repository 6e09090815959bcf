"""The learning coefficient of a deep linear network, over all weights whose product is the truth.

Let K(w) = |W_L .. W_1 - W*|^2 with widths H_0, .., H_L and a truth W* of rank r. The volume of {K < e} shrinks like
e^lambda (-log e)^(m-1): lambda is the learning coefficient (real log canonical threshold), m its multiplicity. Inputs
of full rank and any loss that is comparable to the squared one change K by bounded factors only, and neither number.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from hessmap.errors import InvalidInput, require, sentence
from hessmap.theory.conditions import checked_count


class Coefficient(NamedTuple):
    """The exponent lambda of the volume and the multiplicity m, one more than the exponent of its logarithm."""

    value: Fraction
    multiplicity: int


def linear_learning_coefficient(widths: Iterable[int], rank: int) -> Coefficient:
    """lambda = r (H_0 + H_L - r)/2 + a (l-a)/(4l) - (l-1) T^2/(4l) + sum_{i<j} N_i N_j / 2, and m = a (l-a) + 1.

    N_0 <= .. <= N_L are the H_k - r in order, l the largest k >= 1 with N_0 + .. + N_k >= k N_k, T = N_0 + .. + N_l,
    a = T mod l, read as l where it is 0; i and j run over 0..l. Twice lambda is the codimension of {W_L .. W_1 = W*},
    an integer. Widths may be 0, where loss or inputs see nothing.

    Assumptions: inputs whose second moment has full rank H_0, no bias, a loss that is comparable to the squared one.

    Kind of truth: theorem. Reference: Aoyagi & Watanabe 2005 (two layers), Aoyagi 2024 (any depth; the formula as
    secondary sources print it), and for lambda the proof through codimensions in
    research/docs/learning-coefficients.md.

    By hand for 2-2-2 and W* = 0: where W_1 has rank s, 2 s weights of W_2 and (2-s)^2 of W_1 are bound: 4, 3, 4.

    >>> linear_learning_coefficient((2, 2, 2), rank=0)
    Coefficient(value=Fraction(3, 2), multiplicity=1)
    >>> linear_learning_coefficient((1, 1, 1), rank=0)
    Coefficient(value=Fraction(1, 2), multiplicity=2)
    """
    dims = _checked_dims(widths)
    r = checked_count("rank", rank, at_most=min(dims), why="the narrowest width")
    excess = sorted(dim - r for dim in dims)
    sums = list(accumulate(excess))
    last = max(k for k in range(1, len(excess)) if sums[k] >= k * excess[k])
    total = sums[last]
    a = total % last or last
    pairs = total * total - sum(n * n for n in excess[: last + 1])  # twice the sum over i < j
    doubled_ends = r * (dims[0] + dims[-1] - r)
    quarters = 2 * doubled_ends * last + a * (last - a) - (last - 1) * total * total + pairs * last
    return Coefficient(Fraction(quarters, 4 * last), a * (last - a) + 1)


def _checked_dims(widths: Iterable[int]) -> list[int]:
    must = "widths must be integers of at least 0, input first and output last"
    try:
        dims = list(map(operator.index, widths))
    except TypeError:
        raise InvalidInput(sentence(must, f"got {widths!r}")) from None
    require(len(dims) >= 2, "widths must hold an input and an output", f"got {tuple(dims)}")
    require(min(dims) >= 0, must, f"the narrowest is {min(dims)}")
    return dims
