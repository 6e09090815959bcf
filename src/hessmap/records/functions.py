"""The rank of the function that a network represents: of its Jacobians, and between what its bottleneck rank lies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
SideTruth = Literal["certificate", "measurement", "theorem"]
EPS = float(np.finfo(np.float64).eps)
# Squared singular values are known to 1e-16 of the largest, so that singular values are to 1e-8.
GRAM_ERROR = 1e-8


# A rank is robust if it stays the same while the tolerance changes by this factor, within a factor of ten of the one
# that was asked for.
ROBUST_FACTOR = 3.0


@dataclass(frozen=True, eq=False, repr=False)
class RankRange(Record):
    """A rank that is the same at every relative tolerance from ``lowest`` up to, not including, ``highest``."""

    value: int
    lowest: float
    highest: float

    @property
    def factor(self) -> float:
        """By how much the tolerance may change; inf where it may go down to zero."""
        return self.highest / self.lowest if self.lowest > 0 else math.inf


def robust_rank(ratios: Floats, tolerance: float, error: float) -> RankRange | None:
    """The rank that holds over the largest part of the tolerances near the given one, or None if none is robust.

    ``ratios`` are singular values over the largest one, in descending order, known to ``error``; "near" is a factor of
    ten to both sides, and parts are compared on a logarithmic scale.

    >>> robust_rank(np.array([1.0, 0.6, 0.11, 0.05, 0.002]), tolerance=0.1, error=1e-16)
    RankRange(value: 2, lowest: 0.11, highest: 0.6)
    >>> robust_rank(0.5 ** np.arange(12), tolerance=0.1, error=1e-16) is None
    True
    """
    near = max(error, tolerance / 10), min(1.0, 10 * tolerance)
    edges = np.maximum(np.append(ratios, 0.0), error)
    best, widest = None, ROBUST_FACTOR
    for place in range(len(ratios)):
        highest, lowest = float(edges[place]), float(edges[place + 1])
        width = min(highest, near[1]) / max(lowest, near[0])
        if width >= widest:
            best, widest = RankRange(place + 1, lowest, highest), width
    return best


@dataclass(frozen=True, eq=False, repr=False)
class SchattenMeasurement(Record):
    """Proposition 3 of Jacot 2023 on data: sum s^(2/L) of every Jacobian against ||W||^2 / L.

    ``slack`` is the bound minus the largest of ``quasi_norms``; it is never negative beyond rounding.
    """

    num_layers: int
    squared_norm: float
    quasi_norms: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("num_layers", "squared_norm", "bound", "largest", "slack")

    @property
    def bound(self) -> float:
        return self.squared_norm / self.num_layers

    @property
    def largest(self) -> float:
        return float(self.quasi_norms.max())

    @property
    def slack(self) -> float:
        return self.bound - self.largest


@dataclass(frozen=True, eq=False, repr=False)
class FunctionRankCertificate(Record):
    """Exact ranks of the Jacobians at the points, over GF(prime): never above the true ones, all of them equal to them
    but with probability ``failure_bound``. ``value`` is the largest: a certified lower bound on the Jacobian rank.

    A point on a kink has no Jacobian: ``num_ties`` counts the units of all points that sit on one. Such a point is
    replaced by one beside it (``num_moved``), where the function is differentiable in a neighbourhood; if that fails
    nothing is certified there and its rank is given as 0 (``num_uncertified``).
    """

    value: int
    ranks: Integers
    prime: int
    failure_bound: float
    num_ties: int
    num_moved: int = 0
    num_uncertified: int = 0
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value", "prime", "failure_bound", "num_ties", "num_moved", "num_uncertified",
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RankInterval(Record):
    """The bottleneck rank of a function lies between ``lower`` and ``upper``, with the kind of truth of each side.

    "theorem" holds for the architecture, "certificate" for these weights in exact arithmetic, "measurement" counts
    singular values above a relative tolerance, and takes the rank that is robust near it where there is one. Two
    measurements at a coarse tolerance may contradict each other.
    """

    lower: int
    lower_kind: SideTruth
    upper: int
    upper_kind: SideTruth
    upper_layer: str


@dataclass(frozen=True, eq=False, repr=False)
class FunctionRank(Record):
    """Numerical ranks of the input-output Jacobians at given points.

    ``ranks[n]`` counts the singular values of point n above ``relative_tolerance`` times its largest; ``gaps[n]`` is
    the smallest kept over the largest dropped (inf if nothing but zeros is dropped). ``value`` is the largest rank, a
    measurement that bounds the Jacobian rank of the function from below; it may come from few points
    (``distribution``) and hang on the tolerance (``robust_rank`` is the one that does not). ``num_kinks`` points sit on
    a kink, where torch's derivative is none of the function: the Jacobian was taken beside them. If ``is_complete`` is
    False only the largest singular values were found, and a rank that reaches their number may be larger.
    """

    value: int
    ranks: Integers
    gaps: Floats
    singular_values: Floats
    relative_tolerance: float
    num_samples: int
    input_dim: int
    output_dim: int
    method: str
    is_complete: bool = True
    bottleneck: RankInterval | None = None
    schatten: SchattenMeasurement | None = None
    certificate: FunctionRankCertificate | None = None
    num_kinks: int = 0
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value", "distribution", "robust_rank", "smallest_gap", "relative_tolerance", "num_samples", "input_dim",
        "output_dim", "method",
    )  # fmt: skip

    @property
    def distribution(self) -> dict[int, int]:
        """How many points have which rank."""
        ranks, counts = np.unique(self.ranks, return_counts=True)
        return dict(zip(ranks.tolist(), counts.tolist(), strict=True))

    @property
    def robust_rank(self) -> RankRange | None:
        """The largest rank over the points that holds over a range of tolerances near the one that was asked for."""
        largest = self.singular_values[:, :1]
        ratios = np.divide(self.singular_values, largest, out=np.zeros_like(self.singular_values), where=largest > 0)
        error = max(self.input_dim, self.output_dim) * EPS if self.is_complete else GRAM_ERROR
        return robust_rank(ratios.max(axis=0), self.relative_tolerance, error)

    @property
    def smallest_gap(self) -> float:
        return float(self.gaps.min())
