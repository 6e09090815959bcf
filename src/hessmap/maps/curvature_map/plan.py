"""What a map will cost, and the parts of it that may fail without the rest."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from hessmap.errors import HessmapError, ProcessLost
from hessmap.linalg import available_bytes, readable_bytes

# The matrix at work, its symmetric part, and the copy that LAPACK overwrites.
_MATRICES_AT_ONCE = 3
_QUICK = 3000  # parameters of a chain of layers whose Hessians take seconds, also where a busy machine says otherwise
_SLOWER = 4.0  # how much slower forming and decomposing runs than matrix products, as measured


@dataclass(frozen=True)
class MapPlan:
    """The cost of a map by dense Hessians, formed and decomposed one after the other.

    Args:
        num_parameters: Number of parameters.
        num_samples: Number of samples.
        num_matrices: Number of Hessians: two, three with ranks, six with those of the network without activations.
            Defaults to 2.
        seconds_per_product: Time of a matrix-vector product, for models whose columns each take one. Defaults to 0:
            the columns come from matrix products.

    Example:
        >>> print(MapPlan(num_parameters=2720, num_samples=1797))
        2 dense Hessians of 2,720 parameters, 56.4 MiB each, about 1.1e+11 flops
    """

    num_parameters: int
    num_samples: int
    num_matrices: int = 2
    seconds_per_product: float = 0.0

    @property
    def num_bytes(self) -> int:
        """The largest memory that is held at once."""
        return _MATRICES_AT_ONCE * 8 * self.num_parameters**2

    @property
    def num_flops(self) -> float:
        """Products over the samples, 2 N p^2, and the reduction to tridiagonal form, 4/3 p^3, for each matrix."""
        each = 2.0 * self.num_samples * self.num_parameters**2 + 4 / 3 * self.num_parameters**3
        return self.num_matrices * each

    @property
    def seconds(self) -> float:
        """About, from the speed of a small matrix product."""
        columns = self.num_matrices * self.num_parameters * self.seconds_per_product
        return _SLOWER * self.num_flops / matmul_flops_per_second() + columns

    def excess(self, seconds: float | None) -> str:
        """Why the Hessians are not formed, in bytes or seconds; empty where they are."""
        available = available_bytes()
        if self.num_bytes > available:
            return f"dense Hessians need {readable_bytes(self.num_bytes)}, and {readable_bytes(available)} are free"
        is_quick = self.seconds_per_product == 0 and self.num_parameters <= _QUICK
        if seconds is None or is_quick or (expected := self.seconds) <= seconds:
            return ""
        return f"dense Hessians would take about {expected:.3g} s, the limit is {seconds:g} s"

    def __str__(self) -> str:
        size = f"{self.num_parameters:,} parameters, {readable_bytes(8 * self.num_parameters**2)} each"
        return f"{self.num_matrices} dense Hessians of {size}, about {self.num_flops:.1e} flops"


def matmul_flops_per_second(size: int = 384) -> float:
    """The speed of this machine, the best of three small products."""
    matrix = torch.ones(size, size, dtype=torch.float64)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        matrix @ matrix
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / max(1e-9, best)


class ProductBudget:
    """Shares a time among stages, in products.

    Each stage makes at most ``caps`` products. Where the time does not suffice for all caps, each stage ahead gets the
    number below which its result says little (``floors``), and what is left beyond these goes to the stages in
    proportion to what they may still make. Where it does not suffice for the floors, these shrink in proportion, down
    to the products that a stage cannot do without (``least``), which it makes in any time.

    With time enough for all caps the products, and with them the numbers, do not depend on the clock.
    """

    def __init__(
        self,
        seconds: float | None,
        caps: dict[str, int],
        seconds_per_product: float,
        clock: Callable[[], float] = time.perf_counter,
        floors: dict[str, int] | None = None,
        least: dict[str, int] | None = None,
    ) -> None:
        self.seconds_per_product = seconds_per_product
        self.num_products = 0
        self._caps = dict(caps)
        self._floors = {stage: min(cap, (floors or {}).get(stage, 0)) for stage, cap in caps.items()}
        self._least = {stage: min(cap, (least or {}).get(stage, 0)) for stage, cap in caps.items()}
        self._clock = clock
        self._start = clock()
        self._seconds = seconds

    @property
    def planned_products(self) -> int:
        """As many as there is time for, of all that the stages ahead may make."""
        least = sum(self._least[stage] for stage in self._caps)
        return max(least, min(sum(self._caps.values()), self._affordable))

    @property
    def _affordable(self) -> int:
        return 2**62 if self._seconds is None else int(self.remaining / max(1e-9, self.seconds_per_product))

    @property
    def remaining(self) -> float:
        return float("inf") if self._seconds is None else self._seconds - self.elapsed

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    def has_time(self) -> bool:
        return self.remaining > 0

    def allowed_products(self, stage: str) -> int:
        """How many products the stage may make now; it is over for the stages after it."""
        ahead, floors = sum(self._caps.values()), sum(self._floors[name] for name in self._caps)
        cap, floor, affordable = self._caps.pop(stage), self._floors[stage], self._affordable
        if affordable >= ahead:
            return cap
        if affordable >= floors:
            return floor + int((affordable - floors) * (cap - floor) / max(1, ahead - floors))
        return max(self._least[stage], int(floor * affordable / max(1, floors)))

    def spend(self, products: int, seconds: float) -> None:
        """Count what a stage made; its seconds per product are expected of the next one."""
        self.num_products += products
        if products >= 4 and seconds > 0:
            self.seconds_per_product = seconds / products


Part = TypeVar("Part")


def optional_part(make: Callable[[], Part]) -> tuple[Part | None, str]:
    """The part, or None and the reason why it is not available.

    A map may take minutes, and most of its parts do not need each other: memory that runs out, a network or data that
    a formula does not cover, or an exception of the user's own code in one of them is a note of the map. What every
    part needs (the problem, its products) fails before any of them and is raised.

    >>> optional_part(lambda: 1 / 0)
    (None, 'ZeroDivisionError: division by zero')
    """
    try:
        return make(), ""
    except ProcessLost:  # what follows needs the other processes as well
        raise
    except Exception as error:
        return None, reason_of(error)


def reason_of(error: Exception) -> str:
    """One line: the sentence of an error of hessmap, the type and the first line of any other."""
    lines = str(error).splitlines() or [""]
    return str(error) if isinstance(error, HessmapError) else f"{type(error).__name__}: {lines[0]}".removesuffix(": ")
