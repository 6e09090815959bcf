"""Sums over the whole spectrum of a matrix: effective dimension, and what its leading eigenvectors leave of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import checked_count, checked_number, list_of, require
from hessmap.measurement.dense_spectrum import whole_spectrum
from hessmap.measurement.matrices import Matrix
from hessmap.records import EffectiveDimension, ReconstructionErrors, Spectrum


def effective_dimension(matrix: Matrix | Spectrum, epsilon: float) -> EffectiveDimension:
    """The sum of h / (h + epsilon) over the magnitudes h of the eigenvalues, and their nuclear-to-spectral ratio.

    For a positive semi-definite matrix this is the number of well-determined parameters of Gull (1989) and MacKay
    (1992, "A practical Bayesian framework for backpropagation networks"), epsilon being the precision of the prior;
    it tends to the rank as epsilon goes to 0. For an indefinite matrix, h / (h + epsilon) of the signed eigenvalue has
    a pole at -epsilon and counts nothing, so magnitudes are summed and ``num_negative`` says how many were negative.

    The error bound uses |a / (a + eps) - b / (b + eps)| <= |a - b| / (a + eps) for a, b >= 0.

    >>> effective_dimension(np.diag([3.0, 1.0, 0.0]), epsilon=1.0).value
    1.25
    """
    epsilon = checked_number("epsilon", epsilon)
    require(0 < epsilon < np.inf, "epsilon must be positive and finite", f"got {epsilon}")
    found = whole_spectrum(matrix, "an effective dimension")
    magnitudes = np.abs(found.eigenvalues)
    error = found.eigenvalue_error
    return EffectiveDimension(
        value=float((magnitudes / (magnitudes + epsilon)).sum()),
        epsilon=epsilon,
        nuclear_ratio=float((magnitudes / found.norm).sum()) if found.norm else 0.0,
        num_negative=int((found.eigenvalues < -(error or 0.0)).sum()),
        error_bound=None if error is None else float(np.minimum(1.0, error / (magnitudes + epsilon)).sum()),
        size=len(magnitudes),
    )


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
    wanted = np.arange(size + 1) if ranks is None else _rank_array(ranks, size)
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


def _rank_array(ranks: Iterable[int], size: int) -> NDArray[np.int64]:
    given = [checked_count("a rank", rank, None) for rank in list_of("ranks", ranks)]
    outside = [rank for rank in given if not 0 <= rank <= size]
    require(not outside, f"ranks must lie between 0 and the size {size}", f"got {outside[:3]}")
    return np.array(given, dtype=np.int64)


def _noise(error: float, frobenius: float, size: int) -> float:
    return error * size**0.5 / frobenius if frobenius else 0.0
