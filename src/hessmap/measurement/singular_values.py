"""Singular values of a matrix, and how many of them count."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from hessmap.measurement.array_norms import Floats


def singular_values(matrix: Floats) -> Floats:
    return np.asarray(scipy.linalg.svdvals(matrix, check_finite=False))


def centred_singular_values(matrix: Floats) -> Floats:
    return singular_values(matrix - matrix.mean(axis=0))


def count_above(values: Floats, relative_tolerance: float) -> int:
    """How many values exceed the tolerance times the largest.

    >>> count_above(np.array([2.0, 1.0, 0.1]), 0.1)
    2
    """
    return int((values > relative_tolerance * values.max(initial=0.0)).sum())
