"""The number of directions in which a network's function can move, with the kind of truth it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from hessmap.records.record import Record

CountTruth = Literal["exact", "conjecture", "upper_bound"]


@dataclass(frozen=True, eq=False, repr=False)
class EffectiveParameters(Record):
    """The rank of the population Hessian where student and teacher agree, for generic weights.

    ``kind`` is "exact" (a theorem), "conjecture" (a theorem as an upper bound; that it is reached is not proved, and
    held on ``num_cases`` networks in exact arithmetic, all that were tried) or "upper_bound". ``function_space_dim``
    is the dimension of the smallest linear space that holds every function of the network, None where that is infinite.
    """

    value: int
    kind: CountTruth
    reference: str
    num_parameters: int
    function_space_dim: int | None
    num_cases: int | None = None
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "kind", "num_parameters", "function_space_dim", "reference")

    def __int__(self) -> int:
        return self.value
