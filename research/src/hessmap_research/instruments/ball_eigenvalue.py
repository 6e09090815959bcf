"""The smallest eigenvalue of a symmetric matrix of balls, enclosed rigorously."""

from __future__ import annotations

import math
from typing import Any

from hessmap.errors import InvalidInput, checked_count, require, sentence
from hessmap_research.instruments.enclosures import EigenvalueEnclosure

_WIDTH = 1e-6  # relative, of the enclosure
_TRIALS = 60
_POWERS = 60


def smallest_eigenvalue_enclosure(matrix: Any, bits: int = 256) -> EigenvalueEnclosure:
    """An enclosure of the smallest eigenvalue of a symmetric flint ``arb_mat``, positive definite or not far from it.

    Above by the Rayleigh quotient of a vector from inverse iteration; below by inertia: if all pivots of the
    elimination of A - t are certainly positive, every eigenvalue exceeds t. Only symmetry is taken on trust.

    >>> from flint import arb_mat
    >>> found = smallest_eigenvalue_enclosure(arb_mat([[2, 1], [1, 2]]))
    >>> found.lower < 1 < found.upper, found.is_positive
    (True, True)
    """
    import flint

    bits = checked_count("bits", bits, 2)
    require(isinstance(matrix, flint.arb_mat), "the matrix must be a flint.arb_mat", f"got {type(matrix).__name__}")
    rows, columns = matrix.nrows(), matrix.ncols()
    require(rows == columns and rows > 0, "the matrix must be square", f"it is {rows} by {columns}")
    before = flint.ctx.prec
    flint.ctx.prec = bits
    try:
        upper = _rayleigh_quotient(matrix)
        width = abs(upper) * _WIDTH
        for _ in range(_TRIALS):
            lower = upper - width
            if _is_positive_definite(matrix, lower):
                low, high = _outer_interval(lower, upper)
                return EigenvalueEnclosure(low, high, low > 0, rows, bits)
            width *= 4
    finally:
        flint.ctx.prec = before
    must = "the balls must be small enough to bound the smallest eigenvalue"
    raise InvalidInput(sentence(must, f"with {bits} bits they are not", "Make the matrix with more bits"))


def _rayleigh_quotient(matrix: Any) -> Any:
    """An upper bound: the quotient of any vector; this one is turned towards the smallest eigenvalue."""
    from flint import arb, arb_mat

    size = matrix.nrows()
    centre = arb_mat(size, size, [entry.mid() for entry in matrix.entries()])
    vector = arb_mat(size, 1, [arb(1) + arb(place % 7) / 3 for place in range(size)])
    try:
        inverse = centre.inv()
    except ZeroDivisionError:
        return (vector.transpose() * matrix * vector)[0, 0] / _squared_length(vector)
    for _ in range(_POWERS):
        vector = inverse * vector
        scale = (1 / _squared_length(vector).sqrt()).mid()
        vector = arb_mat(size, 1, [(entry * scale).mid() for entry in vector.entries()])
    return (vector.transpose() * matrix * vector)[0, 0] / _squared_length(vector)


def _squared_length(vector: Any) -> Any:
    entries = vector.entries()
    return sum((entry * entry for entry in entries), start=entries[0] * 0)


def _is_positive_definite(matrix: Any, shift: Any) -> bool:
    """Whether all pivots of the symmetric elimination of A - shift are certainly positive."""
    size = matrix.nrows()
    rows = [[matrix[i, j] - (shift if i == j else 0) for j in range(i + 1)] for i in range(size)]
    for k in range(size):
        pivot = rows[k][k]
        if not pivot > 0:
            return False
        column = [rows[i][k] for i in range(k + 1, size)]
        for place, i in enumerate(range(k + 1, size)):
            factor = column[place] / pivot
            row = rows[i]
            for other, j in enumerate(range(k + 1, i + 1)):
                row[j] -= factor * column[other]
    return True


def _outer_interval(lower: Any, upper: Any) -> tuple[float, float]:
    low, high = float(lower.lower()), float(upper.upper())
    return math.nextafter(low, -math.inf), math.nextafter(high, math.inf)
