"""What random probes tell about a spectrum: every estimate with its standard error, its probes and its seed."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = NDArray[np.float64]


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
    which that direction grows: 2 / value (inf without positive curvature)."""

    value: float
    residual: float
    converged: bool
    largest_stable_step: float
    num_products: int
    size: int
    seed: int
    provenance: Provenance | None = field(default=None, compare=False)


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
