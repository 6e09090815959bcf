"""Overlap of leading eigenspaces for all dimensions at once, of two operators or of many models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import InvalidInput, require, sentence
from hessmap.measurement.matrices import Floats, dense_array, largest_entry
from hessmap.measurement.overlap import ORTHONORMALITY_TOLERANCE
from hessmap.results import OverlapCurve, OverlapSummary

Basis = Tensor | NDArray[Any]


def overlap_curve(first: Basis, second: Basis) -> OverlapCurve:
    """||U_k^T V_k||_F^2 / k for k = 1, 2, .., U_k and V_k the first k columns of orthonormal bases.

    >>> overlap_curve(np.eye(3)[:, :2], np.eye(3)[:, [1, 0]]).values
    array([0., 1.])
    """
    bases = dense_array(first), dense_array(second)
    shapes = bases[0].shape, bases[1].shape
    require(shapes[0] == shapes[1] and shapes[0][1] > 0, "overlap needs two bases of one shape", f"got {shapes}")
    error = max(orthonormality_error(basis) for basis in bases)
    return OverlapCurve(
        values=leading_sums(np.square(bases[0].T @ bases[1])),
        chance=np.arange(1, shapes[0][1] + 1) / shapes[0][0],
        size=shapes[0][0],
        orthonormality_error=error,
    )


def leading_sums(squares: Floats) -> Floats:
    """Sums over the leading k x k blocks, divided by k."""
    sums = np.cumsum(np.cumsum(squares, axis=0), axis=1).diagonal()
    return np.asarray(sums / np.arange(1, len(sums) + 1))


def orthonormality_error(basis: Floats) -> float:
    """The largest entry of |U^T U - I|; bases that are far from orthonormal are refused."""
    error = largest_entry(basis.T @ basis - np.eye(basis.shape[1]))
    if error > ORTHONORMALITY_TOLERANCE:
        got = f"|U^T U - I| is up to {error:.3g}"
        raise InvalidInput(sentence("the columns must be orthonormal", got, "Use the Q of numpy.linalg.qr(U)"))
    return error


def overlap_of_models(bases: Sequence[Basis]) -> OverlapSummary:
    """The overlap curves of every pair among the leading eigenvectors of some models."""
    require(len(bases) >= 2, "a comparison needs two models or more", f"got {len(bases)}")
    curves = [overlap_curve(first, second) for first, second in combinations(bases, 2)]
    values = np.stack([curve.values for curve in curves])
    mean = values.mean(axis=0)
    searched = mean[: max(1, curves[0].size // 2)]
    return OverlapSummary(
        mean=mean,
        spread=values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(values.shape[1]),
        lowest=values.min(axis=0),
        highest=values.max(axis=0),
        chance=curves[0].chance,
        num_models=len(bases),
        num_pairs=len(curves),
        size=curves[0].size,
        peak=int(searched.argmax()) + 1,
    )
