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
    """The learning coefficient lambda of a network.

    The volume of weights with excess risk below e shrinks like e^lambda (-log e)^(m-1).

    Attributes:
        value: lambda; an upper bound on it if ``kind`` is "conjecture".
        multiplicity: m; None if unknown.
        kind: "exact" (a theorem) or "conjecture".
        reference: Source of the theorem or conjecture.
        rank: Rank of the true map on the inputs.
        is_local: Whether it is the coefficient at given weights, rather than the least over all optima.
        lower_bound: Proved lower bound; equal to ``value`` if ``kind`` is "exact".
        hessian_rank: Rank of the outer-product Hessian at generic optima or, if ``is_local``, at the given weights.
            Half of it is what curvature alone gives.
        num_parameters: Number of parameters; half of it is the coefficient of a model without symmetries.
        assumptions: Assumptions on inputs and loss. Default: none.
        inputs: Widths, loss and other arguments. Default: empty.
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
    """One possible failure of an estimate: what was measured, and the remedy.

    Attributes:
        name: "minimum", "parameters", "agreement", "trend", "step", "length", "batch", "half step" or "weaker pull".
        outcome: "passed", "failed", "inconclusive" or "not run".
        measured: The number that is compared; None if nothing was measured.
        limit: The number that it is compared with.
        sentence: The result in words, with the remedy if it did not pass.
    """

    name: str
    outcome: CheckOutcome
    measured: float | None
    limit: float
    sentence: str


@dataclass(frozen=True, eq=False, repr=False)
class ChainSettings(Record):
    """How chains are drawn from exp(-n beta L(w) - gamma |w - w0|^2 / 2).

    Attributes:
        num_observations: n.
        inverse_temperature: beta.
        localisation: gamma, the strength of the pull back to the weights w0; 0 for none.
        step_size: Step of the Langevin dynamics.
        num_chains: Number of chains.
        num_burn_in: Steps of each chain before its first draw.
        num_draws: Draws of each chain.
        batch_size: Samples per step; None for all.
        seed: Seed of the noise and the batches.
    """

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
    """A local learning coefficient by stochastic gradient Langevin dynamics around the weights w0 of a model.

    Attributes:
        value: n beta (mean loss of the draws - loss at w0), the mean over the chains.
        standard_error: Standard error over the chains (over blocks of draws for a single chain). It does not include
            biases, which the checks look for.
        interval: 95 % confidence interval by Student's quantile.
        by_chain: The value of each chain.
        split_r_hat: Split R-hat of the draws: near 1 if the chains agree.
        verdict: "reliable" if all checks passed, "unreliable" if one failed, else "inconclusive".
        checks: The checks.
        settings: The settings in use, with the step size that was chosen and the draws that were made.
        num_parameters: Number of parameters.
        sharpness: Largest curvature, in absolute value, at the last points of the chains.
        traces: n beta times the excess loss, shape (num_chains, blocks): means over blocks of consecutive steps,
            burn-in included.
        burn_in_share: Share of the steps that is burn-in.
        stopped_by: What ended the chains: "draws" (all were made), "time" or "interruption".
        provenance: Versions, number format, seed and data. Default: None.
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
