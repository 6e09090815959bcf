"""What else is measured of a network's function: its layers and their balance, class regions, denoising."""

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
