"""Spectra, what is computed from them, and estimates from random probes with their standard errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Spectrum(Record):
    """Eigenvalues of a symmetric matrix, how they were computed, and their errors.

    Attributes:
        eigenvalues: In descending order.
        method: How they were computed.
        converged: Whether all meet the tolerance.
        residuals: ||H v - lambda v|| per eigenpair if vectors were requested; otherwise empty.
        scale: The norm that thresholds are relative to (that of the loss Hessian, for all three Hessians).
        num_zeros: Exact zeros that a reduction removed; ``eigenvalues`` contains them as 0.0. Defaults to 0.
        eigenvectors: As columns. Default: None.
        provenance: Versions, number format, seed and data. Default: None.
        eigenvalue_error: Absolute bound on the error of any eigenvalue. Default: None, unknown.
        kernel_residual: Bound on ||H K|| / ||H|| of the kernel K that a reduction removed. Defaults to 0.
        size: Number of rows of the matrix, if only some eigenvalues are known. Default: None, all are.
        entries: Number format of the matrix, whose rounding the eigenvalues have. Defaults to "float64".
    """

    eigenvalues: Floats
    method: str
    converged: bool
    residuals: Floats
    scale: float
    num_zeros: int = 0
    eigenvectors: Floats | None = field(default=None, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    eigenvalue_error: float | None = None
    kernel_residual: float = 0.0
    size: int | None = None
    entries: str = "float64"
    summary_fields: ClassVar[tuple[str, ...]] = ("eigenvalues", "method", "converged", "scale", "eigenvalue_error")

    @property
    def is_complete(self) -> bool:
        """Whether every eigenvalue of the matrix is held."""
        return self.size is None or self.size == len(self.eigenvalues)

    @property
    def norm(self) -> float:
        """The largest magnitude among the eigenvalues: the spectral norm of the matrix."""
        return float(np.abs(self.eigenvalues).max(initial=0.0))

    @property
    def smallest_kept(self) -> float:
        """The smallest magnitude among the eigenvalues that no reduction took out (0.0 if there is none)."""
        magnitudes = np.sort(np.abs(self.eigenvalues))[self.num_zeros :]
        return float(magnitudes[0]) if magnitudes.size else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class EigenpairsMeasurement(Record):
    """Some eigenpairs of a large symmetric operator with their residuals.

    Attributes:
        eigenvalues: In descending order.
        residuals: ||A v - lambda v|| of each pair.
        converged: Whether every residual meets the tolerance and a random block that was added to the basis showed no
            further value.
        which: Which end of the spectrum was requested.
        tolerance: Largest accepted residual, relative to ``norm`` or to |lambda|.
        relative_to: Which of the two.
        norm: Largest Ritz value in magnitude.
        num_products: Matrix-vector products that it took.
        num_probes: Random blocks that were added to look for missed values.
        num_restarts: Restarts of the iteration.
        residual_check: Norm of one random combination of all residuals from a product made for it: about the root of
            the sum of their squares if they are correct.
        size: Number of rows of the matrix.
        seed: Seed of the random vectors.
        eigenvectors: As columns. Default: None.
        provenance: Versions, number format, seed and data. Default: None.
        num_single_products: Products made in float32; residuals are in float64. Defaults to 0.
    """

    eigenvalues: Floats
    residuals: Floats
    converged: bool
    which: str
    tolerance: float
    relative_to: str
    norm: float
    num_products: int
    num_probes: int
    num_restarts: int
    residual_check: float
    size: int
    seed: int
    eigenvectors: Floats | None = field(default=None, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    num_single_products: int = 0
    summary_fields: ClassVar[tuple[str, ...]] = (
        "eigenvalues",
        "which",
        "converged",
        "residuals",
        "tolerance",
        "num_products",
        "size",
    )


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveDimension(Record):
    """The number of directions curved by more than epsilon: sum of h / (h + epsilon), h = |eigenvalue|.

    Attributes:
        value: The effective dimension.
        epsilon: The scale below which curvature does not count.
        nuclear_ratio: Sum of magnitudes over the largest: a count without epsilon.
        num_negative: Eigenvalues below minus their error; if positive, the matrix is indefinite and magnitudes were
            summed.
        error_bound: Bound on the error of ``value`` from that of the eigenvalues; None if unknown.
        size: Number of rows of the matrix.
    """

    value: float
    epsilon: float
    nuclear_ratio: float
    num_negative: int
    error_bound: float | None
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class ReconstructionErrors(Record):
    """Errors of the best low-rank approximations of a symmetric matrix in the Frobenius norm.

    Attributes:
        ranks: The ranks.
        errors: ||H - best approximation|| / ||H|| for each rank.
        noise_floor: Error below which only rounding is left; None if unknown.
        size: Number of rows of the matrix.
    """

    ranks: Integers
    errors: Floats
    noise_floor: float | None
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class SubspaceOverlap(Record):
    """Mean squared cosine of the canonical angles of two subspaces: 1 if equal, 0 if orthogonal.

    Attributes:
        value: The overlap.
        num_vectors: Dimension of both subspaces.
        size: Dimension of the space.
        chance: Mean overlap of two random subspaces.
        orthonormality_error: Largest entry of |U^T U - I| of the given bases.
    """

    value: float
    num_vectors: int
    size: int
    chance: float
    orthonormality_error: float


@dataclass(frozen=True, eq=False, repr=False)
class LinearSolution(Record):
    """The solution of (H + shift I) x = b by a factorisation, and its accuracy.

    Attributes:
        solution: x, one column per right-hand side.
        shift: The shift.
        method: The factorisation.
        is_positive_definite: Whether H + shift I is.
        backward_error: ||(H + shift I) x - b|| / (||H + shift I|| ||x|| + ||b||) in the Frobenius norm, the largest
            over the columns; near 1e-16 the solution is exact for a matrix that differs in the last digit.
        reciprocal_condition: 1 / (||(H + shift I)^-1|| (||H|| + |shift|)) in the 1-norm; the solution is accurate to
            about 1e-16 over it.
        size: Number of rows of the matrix.
    """

    solution: Floats
    shift: float
    method: str
    is_positive_definite: bool
    backward_error: float
    reciprocal_condition: float
    size: int
    summary_fields: ClassVar[tuple[str, ...]] = (
        "shift",
        "method",
        "is_positive_definite",
        "backward_error",
        "reciprocal_condition",
        "size",
    )


@dataclass(frozen=True, eq=False, repr=False)
class SpectralEstimate(Record):
    """One number of a large symmetric operator, estimated from products with random vectors.

    Attributes:
        quantity: What is estimated, such as "trace".
        value: The estimate.
        standard_error: Its standard error over the probes; 0 if ``method`` is "exact".
        interval: Confidence interval: Student's quantile times ``standard_error``, widened by ``method_error``.
        confidence: Confidence of the interval.
        method_error: Possible error of the method itself (the quadrature); 0 for traces.
        asked: Requested standard error; None for a fixed number of probes.
        reached: Whether it was reached.
        num_probes: Random vectors.
        num_products: Matrix-vector products that it took.
        method: The estimator.
        size: Number of rows of the matrix.
        seed: Seed of the random vectors.
        provenance: Versions, number format, seed and data. Default: None.
    """

    quantity: str
    value: float
    standard_error: float
    interval: tuple[float, float]
    confidence: float
    method_error: float
    asked: float | None
    reached: bool
    num_probes: int
    num_products: int
    method: str
    size: int
    seed: int
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "quantity",
        "value",
        "standard_error",
        "interval",
        "reached",
        "method",
        "num_probes",
        "num_products",
        "seed",
    )

    def __float__(self) -> float:
        return self.value

    @classmethod
    def of_known(cls, quantity: str, value: float, size: int) -> Self:
        """A number that is read off all eigenvalues, in the place of an estimate."""
        return cls(
            quantity=quantity,
            value=value,
            interval=(value, value),
            method="exact",
            size=size,
            standard_error=0.0,
            confidence=1.0,
            method_error=0.0,
            asked=None,
            reached=True,
            num_probes=0,
            num_products=0,
            seed=0,
        )

    @property
    def brief(self) -> str:
        return self.with_error

    @property
    def with_error(self) -> str:
        """The value and its standard error, if it has one, for people: "155 ± 7"; the interval where the error is no
        less than the value."""
        if self.standard_error and not self.standard_error < abs(self.value):
            return range_text(*self.interval)
        return number_with_error(self.value, self.standard_error)


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalEstimate(Record):
    """The diagonal of a large symmetric operator, each entry with its standard error.

    Attributes:
        values: The diagonal.
        standard_errors: Of each entry; 0 if ``method`` is "exact".
        relative_error: Norm of the standard errors over that of the values.
        asked: Requested relative error.
        reached: Whether it was reached.
        num_probes: Random vectors.
        num_products: Matrix-vector products that it took.
        method: The estimator.
        size: Number of rows of the matrix.
        seed: Seed of the random vectors.
        provenance: Versions, number format, seed and data. Default: None.
    """

    values: Floats
    standard_errors: Floats
    relative_error: float
    asked: float
    reached: bool
    num_probes: int
    num_products: int
    method: str
    size: int
    seed: int
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "values",
        "relative_error",
        "reached",
        "method",
        "num_probes",
        "num_products",
        "seed",
    )


@dataclass(frozen=True, eq=False, repr=False)
class DensityEstimate(Record):
    """A spectral density by stochastic Lanczos quadrature, one Gauss rule per probe, or of all eigenvalues.

    Attributes:
        nodes: Nodes of each rule, shape (probes, steps), padded with nodes of weight 0.
        weights: Their weights; each row sums to 1.
        half_nodes: Nodes of the rules of half as many steps, whose distance from the full ones shows what is resolved.
        half_weights: Their weights.
        is_exact: Per rule, whether its Krylov space was exhausted, so that its nodes are eigenvalues.
        grid: Eigenvalues at which the density is given.
        density: Mean over the probes, smoothed by a Gaussian; it integrates to 1.
        lower: Lower end of the pointwise confidence band (probes, quadrature and rounding), at least 0.
        upper: Upper end.
        width: Standard deviation of the Gaussian.
        confidence: Confidence of the band; 1 if ``method`` is "exact".
        num_probes: Random probes; 0 if ``method`` is "exact".
        num_steps: Requested Lanczos steps per probe; ``size`` if ``method`` is "exact".
        num_products: Matrix-vector products that it took.
        reorthogonalised: Whether Lanczos bases were kept and reorthogonalised.
        size: Number of rows of the matrix.
        seed: Seed of the probes.
        method: "quadrature", or "exact" for one rule of all eigenvalues with equal weights. Defaults to "quadrature".
        provenance: Versions, number format, seed and data. Default: None.
    """

    nodes: Floats
    weights: Floats
    half_nodes: Floats
    half_weights: Floats
    is_exact: NDArray[np.bool_]
    grid: Floats
    density: Floats
    lower: Floats
    upper: Floats
    width: float
    confidence: float
    num_probes: int
    num_steps: int
    num_products: int
    reorthogonalised: bool
    size: int
    seed: int
    method: str = "quadrature"
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "grid",
        "density",
        "width",
        "method",
        "num_probes",
        "num_steps",
        "num_products",
        "size",
        "seed",
    )


@dataclass(frozen=True, eq=False, repr=False)
class ShiftedSolution(Record):
    """The solution of (H + shift I) x = b from products alone, all columns together.

    Attributes:
        solution: x, one column per right-hand side.
        shift: The shift.
        relative_residuals: ||(H + shift I) x - b|| / ||b|| of each column, from products made for it.
        tolerance: Largest accepted one.
        converged: Whether all are at most ``tolerance``.
        num_products: Matrix-vector products that it took.
        num_restarts: Restarts of the iteration.
        size: Number of rows of the matrix.
        provenance: Versions, number format, seed and data. Default: None.
    """

    solution: Floats
    shift: float
    relative_residuals: Floats
    tolerance: float
    converged: bool
    num_products: int
    num_restarts: int
    size: int
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "shift",
        "relative_residuals",
        "tolerance",
        "converged",
        "num_products",
        "size",
    )


@dataclass(frozen=True, eq=False, repr=False)
class GradientOverlap(Record):
    """The share of a gradient's squared norm in a space of eigenvectors.

    Attributes:
        value: The share.
        num_vectors: Dimension of the space.
        size: Number of parameters.
        chance: The share in a random space.
        gradient_norm: Norm of the gradient.
        orthonormality_error: Largest entry of |V^T V - I| of the given vectors.
    """

    value: float
    num_vectors: int
    size: int
    chance: float
    gradient_norm: float
    orthonormality_error: float


@dataclass(frozen=True, eq=False, repr=False)
class SharpnessMeasurement(Record):
    """The largest eigenvalue of a Hessian, and the learning rate above which gradient descent diverges along it.

    Attributes:
        value: The largest eigenvalue.
        residual: ||H v - lambda v|| of its eigenvector.
        converged: Whether the residual meets the tolerance; if not, ``value`` is a lower bound.
        largest_stable_step: 2 / value; inf without positive curvature.
        num_products: Matrix-vector products that it took.
        size: Number of rows of the matrix.
        seed: Seed of the random vectors.
        provenance: Versions, number format, seed and data. Default: None.
        eigenvector: The eigenvector if it was requested. Default: None.
    """

    value: float
    residual: float
    converged: bool
    largest_stable_step: float
    num_products: int
    size: int
    seed: int
    provenance: Provenance | None = field(default=None, compare=False)
    eigenvector: Floats | None = field(default=None, compare=False)


@dataclass(frozen=True, eq=False, repr=False)
class MethodChoice(Record):
    """How the spectrum of an operator will be computed.

    Attributes:
        method: The method.
        reason: Why it was chosen.
        predicted_bytes: Memory that it needs.
        predicted_seconds: Time that it is expected to take.
        seconds_per_product: Time of one product, measured.
        num_products: Products that it is expected to take.
        size: Number of rows of the matrix.
    """

    method: str
    reason: str
    predicted_bytes: int
    predicted_seconds: float
    seconds_per_product: float
    num_products: int
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class CostPlan(Record):
    """The predicted cost of a measurement.

    Attributes:
        measurement: Name of the measurement.
        method: The method that will be chosen.
        num_vectors: Vectors of the operator's size that fill ``num_bytes``.
        num_bytes: Bytes in use at once, besides the model and its graph.
        num_products: Predicted number of matrix-vector products.
        seconds_per_product: Seconds of one product; None if none was timed.
        memory_budget: Bytes that the measurement may use.
        size: Number of rows of the matrix.
        provenance: Versions, number format, seed and data. Default: None.
    """

    measurement: str
    method: str
    num_vectors: int
    num_bytes: int
    num_products: int
    seconds_per_product: float | None
    memory_budget: int
    size: int
    provenance: Provenance | None = field(default=None, compare=False)


def number_with_error(value: float, error: float) -> str:
    """A number for people, with its error where it has one; a range where the error is no less than the number.

    >>> number_with_error(3.8612, 0.0), number_with_error(155.2, 6.7), number_with_error(2.0, 30.0)
    ('3.861', '155 ± 7', 'between -28 and 32')
    """
    if error == 0:
        return f"{value:.4g}"
    if not error < abs(value):
        return range_text(value - error, value + error)
    return f"{value:.3g} ± {float(f'{error:.1g}'):g}"


def range_text(low: float, high: float, style: str = "{:.3g}") -> str:
    """What is known of a number that was not resolved.

    >>> range_text(-2.0, 7.5), range_text(0.0, 7.5), range_text(1.0, float("inf"))
    ('between -2 and 7.5', 'at most 7.5', 'at least 1')
    """
    first, last = style.format(low), style.format(high)
    if isfinite(low) and isfinite(high):
        return f"at most {last}" if low == 0 else f"between {first} and {last}"
    return f"at most {last}" if isfinite(high) else f"at least {first}" if isfinite(low) else "not resolved"
