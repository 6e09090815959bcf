"""Learning near the optimum as the quadratic form of the Hessian sees it: losses under flow and under steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from hessmap.errors import require
from hessmap.theory.teacher_student.spectral_law import Floats

_ZERO = 1e-13  # eigenvalues below this share of the largest are zeros with rounding on them


@dataclass(frozen=True, eq=False)
class QuadraticDynamics:
    """Gradient flow d delta / dt = -H delta from delta ~ N(0, deviation^2 I), and the loss delta^T H delta / 2.

    Equation 7 of the teacher-student paper: <L(t)> = deviation^2 / 2 Tr(e^{-2Ht} H), to leading order in the deviation.
    At late times the smallest non-zero eigenvalue rules: L(t) ~ e^{-2 lambda_min t}. Eigenvalues below 1e-13 of the
    largest are taken for zero: their rounding would rule the late times.

    By hand for H = [[2]]: deviation^2 / 2 * 2 e^{-4t}.

    >>> dynamics = QuadraticDynamics.of([[2.0]])
    >>> float(dynamics.mean_loss(0.0, deviation=0.1)), dynamics.exponent
    (0.010000000000000002, 4.0)
    """

    eigenvalues: Floats
    eigenvectors: Floats

    @classmethod
    def of(cls, hessian: ArrayLike) -> QuadraticDynamics:
        matrix = np.asarray(hessian, dtype=np.float64)
        is_square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
        require(is_square, "a Hessian must be a square matrix", f"it has shape {matrix.shape}")
        values, vectors = np.linalg.eigh(matrix)
        kept = values > _ZERO * max(abs(values[0]), abs(values[-1]))
        require(bool(kept.any()), "a Hessian must have a positive eigenvalue", "it has none")
        return cls(values[kept][::-1], vectors[:, kept][:, ::-1])

    @property
    def exponent(self) -> float:
        """The late rate of decay of the loss: twice the smallest non-zero eigenvalue."""
        return 2 * float(self.eigenvalues[-1])

    def mean_loss(self, times: ArrayLike, deviation: float = 1.0) -> Floats:
        """deviation^2 / 2 sum_i lambda_i e^{-2 lambda_i t}, for each time."""
        decay = np.exp(-2 * np.multiply.outer(np.asarray(times, dtype=np.float64), self.eigenvalues))
        return np.asarray(deviation**2 / 2 * (decay @ self.eigenvalues))

    def losses(self, perturbations: ArrayLike, times: ArrayLike) -> Floats:
        """delta^T e^{-2Ht} H delta / 2 for each given perturbation (rows) and time (columns)."""
        parts = (np.asarray(perturbations, dtype=np.float64) @ self.eigenvectors) ** 2 * self.eigenvalues / 2
        decay = np.exp(-2 * np.multiply.outer(self.eigenvalues, np.asarray(times, dtype=np.float64)))
        return np.asarray(parts @ decay)

    def losses_after_steps(self, perturbations: ArrayLike, num_steps: ArrayLike, step: float) -> Floats:
        """The same after gradient descent: delta^T (1 - step H)^{2k} H delta / 2."""
        parts = (np.asarray(perturbations, dtype=np.float64) @ self.eigenvectors) ** 2 * self.eigenvalues / 2
        counts = np.asarray(num_steps, dtype=np.float64)
        return np.asarray(parts @ np.abs(1 - step * self.eigenvalues[:, None]) ** (2 * counts))
