"""How much of a layer Hessian its two factors explain, compared with the best Kronecker product."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.errors import checked_count, checked_number, checked_seed, require, require_name, short_text
from hessmap.layers.eigenpairs import layer_eigenpairs, require_layer_hessian
from hessmap.layers.factors import PatchRule
from hessmap.layers.hessian import LayerHessian
from hessmap.layers.kronecker import KroneckerProduct
from hessmap.linalg import SymmetricOperator, to_host
from hessmap.measurement import EPS, float_array, overlap_curve, reachable_tolerance, spectrum, top_eigenpairs
from hessmap.records import (
    AutocorrelationMeasurement,
    DecouplingMeasurement,
    EigenpairsMeasurement,
    KroneckerFit,
    OutlierMeasurement,
)

_EXACT_SIZE = 2000  # up to which the squared entries are summed
_NUM_PROBES = 32  # of the squared norm of a larger one, whose standard error is reported
_MAX_STEPS = 500  # of the power method; the record has the number that it took


def decoupling(
    hessian: LayerHessian,
    count: int,
    *,
    tolerance: float | None = None,
    patch_rule: PatchRule = "uncorrelated_patches",
    eigenpairs: EigenpairsMeasurement | None = None,
    seed: int = 0,
) -> DecouplingMeasurement:
    """Compare a layer Hessian with E[M] (x) E[x x^T] and with the nearest Kronecker product.

    Args:
        hessian: Layer Hessian, from ``layer_hessian``.
        count: Number of leading eigenpairs that are compared.
        tolerance: Tolerance of the eigenpairs. Defaults to 1e-6, or 1e-5 for a Hessian in float32.
        patch_rule: How positions are combined in the factors, see ``layer_factors``. Defaults to
            "uncorrelated_patches".
        eigenpairs: Result of ``layer_eigenpairs(hessian, count)``. Defaults to None: they are computed.
        seed: Seed of start vectors and probes. Defaults to 0.

    Returns:
        DecouplingMeasurement: relative errors in the spectral and Frobenius norm, top eigenvalues, and overlaps of the
            top-k
        eigenspaces for all k up to ``count``.

    Raises:
        InvalidInput: If the eigenpairs are not those of the layer.

    Example:
        >>> import torch, hessmap as hm
        >>> model = hm.FullyConnected((3, 4, 2), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", torch.randn(9, 3), torch.randint(2, (9,)))
        >>> measured = decoupling(hm.layer_hessian(problem, "0"), 3)
        >>> measured.best.frobenius_error <= measured.expectation.frobenius_error + 1e-9
        True
    """
    require_layer_hessian(hessian)
    require_name("patch_rule", patch_rule, get_args(PatchRule))
    seed = checked_seed(seed)
    tolerance = reachable_tolerance(hessian, 1e-6) if tolerance is None else tolerance
    found = eigenpairs
    if found is None:
        found = layer_eigenpairs(hessian, count, tolerance=tolerance, seed=seed)
    is_fit = isinstance(found, EigenpairsMeasurement) and found.eigenvectors is not None and found.size == hessian.size
    require(is_fit, "eigenpairs must be those of the layer, with their vectors", f"got {short_text(found)}")
    square = _squared_norm(hessian, found, seed)
    best = best_kronecker_product(hessian)
    fits = [
        _fit(hessian, product, found, square, seed)
        for product in (hessian.kronecker_approximation(patch_rule), best.product)
    ]
    return DecouplingMeasurement(
        layer=hessian.layer.name,
        eigenvalues=found.eigenvalues,
        expectation=fits[0],
        best=fits[1],
        best_converged=best.converged,
        eigenpairs_converged=found.converged,
        num_samples=hessian.num_samples,
        size=hessian.size,
        provenance=hessian.provenance,
    )


@dataclass(frozen=True, eq=False)
class BestKronecker:
    """The nearest Kronecker product to a layer Hessian; its squared relative distance is 1 - (sigma / ||H||_F)^2.

    Attributes:
        product: The Kronecker product.
        sigma: Largest singular value of the rearranged Hessian.
        num_steps: Steps of the power method.
        converged: Whether value and factors reached the tolerance.
    """

    product: KroneckerProduct
    sigma: float
    num_steps: int
    converged: bool


def best_kronecker_product(hessian: LayerHessian, tolerance: float | None = None) -> BestKronecker:
    """Find B (x) C with the smallest ||H - B (x) C||_F.

    Args:
        hessian: Layer Hessian, from ``layer_hessian``.
        tolerance: Relative change of the singular value at which the iteration ends. Defaults to 1e-12, or 1e-5 for a
            Hessian in float32.

    Returns:
        BestKronecker: the product over the weight as it is stored (for an embedding B belongs to the inputs).

    Raises:
        InvalidInput: If the tolerance is not between 0 and 1.

    Notes:
        Leading singular pair of the rearranged H (Van Loan & Pitsianis 1993), by the power method on contractions of H,
        started from the second moment of the inputs. Both factors are symmetric, and positive semi-definite if H is.
    """
    require_layer_hessian(hessian)
    tolerance = reachable_tolerance(hessian, 1e-12) if tolerance is None else checked_number("tolerance", tolerance)
    require(0 < tolerance < 1, "tolerance must be between 0 and 1", f"got {tolerance}")
    right = _unit(hessian.factors["uncorrelated_patches"].input_factor)
    if hessian.layer.is_transposed:
        right = _unit(hessian.contract_outputs(right))
    sigma, converged, step = 0.0, False, 0
    left = torch.zeros(hessian.weight_shape[0], hessian.weight_shape[0], dtype=torch.float64)
    for step in range(1, _MAX_STEPS + 1):  # noqa: B007 - the count is reported
        left = _unit(hessian.contract_inputs(right))
        contracted = hessian.contract_outputs(left)
        before, sigma = sigma, float(contracted.norm())
        change = float((contracted / (sigma or 1.0) - right).norm())
        right = _unit(contracted)
        # The value settles twice as fast as the factors: both are asked.
        converged = abs(sigma - before) <= tolerance * sigma and change <= tolerance**0.5
        if converged:
            break
    return BestKronecker(KroneckerProduct(sigma * left, right, hessian.layout), sigma, step, converged)


def _unit(matrix: Tensor) -> Tensor:
    symmetric = (matrix + matrix.T) / 2
    size = float(symmetric.norm())
    return symmetric / size if size else symmetric


@dataclass(frozen=True)
class _SquaredNorm:
    value: float
    standard_error: float


def _squared_norm(hessian: LayerHessian, found: EigenpairsMeasurement, seed: int) -> _SquaredNorm:
    """||H||_F^2: exact for small layers, else squares of the top eigenvalues plus a probe estimate of the rest."""
    if hessian.size <= _EXACT_SIZE:
        return _SquaredNorm(float(to_host(hessian.to_dense()).square().sum()), 0.0)
    assert found.eigenvectors is not None
    top = torch.from_numpy(found.eigenvectors)
    generator = torch.Generator().manual_seed(seed)
    probes = torch.randn(hessian.size, _NUM_PROBES, generator=generator, dtype=torch.float64)
    products = hessian.matmat(probes - top @ (top.T @ probes))
    squares = (products - top @ (top.T @ products)).square().sum(0)
    rest, error = float(squares.mean()), float(squares.std()) / _NUM_PROBES**0.5
    return _SquaredNorm(float(np.square(found.eigenvalues).sum()) + rest, error)


class _Difference(SymmetricOperator):
    def __init__(self, first: KroneckerProduct, second: LayerHessian) -> None:
        self.first, self.second = first, second
        self.device = torch.device("cpu")
        self.dtype = second.dtype

    @property
    def size(self) -> int:
        return self.first.size

    def matmat(self, vectors: Tensor) -> Tensor:
        first = self.first.matmat(to_host(vectors))
        return first - to_host(self.second.matmat(vectors))


def _fit(
    hessian: LayerHessian, product: KroneckerProduct, found: EigenpairsMeasurement, square: _SquaredNorm, seed: int
) -> KroneckerFit:
    inner = float((hessian.contract_inputs(product.input_factor) * product.output_factor).sum())
    distance = max(0.0, square.value - 2 * inner + product.frobenius_norm**2)
    relative = (distance / square.value) ** 0.5 if square.value else 0.0
    norm = float(np.abs(found.eigenvalues).max())
    far = top_eigenpairs(_Difference(product, hessian), 1, which="magnitude", tolerance=1e-4, seed=seed)
    pairs = product.leading(len(found.eigenvalues))
    assert found.eigenvectors is not None
    overlap = overlap_curve(found.eigenvectors, product.eigenvectors(pairs)).values
    error = abs(distance - square.value) * square.standard_error / (2 * relative * square.value**2) if relative else 0.0
    return KroneckerFit(
        spectral_error=float(abs(far.eigenvalues[0])) / norm if norm else 0.0,
        frobenius_error=relative,
        frobenius_standard_error=error,
        eigenvalues=pairs.eigenvalues.numpy(),
        overlap=overlap,
    )


Matrix = Tensor | NDArray[Any]


def autocorrelation(second_moment: Matrix, mean: Matrix) -> AutocorrelationMeasurement:
    """Measure how close E[x x^T] is to rank one, along E[x].

    Args:
        second_moment: E[x x^T], a square matrix.
        mean: E[x], or for a convolution the matrix E[X] of mean patches (positions x inputs), whose leading singular
            direction and value replace E[x] and its norm.

    Returns:
        AutocorrelationMeasurement: squared cosine, eigenvalue ratio and its bound.

    Raises:
        InvalidInput: If the shapes do not match.

    Notes:
        ||E[x]||^2 / ||Cov x|| <= lambda_1 / lambda_2 always holds (Weyl: lambda_1 >= ||E[x]||^2 and lambda_2 <= ||Cov
        x||); Wu et al. (2022, equation 264) subtract one from it.

    Example:
        >>> found = autocorrelation(np.diag([5.0, 1.0]), np.array([2.0, 0.0]))
        >>> found.squared_cosine, found.eigenvalue_ratio, found.ratio_bound
        (1.0, 5.0, 4.0)
    """
    moment, means = float_array(second_moment, "a second moment"), np.atleast_2d(float_array(mean, "a mean"))
    is_fit = means.ndim == 2 and means.size > 0 and moment.shape == (means.shape[1],) * 2
    must = "a second moment must be square, with one row per entry of the mean"
    require(is_fit, must, f"got shape {moment.shape} and a mean of shape {means.shape}")
    found = spectrum(moment, vectors=True)
    assert found.eigenvectors is not None
    _, sizes, directions = np.linalg.svd(means, full_matrices=False)
    along = sizes[0] * directions[0]
    covariance = spectrum(moment - np.outer(along, along)).eigenvalues
    values = found.eigenvalues
    return AutocorrelationMeasurement(
        squared_cosine=float(found.eigenvectors[:, 0] @ directions[0]) ** 2 if sizes[0] > 0 else 0.0,
        eigenvalue_ratio=ratio(values[0], values[1] if len(values) > 1 else 0.0, values[0]),
        ratio_bound=ratio(sizes[0] ** 2, covariance[0], values[0]),
        eigenvalues=values,
        mean_norm=float(sizes[0]),
    )


def class_outliers(eigenvalues: Matrix, num_classes: int) -> OutlierMeasurement:
    """Measure whether c - 1 eigenvalues are separated from the others, for c classes.

    Args:
        eigenvalues: Eigenvalues of E[M] or of a layer Hessian, in descending order.
        num_classes: Number of classes, at least 2.

    Returns:
        OutlierMeasurement: ratio after c - 1 eigenvalues, number of outliers by the largest ratio, and their share of
            the sum of
        magnitudes (with negative eigenvalues the plain sum may be zero).

    Raises:
        InvalidInput: If there are fewer eigenvalues than classes, or they are not sorted.

    Example:
        >>> class_outliers(np.array([9.0, 8.0, 1.0, 0.9]), num_classes=3).ratio
        8.0
        >>> class_outliers(np.array([3.0, 1.0, -4.0]), num_classes=3).share
        0.5
    """
    values, num_classes = float_array(eigenvalues, "eigenvalues"), checked_count("num_classes", num_classes, 2)
    enough = f"the outliers of {num_classes} classes need as many eigenvalues in descending order, and two classes"
    is_sorted = values.ndim == 1 and bool((np.diff(values) <= 0).all())
    require(2 <= num_classes <= values.size and is_sorted, enough, f"got {values.size}")
    ratios = np.array([ratio(before, after, values[0]) for before, after in pairwise(values)])
    searched = ratios[: 3 * num_classes]
    return OutlierMeasurement(
        num_classes=num_classes,
        ratio=float(ratios[num_classes - 2]),
        num_outliers=int(searched.argmax()) + 1,
        largest_ratio=float(searched.max()),
        share=float(values[: num_classes - 1].clip(min=0.0).sum() / np.abs(values).sum()) if values.any() else 0.0,
        eigenvalues=values,
    )


def ratio(larger: float, smaller: float, scale: float) -> float:
    """Ratio of two eigenvalues; infinite if the smaller is zero to the rounding of the scale."""
    is_zero = smaller <= 100 * EPS * abs(scale)
    return float("inf") if is_zero else float(larger / smaller)
