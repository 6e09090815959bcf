"""Eigenvalues enclosed by rigorous bounds."""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.records.record import Record


@dataclass(frozen=True, eq=False, repr=False)
class EigenvalueEnclosure(Record):
    """The smallest eigenvalue lies in [lower, upper], a theorem for every matrix in the balls.

    ``is_positive`` says lower > 0: the matrix is positive definite, so it has full rank ``size``. The bounds are
    rounded outwards to float64.
    """

    lower: float
    upper: float
    is_positive: bool
    size: int
    bits: int
