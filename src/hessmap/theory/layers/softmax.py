"""The second derivative of cross-entropy in the logits, and its square root."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]


def softmax_hessian(probabilities: Sequence[float] | Floats) -> Floats:
    """A = diag(p) - p p^T; positive semi-definite of rank c - 1, with the kernel of the all-one vector.

    Reference: Wu et al. 2020, equation 16.

    >>> softmax_hessian([0.5, 0.5])
    array([[ 0.25, -0.25],
           [-0.25,  0.25]])
    """
    p = _checked(probabilities)
    return np.diag(p) - np.outer(p, p)


def softmax_root(probabilities: Sequence[float] | Floats) -> Floats:
    """Q = diag(sqrt p) (I - 1 p^T), with Q^T Q = A.

    Reference: Wu et al. 2020, equation 25; corrected: Lemma B.12 prints Q Q^T, which differs from A by 0.06 in an
    entry for p = (0.2, 0.3, 0.5).

    >>> root = softmax_root([0.2, 0.3, 0.5])
    >>> bool(np.allclose(root.T @ root, softmax_hessian([0.2, 0.3, 0.5])))
    True
    """
    p = _checked(probabilities)
    return np.sqrt(p)[:, None] * (np.eye(len(p)) - p[None, :])


def _checked(probabilities: Sequence[float] | Floats) -> Floats:
    p = np.asarray(probabilities, dtype=np.float64)
    is_fine = p.ndim == 1 and p.size >= 2 and bool((p >= 0).all()) and abs(float(p.sum()) - 1) < 1e-9
    require(is_fine, "probabilities must be a vector that is not negative and sums to one", f"got {p}")
    return p
