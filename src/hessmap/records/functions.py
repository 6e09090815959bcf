"""The function of a network: the rank of its Jacobians, its layers and class regions, the cost of its weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.records.provenance import Provenance
from hessmap.records.ranks import RankMeasurement
from hessmap.records.record import Record

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
SideKind = Literal["certificate", "measurement", "theorem"]
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
    RankRange(value=2, lowest=0.11, highest=0.6)
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
    """The bottleneck rank of a function is between ``lower`` and ``upper``, each with its source.

    "theorem" holds for the architecture, "certificate" for these weights in exact arithmetic, "measurement" counts
    singular values above a relative tolerance, and takes the rank that is robust near it where there is one. Two
    measurements at a coarse tolerance may contradict each other.
    """

    lower: int
    lower_kind: SideKind
    upper: int
    upper_kind: SideKind
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


@dataclass(frozen=True, eq=False, repr=False)
class LayerRepresentation(Record):
    """What leaves one layer, behind its activation: the matrix Z of all samples, centred and not.

    ``rank`` and ``centred_rank`` count singular values above the view's relative tolerance times the largest;
    ``effective_rank`` is the exponential of the entropy of the centred singular values (Roy & Vetterli 2007),
    ``stable_rank`` ||Z||_F^2 / ||Z||^2, both centred. ``nonlinearity`` is ||Z~ - sigma(Z~)|| / ||Z~|| for the
    pre-activations Z~, None for the last layer and where a pooling changes the size. ``similarity`` is the centred
    linear alignment (CKA) with what entered the layer: 1 if they are equal up to rotation and scale.
    ``is_limited_by_samples`` if there are too few different samples for a larger centred rank.
    """

    name: str
    width: int
    singular_values: Floats
    centred_singular_values: Floats
    weight_singular_values: Floats
    rank: int
    centred_rank: int
    effective_rank: float
    stable_rank: float
    nonlinearity: float | None
    similarity: float
    is_approximate_identity: bool
    is_limited_by_samples: bool = False
    summary_fields: ClassVar[tuple[str, ...]] = (
        "name", "width", "rank", "centred_rank", "effective_rank", "stable_rank", "nonlinearity", "similarity",
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class BottleneckView(Record):
    """A network layer by layer; ``bottlenecks`` are the hidden layers of least centred rank.

    ``num_distinct`` counts the samples that differ by more than a tenth of the tolerance of their spread (None in
    records that are older than the count; no further than is needed for the ranks, at least to 2,000). A centred rank
    that half of few samples do not show, or could not exceed, may be theirs: such layers are no bottlenecks.
    ``is_chain`` says whether the function passes through every layer alone; otherwise a narrow layer does not bound
    its rank.
    """

    layers: tuple[LayerRepresentation, ...]
    bottlenecks: tuple[str, ...]
    identities: tuple[str, ...]
    relative_tolerance: float
    num_samples: int
    is_chain: bool
    num_distinct: int | None = None
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "bottlenecks", "identities", "relative_tolerance", "num_samples", "num_distinct",
    )  # fmt: skip

    @property
    def limited_by_samples(self) -> tuple[str, ...]:
        """The layers whose centred rank is that of the samples."""
        return tuple(layer.name for layer in self.layers if layer.is_limited_by_samples)


@dataclass(frozen=True, eq=False, repr=False)
class BalanceMeasurement(Record):
    """||W_(l+1)||^2 - ||W_l||^2 - ||b_l||^2 of neighbouring layers (``defects``) and unit by unit (``unit_defects``);
    0 at every local minimum with an l2 penalty. ``relative`` is the largest over the largest squared norm."""

    names: tuple[str, ...]
    defects: Floats
    unit_defects: tuple[Floats, ...]
    relative: float
    largest_unit_defect: float
    summary_fields: ClassVar[tuple[str, ...]] = ("relative", "largest_unit_defect")


@dataclass(frozen=True, eq=False, repr=False)
class ClassRegions(Record):
    """The classes of a planar classifier on a grid, with the boundaries and tripoints of the piecewise-linear
    interpolant of its logits, which are exact for the interpolant.

    ``counts`` are the tripoints on each grid that was tried (``grid_sizes`` points a side); ``agrees`` if the last two
    found the same ones, up to two cells of the coarser grid.
    """

    tripoints: Floats
    tripoint_classes: Integers
    boundaries: Floats
    labels: Integers
    box: tuple[float, float, float, float]
    grid_sizes: tuple[int, ...]
    counts: tuple[int, ...]
    agrees: bool
    summary_fields: ClassVar[tuple[str, ...]] = ("num_tripoints", "grid_sizes", "counts", "agrees", "box")

    @property
    def num_tripoints(self) -> int:
        return len(self.tripoints)


@dataclass(frozen=True, eq=False, repr=False)
class DenoisingScore(Record):
    """dist(f(x + noise), data) / dist(x + noise, data) over random points: 0 projects, 1 removes nothing."""

    mean: float
    median: float
    standard_error: float
    noise: float
    num_points: int
    seed: int
    scores: Floats
    summary_fields: ClassVar[tuple[str, ...]] = ("mean", "standard_error", "median", "noise", "num_points", "seed")


CostKind = Literal["value", "lower_bound", "upper_bound"]
CostSource = Literal["measurement", "theorem", "construction"]


@dataclass(frozen=True, eq=False, repr=False)
class CostBound(Record):
    """A squared norm of weights with what it says: a ``value``, or a bound on the networks that ``holds_for`` names.

    "measurement" is read off this network, "theorem" holds for all of them, "construction" for one that was built.
    """

    name: str
    squared_norm: float
    num_layers: int
    kind: CostKind
    source: CostSource
    holds_for: str
    reference: str
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "squared_norm", "num_layers", "kind", "source", "holds_for")

    @property
    def scaled(self) -> float:
        """||W||^2 / L."""
        return self.squared_norm / self.num_layers


@dataclass(frozen=True, eq=False, repr=False)
class RepresentationCost(Record):
    """``squared_norm`` of all parameters, bounds on it, and the depths at which rank recovery is expected.

    ``inner_rank`` k is the measured rank of the narrowest weight matrix (``inner_rank_measurement``), None where its
    singular values have no clear cut. With ``constant`` C, k L + C bounds at every depth L above ``num_layers``, by
    construction, the cost of the function with the dropped singular values set to zero; on the box of the inputs its
    outputs differ from this network's by at most ``function_error``. ``expected_depths`` compares two upper bounds; at
    ``proved_depths`` no function of bottleneck rank 1 through the same outputs is cheaper (nothing is dropped there).
    Both are (first, last) above ``num_layers``, None where there are none or nothing is known; ``notes`` says why what
    is missing is missing.
    """

    num_layers: int
    squared_norm: float
    bounds: tuple[CostBound, ...]
    inner_rank: int | None = None
    constant: float | None = None
    expected_depths: tuple[int, int] | None = None
    proved_depths: tuple[int, int] | None = None
    notes: tuple[str, ...] = ()
    inner_rank_measurement: RankMeasurement | None = None
    function_error: float | None = None
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("squared_norm", "scaled", "num_layers", "expected_depths", "notes")

    @property
    def scaled(self) -> float:
        """||W||^2 / L."""
        return self.squared_norm / self.num_layers

    def bound(self, name: str) -> CostBound | None:
        """The bound of a name, or None where it could not be given."""
        return next((bound for bound in self.bounds if bound.name == name), None)
