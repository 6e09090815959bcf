"""Learning coefficients: how fast the volume of near-optimal weights shrinks."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal

from hessmap.results.record import Record


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
