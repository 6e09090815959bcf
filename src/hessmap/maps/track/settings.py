"""What is measured at each point of a track, and how well."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from hessmap.errors import require, unknown_name
from hessmap.results import PARTS, Part

Quantity = Literal["eigenvalues", "gradient_overlap", "trace"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)


@dataclass(frozen=True)
class TrackSettings:
    """``count`` eigenvalues to ``tolerance`` of the norm, with ``max_products`` products at most; the trace to a
    standard error of ``trace_error`` of it, with ``max_probes`` probes at most.

    The same ``seed`` at every point gives the same probes: what differs between two points is the network.
    """

    quantities: tuple[Quantity, ...] = QUANTITIES
    part: Part = "loss"
    count: int = 5
    tolerance: float = 1e-3
    max_products: int = 500
    trace_error: float = 0.05
    max_probes: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for quantity in self.quantities:
            if quantity not in QUANTITIES:
                raise unknown_name("quantities", quantity, QUANTITIES)
        if self.part not in PARTS:
            raise unknown_name("part", self.part, PARTS)
        must = "the overlap of the gradient needs eigenvectors"
        has_vectors = "gradient_overlap" not in self.quantities or "eigenvalues" in self.quantities
        require(has_vectors, must, "'eigenvalues' is not among the quantities", "Add it")
        require(self.count >= 1, "count must be at least 1", f"got {self.count}")
        require(self.max_products >= 1, "max_products must be at least 1", f"got {self.max_products}")
        require(self.max_probes >= 2, "max_probes must be at least 2", f"got {self.max_probes}")
        require(0 < self.trace_error < 1, "trace_error must lie between 0 and 1", f"got {self.trace_error}")
        require(1e-15 <= self.tolerance < 1, "tolerance must lie between 1e-15 and 1", f"got {self.tolerance}")

    def as_dict(self) -> dict[str, Any]:
        """All but the part, which a track names beside them."""
        named = asdict(self)
        del named["part"]
        return {**named, "quantities": tuple(sorted(self.quantities))}
