"""The eigenvalues of the population Hessian of a linear network at its teacher, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

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


def deep_linear_eigenvalues(layers: Sequence[ArrayLike]) -> Floats:
    """The eigenvalues of a deep linear network: those of sum_l (A_l A_l^T) (x) (B_l^T B_l), largest first.

    Formula: A_l = W_L .. W_{l+1} and B_l = W_{l-1} .. W_1; outputs x inputs of them, zeros included where the network
    has a bottleneck; all further eigenvalues of H are zero. Derived by exchanging the factors of E[J^T J].

    >>> deep_linear_eigenvalues([[[3.0]], [[4.0]]])
    array([25.])
    """
    weights = [np.atleast_2d(np.asarray(layer, dtype=np.float64)) for layer in layers]
    require(len(weights) > 0, "a deep linear network must have a layer", "there is none")
    for place, (before, after) in enumerate(pairwise(weights), start=1):
        must = "each layer must take as many inputs as the one before has outputs"
        require(
            before.shape[0] == after.shape[1], must, f"layers {place} and {place + 1}: {before.shape}, {after.shape}"
        )
    inner = [np.eye(weights[0].shape[1])]
    for layer in weights[:-1]:
        inner.append(layer @ inner[-1])
    outer = [np.eye(weights[-1].shape[0])]
    for layer in weights[:0:-1]:
        outer.append(outer[-1] @ layer)
    total = sum(
        np.kron(after @ after.T, before.T @ before) for before, after in zip(inner, reversed(outer), strict=True)
    )
    return np.linalg.eigvalsh(np.asarray(total))[::-1].copy()
