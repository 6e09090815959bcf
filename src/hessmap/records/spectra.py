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
    """Eigenvalues in descending order, how they were found, and how far to trust them.

    ``residuals`` holds ||H v - lambda v|| per eigenpair where vectors were asked for (else it is empty);
    ``num_zeros`` counts exact zeros that a reduction removed and that ``eigenvalues`` holds as 0.0.
    ``scale`` is the norm that thresholds are relative to (of the loss Hessian, for all three Hessians).
    ``eigenvalue_error`` bounds, in absolute terms, how far any eigenvalue is from the matrix's own (None: unknown).
    ``kernel_residual`` bounds ||H K|| / ||H|| of the kernel K that a reduction took out (0 without one).
    ``size`` is that of the matrix, where only some of its eigenvalues are held (None: all are). ``entries`` is the
    number format of the matrix, whose rounding the eigenvalues have.
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
    """Some eigenpairs of a large operator, in descending order, and how far to trust them.

    ``residuals`` holds ||A v - lambda v||; a pair counts as found when its residual is at most ``tolerance`` times
    ``norm`` (the largest Ritz value in magnitude) or times its own |lambda|, as ``relative_to`` says. ``converged``
    holds when all are found AND a random block that joined the basis showed no value beyond the last of them
    (``num_probes`` counts such attempts). ``residual_check`` is the norm of one random combination of all residuals,
    from a product that was made for it: about the root of the sum of their squares, if they are true. Of
    all ``num_products``, ``num_single_products`` were made in float32; residuals are in float64 all the same.
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
    """How many directions are curved by more than ``epsilon``: sum of h / (h + epsilon), h = |eigenvalue|.

    ``error_bound`` is how far the error of the eigenvalues can move ``value`` (None: unknown). ``num_negative``
    counts eigenvalues below minus that error: above zero, the matrix is indefinite and the magnitudes are what
    was summed. ``nuclear_ratio``, the sum of magnitudes over the largest, is a count that needs no epsilon.
    """

    value: float
    epsilon: float
    nuclear_ratio: float
    num_negative: int
    error_bound: float | None
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class ReconstructionErrors(Record):
    """``errors[i]`` is ||H - best approximation of rank ``ranks[i]``|| / ||H||, in the Frobenius norm.

    Below ``noise_floor`` an error is made of the rounding of the eigenvalues (None: unknown).
    """

    ranks: Integers
    errors: Floats
    noise_floor: float | None
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class SubspaceOverlap(Record):
    """Mean squared cosine of the canonical angles of two subspaces of equal dimension: 1 if equal, 0 if orthogonal.

    ``chance`` is what two random subspaces of that dimension have on average; ``orthonormality_error`` is how far
    the given bases are from orthonormal, the largest entry of |U^T U - I|.
    """

    value: float
    num_vectors: int
    size: int
    chance: float
    orthonormality_error: float


@dataclass(frozen=True, eq=False, repr=False)
class LinearSolution(Record):
    """The solution of (H + shift I) x = right-hand side, and how well it solves it.

    ``backward_error`` is ||(H + shift I) x - b|| / (||H + shift I|| ||x|| + ||b||), Frobenius norms, the worst over
    the columns: near 1e-16 the solution is exact for a matrix that differs in the last digit.
    ``reciprocal_condition`` is 1 / (||(H + shift I)^-1|| (||H|| + |shift|)), 1-norms: relative to what was added, not
    to a sum that may have cancelled. The solution itself is known to about 1e-16 over it.
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
    """One number of a large symmetric operator, from products with random vectors.

    ``interval`` holds the true value with the stated ``confidence``: Student's quantile times ``standard_error``,
    widened by ``method_error``, what the method itself may be off by (the quadrature; 0 for traces). ``asked`` is the
    standard error that was asked for (None: a fixed number of probes), ``reached`` whether it was met. A ``method``
    "exact" has no standard error.
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
    """The diagonal of a large symmetric operator, entry by entry with its standard error.

    ``relative_error`` is the norm of the standard errors over that of the values; ``reached`` tells whether it is at
    most ``asked``.
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
    """A spectral density by stochastic Lanczos quadrature: one Gauss rule a probe.

    ``nodes[i]`` and ``weights[i]`` (sum 1) are the rule of probe i, padded with nodes of weight 0; ``half_nodes`` and
    ``half_weights`` that of half as many steps, whose distance from the whole one shows what the steps resolve. A probe
    ``is_exact`` when its Krylov space was exhausted: its nodes are eigenvalues then. ``density`` is the mean over
    probes on ``grid``, smoothed by a Gaussian of standard deviation ``width``, and ``lower``, ``upper`` its pointwise
    confidence band over the probes. The density integrates to one. A ``method`` "exact" has one rule, all eigenvalues
    with equal weights, and no probe.
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
    """The solution of (H + shift I) x = b from products alone, columns together.

    ``relative_residuals`` are ||(H + shift I) x - b|| / ||b|| of products that were made for it; ``converged`` when all
    are at most ``tolerance``.
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
    """The share of a gradient's squared norm in a space of eigenvectors; ``chance`` is that of a random space."""

    value: float
    num_vectors: int
    size: int
    chance: float
    gradient_norm: float
    orthonormality_error: float


@dataclass(frozen=True, eq=False, repr=False)
class SharpnessMeasurement(Record):
    """The largest eigenvalue of a Hessian, the residual of its vector, and the step size of gradient descent above
    which that direction grows: 2 / value (inf without positive curvature); the eigenvector if it was asked for."""

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
    """How the spectrum of an operator will be found: by size, by what is asked for and by one timed product."""

    method: str
    reason: str
    predicted_bytes: int
    predicted_seconds: float
    seconds_per_product: float
    num_products: int
    size: int


@dataclass(frozen=True, eq=False, repr=False)
class CostPlan(Record):
    """What a measurement will take: its method, the vectors and bytes that it holds at once beside the model and its
    graph, the predicted number of products, and the seconds of one product if one was timed."""

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
