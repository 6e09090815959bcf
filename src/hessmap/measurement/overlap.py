"""How much two subspaces have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import InvalidInput, require, sentence
from hessmap.measurement.matrices import Floats, dense_array, largest_entry
from hessmap.results import SubspaceOverlap

ORTHONORMALITY_TOLERANCE = 1e-8


def subspace_overlap(first: Tensor | NDArray[Any], second: Tensor | NDArray[Any]) -> SubspaceOverlap:
    """||U^T V||_F^2 / k for orthonormal bases U and V of k columns: the mean squared cosine of the canonical angles.

    Definition 2.1 of Wu et al. (2020, "Dissecting Hessian"). Columns that are not orthonormal are refused: the
    formula would give a number that is no overlap. Random subspaces of R^n overlap by k / n on average.

    >>> subspace_overlap(np.eye(3)[:, :2], np.eye(3)[:, 1:]).value
    0.5
    """
    bases = dense_array(first), dense_array(second)
    require(
        bases[0].shape == bases[1].shape,
        "overlap is defined for two subspaces of equal dimension in one space",
        f"got bases of shape {bases[0].shape} and {bases[1].shape}",
    )
    size, num_vectors = bases[0].shape
    require(num_vectors > 0, "a subspace must have at least one basis vector", "got none")
    error = max(require_orthonormal(basis, name) for basis, name in zip(bases, ("first", "second"), strict=True))
    return SubspaceOverlap(
        value=float(np.square(bases[0].T @ bases[1]).sum()) / num_vectors,
        num_vectors=num_vectors,
        size=size,
        chance=num_vectors / size,
        orthonormality_error=error,
    )


def require_orthonormal(basis: Floats, name: str) -> float:
    error = largest_entry(basis.T @ basis - np.eye(basis.shape[1]))
    if error > ORTHONORMALITY_TOLERANCE:
        got = f"the {name} basis U has |U^T U - I| up to {error:.3g}"
        raise InvalidInput(sentence("the columns must be orthonormal", got, "Use the Q of numpy.linalg.qr(U)"))
    return error
