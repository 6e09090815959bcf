"""What the weights of a network cost, and between what the cost of its function lies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hessmap.records.provenance import Provenance
from hessmap.records.ranks import RankMeasurement
from hessmap.records.record import Record

CostKind = Literal["value", "lower_bound", "upper_bound"]
CostTruth = Literal["measurement", "theorem", "construction"]


@dataclass(frozen=True, eq=False, repr=False)
class CostBound(Record):
    """A squared norm of weights with what it says: a ``value``, or a bound on the networks that ``holds_for`` names.

    "measurement" is read off this network, "theorem" holds for all of them, "construction" for one that was built.
    """

    name: str
    squared_norm: float
    num_layers: int
    kind: CostKind
    truth: CostTruth
    holds_for: str
    reference: str
    summary_fields: ClassVar[tuple[str, ...]] = ("name", "squared_norm", "num_layers", "kind", "truth", "holds_for")

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
