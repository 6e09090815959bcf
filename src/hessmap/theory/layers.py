"""Formulas for the Hessian of one layer: output factors from weights, overlap of models, full Hessian, wide limits.

Closed forms of the output factor E[M] from weights alone, or from weights and activities.

S = W^(L) .. W^(p+1) maps the outputs of layer p to the logits if every unit after it were active; S_q weights every
unit by the fraction q of samples on which it is. Row i of S belongs to logit i.

The overlap of the top eigenspaces of a layer in two models follows from their Kronecker factors.

The top eigenvectors of the full Hessian follow from its output factor and the mean inputs of the layers.

A wide two-layer ReLU network at initialisation on rectified Gaussian inputs: Theorems 4.1 and 4.2 of Wu et al. 2022.

W1 (n x d) and W2 (c x n) have independent entries N(0, 1/d) and N(0, 1/n); inputs are max(0, N(0, I_d)). M is the
output Hessian of the first layer, E[D W2^T A W2 D], D the activity pattern. What the theorems state holds: as n grows
M and the layer Hessian keep c - 1 large eigenvalues, and the space of M is that of

    M* = E[D' W2^T A W2 D'],  D' independent of A.

The closed form printed for M* does not: it takes every unit to be active half of the time (Lemma B.1: the sums of the
rows of W1 would vanish like 1/sqrt(n); they are N(0, 1) for every n). Given W1, unit i is active with probability q_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import asin, pi

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

__all__ = [
    "FactorSpectra",
    "FullEigenpairs",
    "activity",
    "activity_weighted_product",
    "full_eigenpairs",
    "growth_end",
    "limit_subspace",
    "linear_growth",
    "logit_subspace",
    "mean_squared_activity_limit",
    "output_factor_from_weights",
    "output_factor_limit",
    "predicted_overlap",
    "printed_full_eigenpairs",
    "printed_output_factor_limit",
    "printed_subspace_overlap_limit",
    "row_space_without_ones",
    "weight_product",
]


Floats = NDArray[np.float64]


def weight_product(weights: Sequence[ArrayLike], num_outputs: int) -> Floats:
    """S = W^(L) .. W^(p+1), from the weights in order of execution; the identity for the last layer.

    Args:
        weights: Weights after the layer, in order of execution.
        num_outputs: Number of outputs of the layer, for the identity where no weight follows.

    Returns:
        S = W^(L) .. W^(p+1).

    Example:
        >>> weight_product([[[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0]]], num_outputs=2)
        array([[1., 2.]])
    """
    return reduce(lambda product, weight: np.asarray(weight, dtype=np.float64) @ product, weights, np.eye(num_outputs))


def activity_weighted_product(
    weights: Sequence[ArrayLike], activities: Sequence[ArrayLike], num_outputs: int
) -> Floats:
    """S_q = W^(L) diag(q^(L-1)) .. W^(p+1) diag(q^(p)), q the fraction of samples on which a unit is active.

    Args:
        weights: Weights after the layer, in order of execution.
        activities: By hidden layer, the fraction q of samples on which each unit is active.
        num_outputs: Number of outputs of the layer, for the identity where no weight follows.

    Returns:
        S_q.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        Kind of result: heuristic, exact for independent activities in the limit of Theorem 4.2. It follows from the
        correction of that theorem (see ``wide_limit``), and its top space was nearer to that of the measured E[M] than
        the one of S in every trained layer tried: 0.98 against 0.86 to 0.89 on digits, two hidden layers of 100.

    Example:
        >>> activity_weighted_product([[[1.0, 1.0]]], [[0.5, 1.0]], num_outputs=2)
        array([[0.5, 1. ]])
    """
    must = "there must be one vector of activities per weight"
    require(len(weights) == len(activities), must, f"got {len(activities)} for {len(weights)} weights")
    scaled = [np.asarray(w, dtype=np.float64) * np.asarray(q) for w, q in zip(weights, activities, strict=True)]
    return weight_product(scaled, num_outputs)


def logit_subspace(product: ArrayLike) -> Floats:
    """An orthonormal basis of S^T (1-perp), the range of S^T A S: c - 1 columns.

    Args:
        product: Product S (or S_q) of the weights after the layer.

    Returns:
        Orthonormal columns.

    Notes:
        Reference: Wu et al. 2022, remark after Theorem 4.2, R(S) without 1^T S; corrected: read as the complement of
        S^T 1 inside the row space (``row_space_without_ones``) it is not what M = G^T A G implies, and overlaps less
        with the measured space in 30 of 30 trained hidden layers.

    Example:
        >>> logit_subspace([[1.0, 0.0], [0.0, 1.0]]).round(12) ** 2
        array([[0.5],
               [0.5]])
    """
    centred = _matrix(product) - _matrix(product).mean(axis=0)
    return _leading_rows(centred, len(centred) - 1)


def row_space_without_ones(product: ArrayLike) -> Floats:
    """The complement of S^T 1 inside the row space of S, orthonormal columns: ``logit_subspace`` as printed.

    Args:
        product: Product S (or S_q) of the weights after the layer.

    Returns:
        Orthonormal columns.
    """
    rows = _matrix(product)
    basis = _leading_rows(rows, len(rows))
    ones = basis.T @ rows.sum(axis=0)
    complement = np.linalg.svd(ones[None, :], full_matrices=True)[2][1:].T
    return np.asarray(basis @ complement)


def output_factor_from_weights(product: ArrayLike, mean_output_hessian: ArrayLike, num_activations: int = 0) -> Floats:
    """M~ = 4^-(L-p) S^T E[A] S, where ``num_activations`` = L - p activations lie behind the layer.

    Args:
        product: Product S (or S_q) of the weights after the layer.
        mean_output_hessian: Mean E[A] of the second derivative of the loss with respect to the logits.
        num_activations: Number L - p of activations after the layer. Defaults to 0.

    Returns:
        M~, or M_q for S_q.

    Notes:
        With S_q for S and ``num_activations`` = 0 it is M_q = S_q^T E[A] S_q.

        Reference: Wu et al. 2022, equation 272; corrected: it needs E[A], not A. The factor 4^-(L-p) is too small on
        trained networks (the largest eigenvalue is 1.5 to 6 times that of M~; for M_q 1.1 to 1.2), so only the
        eigenvectors of M~ mean something.
    """
    rows = _matrix(product)
    factor = rows.T @ np.asarray(mean_output_hessian, dtype=np.float64) @ rows
    return np.asarray(factor / 4.0**num_activations)


def _matrix(product: ArrayLike) -> Floats:
    rows = np.asarray(product, dtype=np.float64)
    require(rows.ndim == 2 and len(rows) >= 2, "S must be a matrix with a row per logit", f"got shape {rows.shape}")
    return rows


def _leading_rows(rows: Floats, count: int) -> Floats:
    _, sizes, directions = np.linalg.svd(rows, full_matrices=False)
    rank = int((sizes > 1e-12 * sizes[0]).sum()) if sizes[0] > 0 else 0
    require(rank >= count, f"the rows of S must span {count} dimensions", f"they span {rank}")
    return np.ascontiguousarray(directions[:count].T)


@dataclass(frozen=True, eq=False)
class FactorSpectra:
    """Eigenpairs of both factors of one model's layer, descending, eigenvectors as columns.

    Attributes:
        output_values: Eigenvalues of the output factor, descending.
        output_vectors: Eigenvectors of the output factor, as columns.
        input_values: Eigenvalues of the input factor, descending.
        input_vectors: Eigenvectors of the input factor, as columns.
    """

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

    Args:
        output_values: Eigenvalues of the output factor, descending.
        input_values: Eigenvalues of the input factor, descending.

    Returns:
        k*.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``output_values`` tau and ``input_values`` gamma are the factors' eigenvalues, descending. Up to k* the overlap
        of two models grows like (k/m) (t_1 . t_1')^2 (Theorem G.1 of Wu et al. 2022, whose hypothesis is k* = m); its
        peak is near the smaller k* of the two. With separable classes only c - 1 of the tau are large, and the peak is
        at c - 1.

    Example:
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

    Args:
        num_outputs: Number m of outputs of the layer.
        mean_overlap: Squared overlap (t_1 . t_1')^2 of the top eigenvectors of the input factors.
        end: Number k* of values, from ``growth_end``.

    Returns:
        The overlap for k = 1 .. k*.

    Notes:
        ``mean_overlap`` is (t_1 . t_1')^2. Reference: Wu et al. 2022, Theorem G.1 and equation 268, whose derivation
        drops a factor 1/k and a sum over k terms, which cancel. Exact for eigenvectors r_i that are Haar-random.

    Example:
        >>> linear_growth(4, 0.5, 2)
        array([0.125, 0.25 ])
    """
    return np.arange(1, end + 1) / num_outputs * mean_overlap


