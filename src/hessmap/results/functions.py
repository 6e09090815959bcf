"""What is measured of the function that a network represents: ranks of Jacobians, layers, class regions, denoising."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from hessmap.results.provenance import Provenance
from hessmap.results.record import Record

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
SideTruth = Literal["certificate", "measurement", "theorem"]


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
    but with probability ``failure_bound``. ``value`` is the largest: a certified lower bound on the Jacobian rank."""

    value: int
    ranks: Integers
    prime: int
    failure_bound: float
    num_ties: int
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "prime", "failure_bound", "num_ties")


@dataclass(frozen=True, eq=False, repr=False)
class RankInterval(Record):
    """The bottleneck rank of a function lies between ``lower`` and ``upper``, with the kind of truth of each side.

    "theorem" holds for the architecture, "certificate" for these weights in exact arithmetic, "measurement" counts
    singular values above a relative tolerance. Two measurements at a coarse tolerance may contradict each other.
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
    measurement that bounds the Jacobian rank of the function from below. If ``is_complete`` is False only the largest
    singular values were found, and a rank that reaches their number may be larger.
    """

    value: int
    ranks: Integers
    gaps: Floats
    singular_values: Floats
    relative_tolerance: float
    num_samples: int
    input_dim: int
    output_dim: int
    road: str
    is_complete: bool = True
    bottleneck: RankInterval | None = None
    schatten: SchattenMeasurement | None = None
    certificate: FunctionRankCertificate | None = None
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value", "distribution", "smallest_gap", "relative_tolerance", "num_samples", "input_dim", "output_dim", "road",
    )  # fmt: skip

    @property
    def distribution(self) -> dict[int, int]:
        """How many points have which rank."""
        ranks, counts = np.unique(self.ranks, return_counts=True)
        return dict(zip(ranks.tolist(), counts.tolist(), strict=True))

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
    summary_fields: ClassVar[tuple[str, ...]] = (
        "name", "width", "rank", "centred_rank", "effective_rank", "stable_rank", "nonlinearity", "similarity",
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class BottleneckView(Record):
    """A network layer by layer; ``bottlenecks`` are the hidden layers of least centred rank."""

    layers: tuple[LayerRepresentation, ...]
    bottlenecks: tuple[str, ...]
    identities: tuple[str, ...]
    relative_tolerance: float
    num_samples: int
    is_chain: bool
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("bottlenecks", "identities", "relative_tolerance", "num_samples")


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
