"""How the top eigenspaces of a layer overlap between two models, from their Kronecker factors alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FactorSpectra:
    """Eigenpairs of both factors of one model's layer, descending, eigenvectors as columns."""

    output_values: Floats
    output_vectors: Floats
    input_values: Floats
    input_vectors: Floats

    @classmethod
    def of(cls, output_factor: ArrayLike, input_factor: ArrayLike) -> FactorSpectra:
        pairs = [np.linalg.eigh(np.asarray(factor, dtype=np.float64)) for factor in (output_factor, input_factor)]
        (tau, r), (gamma, t) = ((values[::-1], vectors[:, ::-1]) for values, vectors in pairs)
        return cls(tau.copy(), r.copy(), gamma.copy(), t.copy())


def growth_end(output_values: ArrayLike, input_values: ArrayLike) -> int:
    """k* = #{i: tau_i gamma_1 > tau_1 gamma_2}: for how long top eigenvectors of the product are r_i (x) t_1.

    ``output_values`` tau and ``input_values`` gamma are the factors' eigenvalues, descending. Up to k* the overlap of
    two models grows like (k/m) (t_1 . t_1')^2 (Theorem G.1 of Wu et al. 2022, whose hypothesis is k* = m); its peak is
    near the smaller k* of the two. With separable classes only c - 1 of the tau are large, and the peak is at c - 1.

    >>> growth_end([5.0, 4.0, 0.1], [10.0, 1.0])
    2
    """
    tau, gamma = np.asarray(output_values, dtype=np.float64), np.asarray(input_values, dtype=np.float64)
    must = "eigenvalues must be descending, with a positive first one"
    for values in (tau, gamma):
        is_fine = values.ndim == 1 and values.size > 0 and values[0] > 0 and bool((np.diff(values) <= 0).all())
        require(is_fine, must, f"got {values[:4]}")
    second = gamma[1] if len(gamma) > 1 else 0.0
    return int((tau * gamma[0] > tau[0] * second).sum())


def linear_growth(num_outputs: int, mean_overlap: float, end: int) -> Floats:
    """(k/m) (t_1 . t_1')^2 for k = 1 .. k*: the mean over random relative orders of the units.

    ``mean_overlap`` is (t_1 . t_1')^2. Reference: Wu et al. 2022, Theorem G.1 and equation 268, whose derivation drops
    a factor 1/k and a sum over k terms, which cancel. Exact for eigenvectors r_i that are Haar-random.

    >>> linear_growth(4, 0.5, 2)
    array([0.125, 0.25 ])
    """
    return np.arange(1, end + 1) / num_outputs * mean_overlap


def predicted_overlap(first: FactorSpectra, second: FactorSpectra, count: int) -> Floats:
    """Overlap of the top-k spaces of two Kronecker products for k = 1 .. count, from their factors.

    Vectors r_i (x) t_j are compared pair by pair: (r_i . r_i')^2 (t_j . t_j')^2, summed over the leading k of each.
    """
    pairs = [_leading(spectra, count) for spectra in (first, second)]
    (i, j), (i_other, j_other) = pairs
    outputs = np.square(first.output_vectors[:, i].T @ second.output_vectors[:, i_other])
    inputs = np.square(first.input_vectors[:, j].T @ second.input_vectors[:, j_other])
    sums = np.cumsum(np.cumsum(outputs * inputs, axis=0), axis=1).diagonal()
    return np.asarray(sums / np.arange(1, count + 1))


def _leading(spectra: FactorSpectra, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    values = np.outer(spectra.output_values, spectra.input_values)
    require(1 <= count <= values.size, f"count must lie between 1 and {values.size}", f"got {count}")
    order = np.argsort(-values.ravel(), kind="stable")[:count]
    return order // values.shape[1], order % values.shape[1]
