"""Ranks and counts of parameters, each with its kind: theorem, bound, conjecture, measurement, certificate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hessmap.errors import require
from hessmap.records.provenance import Provenance
from hessmap.records.record import Record

Part = Literal["loss", "outer_product", "functional"]
PARTS: tuple[Part, ...] = ("outer_product", "functional", "loss")
ClaimKind = Literal["exact", "conjecture", "upper_bound", "numerical"]
Relation = Literal["equal", "at_most", "close"]


@dataclass(frozen=True, eq=False, repr=False)
class RankValue(Record):
    """One predicted rank with its kind.

    ``kind`` is "exact" (a theorem for generic weights), "upper_bound" (a theorem), "conjecture" (no proof is known) or
    "numerical" (describes the size of the bulk of a non-linear network; no theorem, not a bound). A conjecture is one
    of the rank itself or of an upper bound, as ``conjectured`` says; ``num_cases`` counts the networks on which it was
    tried in exact arithmetic, without a counterexample. Both are None for the other kinds.
    """

    value: int
    kind: ClaimKind
    reference: str
    conjectured: Literal["value", "bound"] | None = None
    num_cases: int | None = None

    def __post_init__(self) -> None:
        is_complete = self.conjectured is not None and self.num_cases is not None
        is_conjecture = self.kind == "conjecture"
        must = "a conjecture, and nothing else, says what it claims and on how many cases it was tried"
        got = f"kind is {self.kind!r}, conjectured {self.conjectured!r}, num_cases {self.num_cases!r}"
        require(is_complete if is_conjecture else self.conjectured is None and self.num_cases is None, must, got)

    def __int__(self) -> int:
        return self.value

    @property
    def relation(self) -> Relation:
        """What is claimed of a true rank beside this value: that it is equal, at most as large, or only close."""
        if self.kind == "numerical":
            return "close"
        is_bound = self.kind == "upper_bound" or self.conjectured == "bound"
        return "at_most" if is_bound else "equal"

    def allows(self, rank: int) -> bool | None:
        """Whether the claim admits an exact rank.

        Args:
            rank: The exact rank.

        Returns:
            Whether the rank is equal, or at most as large for a bound; None for a numerical value, not a claim.

        Example:
            >>> RankValue(3, "exact", "a theorem").allows(2), RankValue(3, "upper_bound", "a theorem").allows(2)
            (False, True)
            >>> RankValue(3, "numerical", "a formula").allows(2) is None
            True
        """
        if self.relation == "close":
            return None
        return rank <= self.value if self.relation == "at_most" else rank == self.value

    @property
    def kind_text(self) -> str:
        """The kind in words.

        >>> RankValue(3, "upper_bound", "").kind_text, RankValue(3, "conjecture", "", "bound", 500).kind_text
        ('upper bound', 'conjectured bound')
        """
        if self.kind == "conjecture":
            return "conjecture" if self.conjectured == "value" else "conjectured bound"
        return self.kind.replace("_", " ")

    @property
    def brief(self) -> str:
        return f"{self.value:,} ({self.kind_text})"

    def rows(self) -> list[tuple[str, str]]:
        """Name and value; what belongs to conjectures is shown of conjectures only."""
        return [row for row in super().rows() if row[1] != "None"]


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

    @property
    def brief(self) -> str:
        return f"{self.value:,} of {self.size:,}{'' if self.decidable else ' (depends on the threshold)'}"


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
class RankBounds(Record):
    """A rank between two exact ones: at least ``lower`` for certain, and at most ``upper`` but with probability
    ``failure_bound`` over the random choices; where the two are equal, the rank is known.

    ``part``, ``num_ties`` and ``prime`` are those of a ``RankCertificate``.
    """

    lower: int
    upper: int
    part: Part
    prime: int
    failure_bound: float
    size: int
    num_ties: int = 0
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("lower", "upper", "part", "failure_bound", "size", "num_ties")

    @property
    def is_exact(self) -> bool:
        """Whether the bounds are equal."""
        return self.lower == self.upper


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


CountKind = Literal["exact", "conjecture", "upper_bound"]


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveParameters(Record):
    """The rank of the population Hessian where student and teacher agree, for generic weights.

    ``kind`` is "exact" (a theorem), "conjecture" (a theorem as an upper bound; that it is reached is not proved, and
    held on ``num_cases`` networks in exact arithmetic, all that were tried) or "upper_bound". ``function_space_dim``
    is the dimension of the smallest linear space that holds every function of the network, None where that is infinite.
    """

    value: int
    kind: CountKind
    reference: str
    num_parameters: int
    function_space_dim: int | None
    num_cases: int | None = None
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "kind", "num_parameters", "function_space_dim", "reference")

    def __int__(self) -> int:
        return self.value
