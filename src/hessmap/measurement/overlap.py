"""How much two subspaces have in common: two bases, all leading parts of them at once, many models, or a gradient."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import InvalidInput, list_of, require, sentence
from hessmap.linalg import Floats, largest_entry
from hessmap.measurement.operators_in import dense_array, float_array
from hessmap.records import EigenpairsMeasurement, GradientOverlap, OverlapCurve, OverlapSummary, SubspaceOverlap

Basis = Tensor | NDArray[Any]
_ORTHONORMALITY_TOLERANCE = 1e-8


def subspace_overlap(first: Basis, second: Basis) -> SubspaceOverlap:
    """Overlap of two subspaces: the mean squared cosine of their principal angles.

    Args:
        first: Orthonormal basis U as the columns of a tensor or array of shape (n, k).
        second: Orthonormal basis V of the same shape.

    Returns:
        SubspaceOverlap: ``value`` = ||U^T V||_F^2 / k, and ``chance`` = k / n, the mean for random subspaces.

    Raises:
        InvalidInput: If the shapes differ, there are no columns, or the columns are not orthonormal to 1e-8: the
            formula is an overlap for orthonormal bases only.

    Notes:
        Definition 2.1 of Wu et al. (2022, "Dissecting Hessian").

    Example:
        >>> subspace_overlap(np.eye(3)[:, :2], np.eye(3)[:, 1:]).value
        0.5
    """
    left, right, error = _bases(first, second)
    size, num_vectors = left.shape
    return SubspaceOverlap(
        value=float(np.square(left.T @ right).sum()) / num_vectors,
        num_vectors=num_vectors,
        size=size,
        chance=num_vectors / size,
        orthonormality_error=error,
    )


def overlap_curve(first: Basis, second: Basis) -> OverlapCurve:
    """Overlaps of the leading parts of two bases, for every number of leading vectors.

    Args:
        first: Orthonormal basis U as the columns of a tensor or array of shape (n, k).
        second: Orthonormal basis V of the same shape.

    Returns:
        OverlapCurve: ``values`` = ||U_j^T V_j||_F^2 / j for j = 1, .., k, where U_j and V_j are the first j columns.

    Raises:
        InvalidInput: If the shapes differ, there are no columns, or the columns are not orthonormal to 1e-8.

    Notes:
        Definition 2.1 of Wu et al. (2022, "Dissecting Hessian"), as for ``subspace_overlap``.

    Example:
        >>> overlap_curve(np.eye(3)[:, :2], np.eye(3)[:, [1, 0]]).values
        array([0., 1.])
    """
    left, right, error = _bases(first, second)
    size, num_vectors = left.shape
    return OverlapCurve(
        values=_leading_sums(np.square(left.T @ right)),
        chance=np.arange(1, num_vectors + 1) / size,
        size=size,
        orthonormality_error=error,
    )


def overlap_of_models(bases: Iterable[Basis]) -> OverlapSummary:
    """The overlap curves of every pair among the leading eigenvectors of some models."""
    given = list_of("bases", bases)
    require(len(given) >= 2, "a comparison needs two models or more", f"got {len(given)}")
    curves = [overlap_curve(first, second) for first, second in combinations(given, 2)]
    values = np.stack([curve.values for curve in curves])
    mean = values.mean(axis=0)
    searched = mean[: max(1, curves[0].size // 2)]
    return OverlapSummary(
        mean=mean,
        spread=values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(values.shape[1]),
        lowest=values.min(axis=0),
        highest=values.max(axis=0),
        chance=curves[0].chance,
        num_models=len(given),
        num_pairs=len(curves),
        size=curves[0].size,
        peak=int(searched.argmax()) + 1,
    )


def gradient_overlap(gradient: Basis, eigenvectors: Basis | EigenpairsMeasurement) -> GradientOverlap:
    """Fraction of the squared norm of a gradient in the span of eigenvectors.

    Args:
        gradient: Vector g of n entries.
        eigenvectors: Orthonormal columns V, of shape (n, k), or eigenpairs that have eigenvectors.

    Returns:
        GradientOverlap: ``value`` = ||V^T g||^2 / ||g||^2, 0 for a zero gradient, and ``chance`` = k / n, the mean for
        random subspaces.

    Raises:
        InvalidInput: If there are no eigenvectors, the sizes differ, or the columns are not orthonormal to 1e-8.

    Notes:
        Gur-Ari, Roberts & Dyer (2018, "Gradient descent happens in a tiny subspace").

    Example:
        >>> gradient_overlap(np.array([3.0, 4.0]), np.array([[1.0], [0.0]])).value
        0.36
    """
    given = eigenvectors.eigenvectors if isinstance(eigenvectors, EigenpairsMeasurement) else eigenvectors
    require(given is not None, "an overlap needs eigenvectors", "there are none")
    assert given is not None
    vectors, direction = dense_array(given, "eigenvectors"), float_array(gradient, "a gradient")
    must = f"the gradient must be a vector with as many entries as the eigenvectors, {len(vectors)}"
    require(direction.shape == (len(vectors),), must, f"got shape {direction.shape}")
    largest = largest_entry(direction)
    scaled = direction / (largest or 1.0)
    squared = float(np.square(scaled).sum())
    return GradientOverlap(
        value=float(np.square(vectors.T @ scaled).sum()) / squared if squared else 0.0,
        num_vectors=vectors.shape[1],
        size=len(vectors),
        chance=vectors.shape[1] / max(1, len(vectors)),
        gradient_norm=largest * squared**0.5,
        orthonormality_error=orthonormality_error(vectors, "given"),
    )


def _bases(first: Basis, second: Basis) -> tuple[Floats, Floats, float]:
    """Two bases of one shape, and how far from orthonormal the worse is."""
    bases = dense_array(first, "a basis"), dense_array(second, "a basis")
    must = "overlap is defined for two subspaces of equal dimension in one space"
    require(bases[0].shape == bases[1].shape, must, f"got bases of shape {bases[0].shape} and {bases[1].shape}")
    require(bases[0].shape[1] > 0, "a subspace must have at least one basis vector", "got none")
    errors = [orthonormality_error(basis, name) for basis, name in zip(bases, ("first", "second"), strict=True)]
    return *bases, max(errors)


def orthonormality_error(basis: Floats, name: str) -> float:
    """The largest entry of |U^T U - I|; bases that are far from orthonormal are refused."""
    error = largest_entry(basis.T @ basis - np.eye(basis.shape[1]))
    if error > _ORTHONORMALITY_TOLERANCE:
        got = f"the {name} basis U has |U^T U - I| up to {error:.3g}"
        raise InvalidInput(sentence("the columns must be orthonormal", got, "Use the Q of numpy.linalg.qr(U)"))
    return error


def _leading_sums(squares: Floats) -> Floats:
    """Sums over the leading k x k blocks, divided by k."""
    sums = np.cumsum(np.cumsum(squares, axis=0), axis=1).diagonal()
    return np.asarray(sums / np.arange(1, len(sums) + 1))
