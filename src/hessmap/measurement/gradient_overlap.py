"""How much of a gradient lies in a space of eigenvectors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import require
from hessmap.measurement.matrices import float_array, largest_entry
from hessmap.measurement.overlap import require_orthonormal
from hessmap.results import EigenpairsMeasurement, GradientOverlap


def gradient_overlap(
    gradient: Tensor | NDArray[Any], eigenvectors: Tensor | NDArray[Any] | EigenpairsMeasurement
) -> GradientOverlap:
    """||V^T g||^2 / ||g||^2 for orthonormal columns V (Gur-Ari, Roberts & Dyer 2018); 0 for a gradient of zero.

    >>> gradient_overlap(np.array([3.0, 4.0]), np.array([[1.0], [0.0]])).value
    0.36
    """
    given = eigenvectors.eigenvectors if isinstance(eigenvectors, EigenpairsMeasurement) else eigenvectors
    assert given is not None
    vectors, direction = float_array(given, "eigenvectors"), float_array(gradient, "a gradient")
    must = f"the gradient must be a vector with as many entries as the eigenvectors, {len(vectors)}"
    require(direction.shape == (len(vectors),) and vectors.ndim == 2, must, f"got shape {direction.shape}")
    largest = largest_entry(direction)
    scaled = direction / (largest or 1.0)
    squared = float(np.square(scaled).sum())
    return GradientOverlap(
        value=float(np.square(vectors.T @ scaled).sum()) / squared if squared else 0.0,
        num_vectors=vectors.shape[1],
        size=len(vectors),
        chance=vectors.shape[1] / max(1, len(vectors)),
        gradient_norm=largest * squared**0.5,
        orthonormality_error=require_orthonormal(vectors, "given"),
    )
