"""The squared norm of a deep network in three parts: before its bottleneck, inside, behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hessmap.errors import require


@dataclass(frozen=True)
class NormSplit:
    """||W||^2 = ||W_g||^2 + (the layers inside the bottleneck) + ||W_h||^2.

    ``start`` and ``end`` are the first and the last representation (1 leaves the first layer) of the block of
    neighbouring ones that have the least rank ``rank``: L_g = ``start`` layers lead to it, L_h = ``num_layers`` -
    ``end`` follow, and those between map k dimensions to k dimensions.
    """

    num_layers: int
    rank: int
    start: int
    end: int
    before: float
    inside: float
    behind: float

    @property
    def num_inside(self) -> int:
        """L - L_g - L_h."""
        return self.end - self.start

    @property
    def squared_norm(self) -> float:
        return self.before + self.inside + self.behind

    @property
    def above_rank(self) -> float:
        """||W||^2 - k L: what the constant C of k L + C is for this network."""
        return self.squared_norm - self.rank * self.num_layers

    @property
    def inside_per_layer(self) -> float | None:
        """What a layer inside costs; k if it is an identity. None where there is none."""
        return self.inside / self.num_inside if self.num_inside else None


def norm_split(squared_norms: Sequence[float], ranks: Sequence[int]) -> NormSplit:
    """Where the bottleneck of a network begins and ends, and what each part of its parameters costs.

    ``squared_norms`` has ||W_l||^2 + ||b_l||^2 of every layer, ``ranks`` the dimension of what leaves every layer but
    the last. Of several blocks of least rank the longest counts, of equally long ones the first. Kind of truth: an
    identity of sums; that the inside costs k a layer is what the paper expects of minima.
    Reference: Jacot 2023, section 4, discussion (the rescaled norm with L_g and L_h).

    >>> split = norm_split([9.0, 2.5, 2.0, 2.0, 4.0], ranks=[5, 2, 2, 2])
    >>> split.start, split.end, split.inside_per_layer, split.above_rank
    (2, 4, 2.0, 9.5)
    """
    must = "there must be a rank for every layer but the last"
    require(len(squared_norms) == len(ranks) + 1 >= 2, must, f"got {len(squared_norms)} norms and {len(ranks)} ranks")
    start, end = _longest_block(ranks)
    return NormSplit(
        num_layers=len(squared_norms),
        rank=min(ranks),
        start=start,
        end=end,
        before=float(sum(squared_norms[:start])),
        inside=float(sum(squared_norms[start:end])),
        behind=float(sum(squared_norms[end:])),
    )


def _longest_block(ranks: Sequence[int]) -> tuple[int, int]:
    """The first and the last place, from 1, of the longest run of the least value."""
    least, best, start = min(ranks), (0, 0), None
    for place, rank in enumerate((*ranks, least + 1), start=1):
        if rank == least:
            start = place if start is None else start
        elif start is not None:
            if best == (0, 0) or place - 1 - start > best[1] - best[0]:
                best = (start, place - 1)
            start = None
    return best
