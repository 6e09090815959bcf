"""What a map will cost, said before it is paid."""

from __future__ import annotations

from dataclasses import dataclass

from hessmap.curvature.memory import readable_bytes, require_memory

# The matrix at work, its symmetric part, and the copy that LAPACK overwrites.
_MATRICES_AT_ONCE = 3


@dataclass(frozen=True)
class MapPlan:
    """The cost of mapping one network: three Hessians, one after the other, each formed and decomposed.

    >>> print(MapPlan(num_parameters=2720, num_samples=1797))
    three dense Hessians of 2,720 parameters, 56.4 MiB each, about 1.6e+11 flops
    """

    num_parameters: int
    num_samples: int

    @property
    def num_bytes(self) -> int:
        """The largest memory that is held at once."""
        return _MATRICES_AT_ONCE * 8 * self.num_parameters**2

    @property
    def num_flops(self) -> float:
        """Products over the samples, 2 N p^2, and the reduction to tridiagonal form, 4/3 p^3, three times."""
        return 3 * (2.0 * self.num_samples * self.num_parameters**2 + 4 / 3 * self.num_parameters**3)

    def require_room(self) -> None:
        """Refuse what does not fit the memory, with the bytes and what to do instead."""
        require_memory(
            f"a map of {self.num_parameters:,} parameters",
            self.num_bytes,
            "Map a smaller network or freeze some layers; products (loss_hessian(problem) @ v) need no dense matrix",
        )

    def __str__(self) -> str:
        size = f"{self.num_parameters:,} parameters, {readable_bytes(8 * self.num_parameters**2)} each"
        return f"three dense Hessians of {size}, about {self.num_flops:.1e} flops"
