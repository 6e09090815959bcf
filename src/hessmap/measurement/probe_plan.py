"""How many probes are multiplied together, and how wide a sketch is, within a memory budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hessmap.errors import TooLarge
from hessmap.linalg import readable_bytes
from hessmap.measurement.probes import BLOCK, PIECE

SKETCH = 2 * BLOCK
_LEAST_SKETCH = 4  # columns; below, its products are better spent on probes
_LEAST_PIECE = 2**10
_PIECES = 3  # that the moments of a trace's entries hold at once
ProbedQuantity = Literal["trace", "diagonal", "Frobenius norm", "traces of the blocks"]
_FEWEST_PROBES = {"Frobenius norm": 2}  # that are multiplied together: pairs of them show the variance


@dataclass(frozen=True)
class ProbePlan:
    """What an estimate by random signs holds: the columns of its sketch, the probes of a product, and bytes."""

    sketch: int
    width: int
    num_bytes: int
    is_limited: bool
    piece: int  # numbers that are handled at a time beside the vectors

    @property
    def num_columns(self) -> int:
        """Columns of the whole matrix that are computed together: units, their images and the images before."""
        return max(1, 2 * self.width // 3) if self.is_limited else BLOCK

    @property
    def notes(self) -> tuple[str, ...]:
        """What the budget changed."""
        if not self.is_limited:
            return ()
        sketch = f"a sketch of {self.sketch} columns" if self.sketch else "no sketch"
        probes = "one probe" if self.width == 1 else f"{self.width} probes"
        return (f"within the memory budget: {sketch}, {probes} at a time",)


def probe_plan(
    quantity: ProbedQuantity, size: int, item: int, budget: int, *, sketch: int = SKETCH, known: int = 0
) -> ProbePlan:
    """Choose the widths of an estimate by random signs.

    Args:
        quantity: "trace", "diagonal", "Frobenius norm" or "traces of the blocks".
        size: Length of a vector.
        item: Bytes of a number.
        budget: Bytes that may be held.
        sketch: Columns of the sketch without a limit; 0 for plain Hutchinson. Defaults to 32.
        known: Number of known eigenvectors, which replace the sketch. Defaults to 0.

    Returns:
        ProbePlan: The widest that fits. The sketch is left out where fewer than four columns fit.

    Raises:
        TooLarge: If one probe does not fit.

    Example:
        >>> plan = probe_plan("trace", 10**4, 8, 16 * 8 * 10**4)
        >>> plan.sketch, plan.width, plan.num_bytes // (8 * 10**4)
        (5, 4, 15)
    """
    each = max(1, size * item)
    wished = min(size, known or sketch)
    pieces = _PIECES * item if quantity in ("trace", "traces of the blocks") else 0
    fewest = _FEWEST_PROBES.get(quantity, 1)
    whole = _vectors(quantity, wished, BLOCK, bool(known)) * each + pieces * min(PIECE, size * BLOCK)
    if whole <= budget:
        return ProbePlan(wished, BLOCK, whole, False, PIECE)
    piece = min(PIECE, max(_LEAST_PIECE, size // 8))
    room = (budget - pieces * piece) // each
    least = 1 if known else _LEAST_SKETCH
    fitting = (
        (columns, width)
        for columns in (*range(min(wished, room), least - 1, -1), 0)
        for width in range(BLOCK, fewest - 1, -1)
        if _vectors(quantity, columns, width, bool(known)) <= room
    )
    columns, width = next(fitting, (0, 0))
    if not width:
        needed = _vectors(quantity, 0, fewest, False)
        least_bytes = readable_bytes(needed * each + pieces * piece)
        needs = f"the {quantity} of an operator of size {size:,} takes at least {least_bytes}"
        given = f"({needed} vectors); the memory budget is {readable_bytes(budget)}"
        raise TooLarge(f"{needs} {given}. Use float32, or a larger memory_budget.")
    held = _vectors(quantity, columns, width, bool(known)) * each + pieces * piece
    return ProbePlan(columns, width, held, True, piece)


def _vectors(quantity: ProbedQuantity, sketch: int, width: int, is_known: bool) -> int:
    """Vectors held while the sketch is made orthonormal, which copies it twice, or while probes are multiplied.

    A trace holds its sketch, probes, images and the mean of their entries; those of blocks also an entry-wise product
    and the numbers of the blocks, up to two vectors in float32; a diagonal also the images of the sketch, sums of
    squares, and with a sketch the part of the images in its range.
    """
    if quantity != "diagonal":
        probing = sketch + 2 * width + {"trace": 1, "Frobenius norm": 0, "traces of the blocks": 4}[quantity]
    else:
        probing = 2 * width + 2 + (2 * sketch + width + 1 if sketch else 0)
    return probing if is_known else max(3 * sketch, probing)
