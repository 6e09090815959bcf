"""The eigenvalues of the population Hessian of a linear network at its teacher, in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import require
from hessmap.theory.teacher_student.spectral_law import Floats


def linear_eigenvalues(first: ArrayLike, second: ArrayLike, hidden_bias: ArrayLike | None = None) -> Floats:
    """The non-zero eigenvalues ||W2||^2 + eig(W1^T W1), one for each input, largest first.

    Formula: with a hidden bias b, ||W2||^2 + eig([W1 b]^T [W1 b]), one more. All other eigenvalues are zero.

    Proof: H = E[J^T J] with J = (W2 (x) x, W1 x), which has the non-zero eigenvalues of ||W2||^2 I + W1^T W1 on the
    inputs, by exchanging the factors of J^T J. The teacher-student paper, Appendix A.3, finds the eigenvectors.

    By hand: W1 = [[3]], W2 = [4] has H = [[16, 12], [12, 9]], of trace 25 and determinant 0.

    >>> linear_eigenvalues([[3.0]], [4.0])
    array([25.])
    """
    weights, outputs = (
        np.atleast_2d(np.asarray(first, dtype=np.float64)),
        np.ravel(np.asarray(second, dtype=np.float64)),
    )
    must = "W2 must have one entry for each row of W1"
    require(
        weights.ndim == 2 and outputs.size == len(weights), must, f"the shapes are {weights.shape}, {outputs.shape}"
    )
    if hidden_bias is not None:
        bias = np.ravel(np.asarray(hidden_bias, dtype=np.float64))
        require(bias.size == len(weights), "hidden_bias must have one entry for each row of W1", f"it has {bias.size}")
        weights = np.column_stack([weights, bias])
    squares = np.linalg.svd(weights, compute_uv=False) ** 2
    return float(outputs @ outputs) + np.pad(squares, (0, weights.shape[1] - squares.size))
