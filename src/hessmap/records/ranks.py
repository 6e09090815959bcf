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

    Attributes:
        value: The rank.
        kind: "exact" (a theorem for generic weights), "upper_bound" (a theorem), "conjecture" (no proof is known) or
            "numerical" (the size of the bulk of the spectrum of a non-linear network: neither a theorem nor a bound).
        reference: Paper, theorem and correction.
        conjectured: Whether a conjecture is about the "value" or about a "bound". Default: None, as for other kinds.
        num_cases: Networks on which a conjecture was tried in exact arithmetic, without a counterexample. Default:
            None.
    """

    value: int
    kind: ClaimKind
    reference: str
    conjectured: Literal["value", "bound"] | None = None
    num_cases: int | None = None

    def __post_init__(self) -> None:
        is_complete = self.conjectured is not None and self.num_cases is not None
        is_conjecture = self.kind == "conjecture"
        must = "conjectured and num_cases must be given for conjectures, and only for them"
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
    """Predicted ranks of the three Hessians, with the integers they were computed from.

    Attributes:
        outer_product: Rank of H_o (GGN).
        functional: Rank of H_f.
        loss: Rank of H_L = H_o + H_f.
        num_parameters: Number of parameters.
        assumptions: What was assumed. Default: nothing.
        inputs: The integers, by name. Default: none.
    """

    outer_product: RankValue
    functional: RankValue
    loss: RankValue
    num_parameters: int
    assumptions: tuple[str, ...] = ()
    inputs: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class RankMeasurement(Record):
    """A numerical rank: the number of singular values above a threshold.

    Attributes:
        value: The rank.
        threshold: Relative tolerance times ``scale``.
        scale: The norm that the threshold is relative to.
        smallest_kept: Smallest singular value above the threshold.
        largest_dropped: Largest one below it.
        gap: smallest_kept / largest_dropped.
        decidable: Whether the gap is wide and the dropped values are well below the threshold, so that every reasonable
            threshold gives the same rank.
        size: Number of rows of the matrix.
        method: How the singular values were computed. Defaults to "dense".
        provenance: Versions, number format, seed and data. Default: None.
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
    """A rank computed in exact arithmetic over GF(prime): never above the true rank.

    Attributes:
        value: The rank.
        part: The Hessian; None for a plain matrix.
        prime: The random prime.
        failure_bound: Bound on the probability that the value is below the true rank, over the random prime and sketch.
        size: Number of rows of the matrix.
        num_ties: Points at which an activation is exactly at a kink, where torch's convention was used. Defaults to 0.
        method: How it was computed. Defaults to "dense".
        provenance: Versions, number format, seed and data. Default: None.
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
    """A rank between two exact ones.

    Attributes:
        lower: Lower bound, certain.
        upper: Upper bound, correct except with probability ``failure_bound``.
        part: The Hessian.
        prime: The random prime.
        failure_bound: Bound on the probability of failure over the random choices.
        size: Number of rows of the matrix.
        num_ties: Points at which an activation is exactly at a kink. Defaults to 0.
        provenance: Versions, number format, seed and data. Default: None.
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
    """The ranks of given data that rank formulas need, certified over GF(prime): never above the true ones.

    Attributes:
        input_rank: Rank of the inputs.
        centred_input_rank: Rank of the inputs minus their mean.
        residual_rank: Rank of Omega = sum residual input^T (formulas without bias).
        residual_rank_with_bias: Rank of [Omega_c, omega]: centred inputs, and the sum of the residuals.
        mean_residual_is_zero: Whether the mean residual vanishes.
        num_samples: Number of samples.
        prime: The random prime.
        failure_bound: Bound on the probability that one of them is too small.
        num_ties: Points at which an activation is exactly at a kink. Defaults to 0.
        provenance: Versions, number format, seed and data. Default: None.
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

    Attributes:
        value: The rank.
        kind: "exact" (a theorem), "conjecture" (an upper bound by a theorem; that it is attained is not proved) or
            "upper_bound".
        reference: Paper, theorem and correction.
        num_parameters: Number of parameters.
        function_space_dim: Dimension of the smallest linear space with every function of the network; None if infinite.
        num_cases: Networks on which a conjecture was tried in exact arithmetic, without a counterexample. Default:
            None.
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