def predicted_overlap(first: FactorSpectra, second: FactorSpectra, count: int) -> Floats:
    """Overlap of the top-k spaces of two Kronecker products for k = 1 .. count, from their factors.

    Args:
        first: Factor spectra of the first network.
        second: Factor spectra of the second network.
        count: Largest dimension k of the spaces.

    Returns:
        The overlap for k = 1 .. count.

    Notes:
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
    require(1 <= count <= values.size, f"count must be between 1 and {values.size}", f"got {count}")
    order = np.argsort(-values.ravel(), kind="stable")[:count]
    return order // values.shape[1], order % values.shape[1]


@dataclass(frozen=True, eq=False)
class FullEigenpairs:
    """Eigenvalues, descending, and orthonormal eigenvectors ordered layer by layer, rows [W_i, b_i].

    Attributes:
        eigenvalues: Eigenvalues, descending.
        eigenvectors: Orthonormal eigenvectors as columns, ordered layer by layer, rows [W_i, b_i].
    """

    eigenvalues: Floats
    eigenvectors: Floats


def full_eigenpairs(
    output_factor: ArrayLike, mean_inputs: Sequence[ArrayLike], num_outputs: Sequence[int], count: int
) -> FullEigenpairs:
    """E[F^T A F] with every (extended) input replaced by its mean: B E[M] B^T, B = blockdiag(I (x) E[x~^(p)]).

    Args:
        output_factor: Full E[M] over the outputs of all layers, one after another.
        mean_inputs: Mean extended input E[x~^(p)] of each layer.
        num_outputs: Number of outputs of each layer.
        count: Number of eigenpairs.

    Returns:
        The top eigenpairs.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.

    Notes:
        ``output_factor`` is the full E[M] over the outputs of all layers one after another (``num_outputs`` of each),
        ``mean_inputs`` the E[x~^(p)]. With C = blockdiag(||E x~^(p)|| I), C E[M] C y = lambda y gives eigenvalue lambda
        and eigenvector B C^-1 y, which are orthonormal.

        Kind of result: heuristic; exact if inputs do not vary and residuals vanish.

        Reference: Wu et al. 2022, equations 261 to 263; corrected: eigenvectors u of E[M] itself give B u, which are
        neither orthogonal nor ordered unless all mean inputs have one norm. On digits (two hidden layers of 32 and of
        100) the overlap with the true top eigenvector was 0.91 to 0.94, with the printed form 0.76 to 0.89.

    Example:
        >>> found = full_eigenpairs(np.diag([1.0, 1.0]), [[2.0], [1.0]], num_outputs=(1, 1), count=1)
        >>> found.eigenvalues, np.abs(found.eigenvectors[:, 0])
        (array([4.]), array([1., 0.]))
    """
    factor, means = _checked_factors(output_factor, mean_inputs, num_outputs, count)
    norms = np.array([np.linalg.norm(mean) for mean in means])
    scales = np.repeat(norms, num_outputs)
    values, vectors = np.linalg.eigh(scales[:, None] * factor * scales)
    top = vectors[:, ::-1][:, :count]
    units = [mean / norm if norm > 0 else mean for mean, norm in zip(means, norms, strict=True)]
    return FullEigenpairs(values[::-1][:count].copy(), _unit_rows(top, units, num_outputs))


def printed_full_eigenpairs(
    output_factor: ArrayLike, mean_inputs: Sequence[ArrayLike], num_outputs: Sequence[int], count: int
) -> FullEigenpairs:
    """Equations 261 to 263 as printed: w_i = B u_i, lambda_i = sigma_i ||w_i||^2, vectors made orthonormal in order.

    Args:
        output_factor: Full E[M] over the outputs of all layers, one after another.
        mean_inputs: Mean extended input E[x~^(p)] of each layer.
        num_outputs: Number of outputs of each layer.
        count: Number of eigenpairs.

    Returns:
        The eigenpairs as printed.

    Raises:
        InvalidInput: If an argument is out of range or contradicts another.
    """
    factor, means = _checked_factors(output_factor, mean_inputs, num_outputs, count)
    values, vectors = np.linalg.eigh(factor)
    spread = _unit_rows(vectors[:, ::-1][:, :count], means, num_outputs)
    eigenvalues = values[::-1][:count] * np.square(np.linalg.norm(spread, axis=0))
    return FullEigenpairs(eigenvalues, np.linalg.qr(spread)[0])


def _checked_factors(
    output_factor: ArrayLike, mean_inputs: Sequence[ArrayLike], num_outputs: Sequence[int], count: int
) -> tuple[Floats, list[Floats]]:
    factor = np.asarray(output_factor, dtype=np.float64)
    fits = factor.shape == (sum(num_outputs),) * 2 and len(mean_inputs) == len(num_outputs)
    must = "the output factor must be square over the outputs of all layers, with one mean input per layer"
    require(fits, must, f"got {factor.shape} for {tuple(num_outputs)} and {len(mean_inputs)} means")
    require(1 <= count <= len(factor), f"count must be between 1 and {len(factor)}", f"got {count}")
    return factor, [np.asarray(mean, dtype=np.float64) for mean in mean_inputs]


def _unit_rows(vectors: Floats, means: Sequence[Floats], num_outputs: Sequence[int]) -> Floats:
    """B u: every layer's part times its mean input, rows of units."""
    parts = np.split(vectors, np.cumsum(num_outputs)[:-1])
    rows = [
        np.einsum("ik,a->iak", part, mean).reshape(-1, part.shape[1]) for part, mean in zip(parts, means, strict=True)
    ]
    return np.concatenate(rows)


