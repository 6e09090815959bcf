"""Spectra and what is read off them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

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
