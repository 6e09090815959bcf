"""Learning coefficients: how fast the volume of near-optimal weights shrinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

from hessmap.records.provenance import Provenance
from hessmap.records.record import Record
from hessmap.records.spectra import Floats, number_with_error


@dataclass(frozen=True, eq=False, repr=False)
class LearningCoefficient(Record):
    """The learning coefficient of a network, exact: the volume of near-optimal weights is e^value (-log e)^(m-1).

    ``multiplicity`` is m, None where it is not known. ``kind`` is "exact" (a theorem) or "conjecture"; what theorems
    say in any case is ``lower_bound`` <= the coefficient <= ``value``. ``hessian_rank`` is that of the outer-product
    Hessian: at generic optima of this network or, where the coefficient ``is_local``, at the weights it is asked at;
    its half is what curvature alone says.
    """

    value: Fraction
    multiplicity: int | None
    kind: Literal["exact", "conjecture"]
    reference: str
    rank: int
    is_local: bool
    lower_bound: Fraction
    hessian_rank: int
    num_parameters: int
    assumptions: tuple[str, ...] = ()
    inputs: dict[str, object] = field(default_factory=dict)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value",
        "multiplicity",
        "kind",
        "rank",
        "is_local",
        "hessian_rank",
        "num_parameters",
        "reference",
    )

    def __float__(self) -> float:
        return float(self.value)


CheckOutcome = Literal["passed", "failed", "inconclusive", "not run"]
EstimateVerdict = Literal["reliable", "inconclusive", "unreliable"]


@dataclass(frozen=True, eq=False, repr=False)
class LearningCheck(Record):
    """One thing that can go wrong with an estimate: what was looked at, what came out, and what to do about it.

    ``measured`` is None where nothing was.
    """

    name: str
    outcome: CheckOutcome
    measured: float | None
    limit: float
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class ChainSettings(Record):
    """How chains are drawn from exp(-n beta L(w) - gamma |w - w0|^2 / 2): n is ``num_observations``, beta the
    ``inverse_temperature``, gamma the ``localisation``; ``batch_size`` is None where every step sees all samples."""

    num_observations: float
    inverse_temperature: float
    localisation: float
    step_size: float
    num_chains: int
    num_burn_in: int
    num_draws: int
    batch_size: int | None
    seed: int


@dataclass(frozen=True, eq=False, repr=False)
class LearningCoefficientEstimate(Record):
    """A local learning coefficient by stochastic gradient Langevin dynamics around the weights of a model.

    ``value`` is n beta (mean loss of the draws - loss at w0), the mean over ``by_chain``; ``standard_error`` and
    ``interval`` (95 %) come from the chains and know nothing of biases: those are what the ``checks`` look for.
    ``verdict`` is "reliable" where all passed, "unreliable" where one failed, else "inconclusive". ``traces`` holds n
    beta times the excess loss of every chain in blocks of consecutive steps, ``burn_in_share`` the part of them that
    was not used. ``sharpness`` is the largest curvature where the chains were, ``stopped_by`` what ended them.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    by_chain: Floats
    split_r_hat: float
    verdict: EstimateVerdict
    checks: tuple[LearningCheck, ...]
    settings: ChainSettings
    num_parameters: int
    sharpness: float
    traces: Floats
    burn_in_share: float
    stopped_by: Literal["draws", "time", "interruption"]
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "value",
        "standard_error",
        "interval",
        "split_r_hat",
        "verdict",
        "num_parameters",
        "stopped_by",
    )

    def __float__(self) -> float:
        return self.value

    @property
    def with_error(self) -> str:
        """The value and its standard error for people: "9.08 ± 0.06"."""
        return number_with_error(self.value, self.standard_error)
