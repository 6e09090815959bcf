"""Ranks, each with the kind of truth it holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hessmap.results.provenance import Provenance
from hessmap.results.record import Record

Part = Literal["loss", "outer_product", "functional"]
PARTS: tuple[Part, ...] = ("outer_product", "functional", "loss")
Truth = Literal["exact", "upper_bound", "numerical"]


@dataclass(frozen=True, eq=False, repr=False)
class RankValue(Record):
    """One predicted rank: ``kind`` is "exact" (a theorem for generic weights), "upper_bound" (a theorem), or
    "numerical" (describes the size of the bulk of a non-linear network; no theorem, not a bound)."""

    value: int
    kind: Truth
    reference: str

    def __int__(self) -> int:
        return self.value


@dataclass(frozen=True, eq=False, repr=False)
class RankPrediction(Record):
    """Predicted ranks of the outer-product, functional and loss Hessian, with the integers they were made from."""

    outer_product: RankValue
    functional: RankValue
    loss: RankValue
    num_parameters: int
    assumptions: tuple[str, ...] = ()
    inputs: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class RankMeasurement(Record):
    """A numerical rank: how many singular values exceed ``threshold`` = relative tolerance * ``scale``.

    ``gap`` is smallest_kept / largest_dropped; the rank is ``decidable`` when the gap is wide and what was dropped lies
    well below the threshold, so that every reasonable threshold gives the same value.
    """

    value: int
    threshold: float
    scale: float
    smallest_kept: float
    largest_dropped: float
    gap: float
    decidable: bool
    size: int
    method: str = "dense"
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "threshold", "scale", "gap", "decidable", "size")


@dataclass(frozen=True, eq=False, repr=False)
class RankCertificate(Record):
    """A rank found in exact arithmetic over GF(prime): never above the true rank.

    It is below the true rank with probability at most ``failure_bound`` over the random prime and sketch.
    ``num_ties`` counts the points where an activation pattern sat exactly on a kink and torch's convention chose.
    ``part`` is None for the rank of a plain matrix.
    """

    value: int
    part: Part | None
    prime: int
    failure_bound: float
    size: int
    num_ties: int = 0
    method: str = "dense"
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "part", "prime", "failure_bound", "size", "num_ties")


@dataclass(frozen=True, eq=False, repr=False)
class DataRanks(Record):
    """The ranks of given data that rank formulas ask for, certified over GF(prime): never above the true ones.

    ``residual_rank`` is that of Omega = sum residual input^T (the formulas without bias), ``residual_rank_with_bias``
    that of [Omega_c, omega] (centred inputs, and the sum of the residuals). All hold together but with probability
    ``failure_bound``.
    """

    input_rank: int
    centred_input_rank: int
    residual_rank: int
    residual_rank_with_bias: int
    mean_residual_is_zero: bool
    num_samples: int
    prime: int
    failure_bound: float
    num_ties: int = 0
    provenance: Provenance | None = field(default=None, compare=False)
