"""Which end of a spectrum is wanted, how many pairs of it, and how well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from hessmap.errors import require, unknown_name

End = Literal["largest", "smallest", "both_ends", "magnitude"]
Reference = Literal["norm", "eigenvalue"]
ENDS: tuple[End, ...] = get_args(End)
_ROUNDING = 1e-14  # of the norm: below the rounding of a product there is nothing to be had


@dataclass(frozen=True)
class WantedPairs:
    """Which eigenpairs are asked for, and when one of them counts as found.

    ``floor`` is the smallest residual, of the norm, that products in float32 can be asked for; None in float64.
    """

    which: End
    count: int
    tolerance: float
    relative_to: Reference
    floor: float | None = None

    def check(self, size: int) -> None:
        if self.which not in ENDS:
            raise unknown_name("which", self.which, ENDS)
        if self.relative_to not in get_args(Reference):
            raise unknown_name("relative_to", self.relative_to, get_args(Reference))
        must = f"count must lie between 1 and the size {size} of the operator"
        require(1 <= self.count <= size, must, f"got {self.count}")
        must = "tolerance must lie between 1e-15 and 1, relative to the norm or the eigenvalue"
        require(1e-15 <= self.tolerance < 1, must, f"got {self.tolerance}")

    def total(self, size: int) -> int:
        return min(size, 2 * self.count if self.which == "both_ends" else self.count)

    def chosen(self, values: Tensor, extra: int = 0) -> Tensor:
        """Places of the wanted Ritz values (ascending order given), the best ones last."""
        last = len(values)
        if self.which == "largest":
            return torch.arange(max(0, last - self.count - extra), last)
        if self.which == "smallest":
            return torch.arange(min(last, self.count + extra)).flip(0)
        if self.which == "magnitude":
            return values.abs().argsort(stable=True)[max(0, last - self.count - extra) :]
        low = min(last // 2, self.count + extra // 2)
        high = max(low, last - self.count - extra // 2)
        return torch.cat([torch.arange(low), torch.arange(high, last)])

    def limits(self, values: Tensor, residuals: Tensor, norm: float) -> Tensor:
        """Which of these values have small enough residuals."""
        return residuals <= torch.clamp(self._allowed(values, norm), min=(self.floor or _ROUNDING) * norm)

    def is_out_of_reach(self, values: Tensor, norm: float) -> bool:
        """Whether one of them asks for more than products in float32 can give."""
        return self.floor is not None and bool((self._allowed(values, norm) < self.floor * norm).any())

    def _allowed(self, values: Tensor, norm: float) -> Tensor:
        reference = values.abs() if self.relative_to == "eigenvalue" else torch.full_like(values, norm)
        return self.tolerance * reference

    def margins(self, values: Tensor, last: Tensor) -> Tensor:
        """How far values stay behind the last wanted one (``last``: lowest and highest of the wanted)."""
        if self.which == "largest":
            return last.min() - values
        if self.which == "smallest":
            return values - last.max()
        if self.which == "magnitude":
            return last.abs().min() - values.abs()
        ends = last.sort().values
        return torch.minimum(values - ends[self.count - 1], ends[-self.count] - values)

    def is_clear(self, known: Tensor, slack: float, values: Tensor, residuals: Tensor, share: Tensor) -> bool | None:
        """Whether a probe shows that nothing lies beyond the wanted values (``known``): True, False, or not yet.

        Something does if the wanted ones among all values are others than before. If not, the value nearest to them
        whose vector is new (``share``) must have settled, or be farther away than its residual.
        """
        if float((self._ordered(values[self.chosen(values)]) - self._ordered(known)).abs().max()) > slack:
            return False
        new = share > 0.5  # of a repeated value old and new vectors are mixed: the comparison above sees it
        if not new.any():
            return None
        margins = self.margins(values, known)[new]
        nearest = margins.argmin()
        margin, residual = float(margins[nearest]), float(residuals[new][nearest])
        return True if margin > residual or residual <= slack else None

    def _ordered(self, values: Tensor) -> Tensor:
        return (values.abs() if self.which == "magnitude" else values).sort().values
