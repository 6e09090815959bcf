"""How well a matrix is kept by its leading eigenvectors."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

from hessmap.errors import require
from hessmap.measurement.dense_spectrum import whole_spectrum
from hessmap.measurement.matrices import Matrix
from hessmap.results import ReconstructionErrors, Spectrum


def reconstruction_error(matrix: Matrix | Spectrum, ranks: Iterable[int] | None = None) -> ReconstructionErrors:
    """Relative Frobenius error of the best approximation of each rank (Singh, Bachmann & Hofmann 2021, figure 7).

    By Eckart and Young the best approximation of rank k keeps the k eigenvalues of largest magnitude, so the error is
    the root of the sum of the squares of the others over that of all: no eigenvector is needed. ``ranks`` is by
    default 0, 1, .., n. A zero matrix is kept without error by any rank.

    >>> reconstruction_error(np.diag([4.0, -3.0]), ranks=[0, 1, 2]).errors
    array([1. , 0.6, 0. ])
    """
    found = whole_spectrum(matrix, "a reconstruction error")
    size = len(found.eigenvalues)
    wanted = np.array(range(size + 1) if ranks is None else [_whole(rank) for rank in ranks], dtype=np.int64)
    outside = wanted[(wanted < 0) | (wanted > size)]
    require(not outside.size, f"ranks must lie between 0 and the size {size}", f"got {outside[:3].tolist()}")
    ascending = np.sort(np.abs(found.eigenvalues)) / (found.norm or 1.0)
    # Summed from the smallest up, so that the tail keeps its digits.
    tails = np.sqrt(np.concatenate([[0.0], np.cumsum(np.square(ascending))]))
    whole = tails[-1] or 1.0
    error = found.eigenvalue_error
    return ReconstructionErrors(
        ranks=wanted,
        errors=tails[size - wanted] / whole,
        noise_floor=None if error is None else _noise(error, found.norm * whole, size),
        size=size,
    )


def _whole(rank: int) -> int:
    require(isinstance(rank, SupportsIndex), "ranks must be integers", f"got {rank!r}")
    return operator.index(rank)


def _noise(error: float, frobenius: float, size: int) -> float:
    return error * size**0.5 / frobenius if frobenius else 0.0