def activity(first_weight: ArrayLike) -> Floats:
    """q_i = Phi(sum_j W_ij / (sqrt(pi - 1) ||W_i||)): how often a unit is active on rectified Gaussian inputs.

    Args:
        first_weight: Weight matrix W1.

    Returns:
        q_i of every hidden unit.

    Notes:
        The input has mean 1/sqrt(2 pi) and variance (1 - 1/pi)/2 in every entry, and the sum over many entries is
        Gaussian.

        Reference: replaces the Bernoulli(1/2) of Wu et al. 2022, Lemmas B.1, B.9 and B.10.

    Example:
        >>> activity([[1.0, -1.0]])
        array([0.5])
    """
    from scipy.special import ndtr  # here, because predictions must start fast

    rows = np.atleast_2d(np.asarray(first_weight, dtype=np.float64))
    return np.asarray(ndtr(rows.sum(axis=1) / (np.sqrt(pi - 1) * np.linalg.norm(rows, axis=1))))


def output_factor_limit(second_weight: ArrayLike, mean_output_hessian: ArrayLike, activities: ArrayLike) -> Floats:
    """M* = diag(q) K diag(q) + diag(q (1 - q) diag K), K = W2^T E[A] W2.

    Args:
        second_weight: Weight matrix W2.
        mean_output_hessian: Mean E[A] of the second derivative of the loss with respect to the logits.
        activities: Fraction q of samples on which each hidden unit is active.

    Returns:
        M*.

    Notes:
        Reference: corrects equation 8 of Wu et al. 2022, which is this with q = 1/2 throughout. Monte Carlo, c = 4,
        means of 3 seeds: top spaces of M and of this overlap by 0.989 (n = 16), 0.9992 (64), 0.9999 (1024); with the
        printed form by 0.82 to 0.84 at every n.

    Example:
        >>> output_factor_limit([[1.0, -1.0]], [[1.0]], [0.5, 0.5])
        array([[ 0.5 , -0.25],
               [-0.25,  0.5 ]])
    """
    weight = np.asarray(second_weight, dtype=np.float64)
    q = np.asarray(activities, dtype=np.float64)
    middle = weight.T @ np.asarray(mean_output_hessian, dtype=np.float64) @ weight
    return np.asarray(q[:, None] * middle * q + np.diag(q * (1 - q) * np.diag(middle)))


