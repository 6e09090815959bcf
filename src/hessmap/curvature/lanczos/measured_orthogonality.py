"""Whether new vectors of a Lanczos process are still orthogonal to a basis in float32, without reading the basis."""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.lanczos.orthogonalisation import inner_matrix, row_lengths

# Of float32, half of all digits are 3e-4. A step can multiply what is lost by the norm over the length of the next
# vector, so it is caught well before; sums of rounding alone stay below 1e-6.
_LOST = 1e-5
_NUM_MIXTURES = 3  # a mixture misses a tenth of what there is in one case of twelve, all three in one of 2,000
_JOINING = 8  # vectors that join the mixtures at a time


class MeasuredOrthogonality:
    """Inner products with a few random mixtures of all earlier vectors, which are as large as the root of the sum of
    the squared inner products with these, on average. Nothing is assumed of the process or of its rounding.
    """

    def __init__(self, size: int) -> None:
        self.num_cleared = 0  # times that the basis was taken out because of it
        self._mixtures = torch.zeros(_NUM_MIXTURES, size, dtype=torch.float32)
        self._num_mixed = 0
        self._again = False
        self._generator = torch.Generator().manual_seed(0)

    def forget(self) -> None:
        """The basis is another one."""
        self._num_mixed = 0
        self._again = False

    def is_lost(self, basis: Tensor, rest: Tensor) -> bool:
        """Whether new rows must be cleared of the whole basis; those of the step after are cleared as well, since the
        recurrence takes from both."""
        self._mix(basis)
        lengths = row_lengths(rest)
        overlaps = inner_matrix(self._mixtures, rest).abs().amax(0) if self._num_mixed else torch.zeros(len(rest))
        is_due = bool((overlaps > _LOST * lengths).any())
        is_lost = is_due or self._again
        self._again = is_due and not self._again
        self.num_cleared += is_lost
        return is_lost

    def _mix(self, basis: Tensor) -> None:
        """Let the vectors join that are not among them yet, when they are many enough."""
        if len(basis) - self._num_mixed < _JOINING:
            return
        new = basis[self._num_mixed :]
        weights = torch.randn(_NUM_MIXTURES, len(new), generator=self._generator, dtype=torch.float32)
        self._mixtures.addmm_(weights, new, beta=float(self._num_mixed > 0))
        self._num_mixed = len(basis)
