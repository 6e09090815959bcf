"""Two maps of curvature side by side: what changed, layer by layer, and what cannot be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hessmap.records.ranks import Part
from hessmap.records.record import Record


@dataclass(frozen=True, eq=False, repr=False)
class Change(Record):
    """A number before and after, and the second over the first.

    ``ratio`` is None where a ratio says nothing: a value is not positive, or the two are in different units. ``error``
    is the standard error of the difference: 0 where both numbers are exact.
    """

    old: float
    new: float
    ratio: float | None
    error: float = 0.0

    @property
    def is_unchanged(self) -> bool:
        return self.old == self.new

    @property
    def is_within_error(self) -> bool:
        """Whether two estimates differ by no more than two standard errors: nothing may have changed."""
        return self.error > 0 and abs(self.new - self.old) <= 2 * self.error


def change(old: float, new: float, same_units: bool = True, errors: tuple[float, float] = (0.0, 0.0)) -> Change:
    """From one number to another, known to their standard errors.

    >>> change(2.0, 3.0).ratio, change(-1.0, 1.0).ratio, change(0.0, 1.0).ratio
    (1.5, None, None)
    >>> change(2.0, 3.0, errors=(0.3, 0.4)).is_within_error
    True
    """
    has_ratio = same_units and 0 < old < math.inf and 0 < new < math.inf
    return Change(old, new, new / old if has_ratio else None, math.hypot(*errors))


@dataclass(frozen=True, eq=False, repr=False)
class MapIdentity(Record):
    """Which map is meant, and on what it was made."""

    name: str
    description: str
    loss: str
    num_samples: int
    num_parameters: int
    data_hash: str
    created: str


@dataclass(frozen=True, eq=False, repr=False)
class PartChange(Record):
    """One of the three Hessians: its rank (certified where it was) and its spectral norm.

    ``is_decidable`` says whether both ranks are: certified, or with a clear cut.
    """

    part: Part
    rank: Change
    norm: Change
    is_decidable: bool


@dataclass(frozen=True, eq=False, repr=False)
class FactorChange(Record):
    """The factors of one layer before and after; ``outlier_share`` is None where the layer has fewer outputs than
    classes, and ``kronecker_overlap`` where one map does not know the sharpest directions of the layer."""

    num_classes: int
    input_ratio: Change
    outlier_share: Change | None
    kronecker_overlap: Change | None


@dataclass(frozen=True, eq=False, repr=False)
class LayerChange(Record):
    """The block of one layer of the loss Hessian before and after, and the layer's share of the curvature.

    ``factors`` is None where one of the two maps has none for the layer, as are ``rank`` and ``top_eigenvalue``.
    """

    name: str
    shape: str
    num_parameters: int
    rank: Change | None
    top_eigenvalue: Change | None
    trace: Change
    curvature_share: Change
    is_decidable: bool
    factors: FactorChange | None = None


@dataclass(frozen=True, eq=False, repr=False)
class MapComparison(Record):
    """What changed from an old map to a new one.

    ``layers`` holds the layers that both have, equal in name and shape. ``caveats`` says what differs between the
    two apart from the weights, and what therefore cannot be compared; it is empty for two checkpoints of one model.
    ``effective_dimension`` is None where the numbers of samples, and with them what it is measured at, differ.
    ``sharpness`` is the largest eigenvalue of the whole loss Hessian. ``parts`` are empty where one of the two maps
    was made without forming Hessians.
    """

    old: MapIdentity
    new: MapIdentity
    risk: Change
    gradient_norm: Change
    effective_dimension: Change | None
    parts: tuple[PartChange, ...]
    layers: tuple[LayerChange, ...]
    caveats: tuple[str, ...]
    verdicts: tuple[str, ...]
    sharpness: Change | None = None
    trace: Change | None = None
    negative_share: Change | None = None
    summary_fields: ClassVar[tuple[str, ...]] = ("old", "new", "caveats", "verdicts")

    def table_rows(self) -> tuple[Record, ...] | None:
        return self.layers