def printed_output_factor_limit(second_weight: ArrayLike, mean_output_hessian: ArrayLike) -> Floats:
    """1/4 (K + diag K): equation 8 of Wu et al. 2022 as printed.

    Args:
        second_weight: Weight matrix W2.
        mean_output_hessian: Mean E[A] of the second derivative of the loss with respect to the logits.

    Returns:
        M* as printed.
    """
    weight = np.asarray(second_weight, dtype=np.float64)
    return output_factor_limit(weight, mean_output_hessian, np.full(weight.shape[1], 0.5))


def limit_subspace(second_weight: ArrayLike, activities: ArrayLike) -> Floats:
    """diag(q) W2^T (1-perp): the top c - 1 space of M as n grows, orthonormal columns.

    Args:
        second_weight: Weight matrix W2.
        activities: Fraction q of samples on which each hidden unit is active.

    Returns:
        Orthonormal columns.

    Notes:
        Reference: Wu et al. 2022, Theorem 4.2; corrected by diag(q).
    """
    return logit_subspace(np.asarray(second_weight, dtype=np.float64) * np.asarray(activities, dtype=np.float64))


def mean_squared_activity_limit() -> float:
    """E[q^2] -> 1/4 + asin(1/pi) / (2 pi), since q = Phi(g / sqrt(pi - 1)), g ~ N(0, 1); E[q] = 1/2.

    Returns:
        The limit of E[q^2].

    Example:
        >>> round(mean_squared_activity_limit(), 5)
        0.30156
    """
    return 0.25 + asin(1 / pi) / (2 * pi)


def printed_subspace_overlap_limit() -> float:
    """(1/4) / E[q^2]: what the printed space R(W2) without 1^T W2 overlaps with the true one as n grows, not 1.

    Returns:
        The limit of the overlap.

    Example:
        >>> round(printed_subspace_overlap_limit(), 5)
        0.82903
    """
    return 0.25 / mean_squared_activity_limit()
