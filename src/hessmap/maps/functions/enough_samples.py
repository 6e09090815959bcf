"""Are there enough samples to tell how many dimensions a representation has?"""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.linalg import centred_singular_values, count_above
from hessmap.measurement import Floats


def is_rank_of_samples(after: Floats, rank: int, distinct: Tensor, relative_tolerance: float) -> bool:
    """Whether the centred rank of a representation (samples, width) may be that of the samples, not of the layer.

    ``distinct`` are the rows of different samples. k of them span k - 1 dimensions at most. Up to twice as many samples
    as units, a rank is the layer's only where each half of the samples shows it and could have shown one more: else it
    may still grow with their number.

    >>> import numpy as np
    >>> line = np.outer(np.arange(8.0), np.ones(5))
    >>> is_rank_of_samples(line, 1, torch.arange(8), 0.1), is_rank_of_samples(np.eye(8), 7, torch.arange(8), 0.1)
    (False, True)
    """
    width, count = after.shape[1], len(distinct)
    if rank >= width or count > 2 * width + 1:
        return False
    if rank >= count // 2 - 1:
        return True
    halves = (after[part.numpy()] for part in torch.tensor_split(distinct, 2))
    return any(count_above(centred_singular_values(half), relative_tolerance) < rank for half in halves)


def distinct_samples(samples: Tensor, relative_tolerance: float, at_most: int) -> Tensor:
    """Rows, in a random order, of samples that differ by more than a tenth of the tolerance, of the root mean square
    distance from their mean; no more than ``at_most``.

    >>> len(distinct_samples(torch.eye(3).double().repeat(50, 1), 0.1, at_most=100))
    3
    """
    rows, places = torch.unique(samples.flatten(1), dim=0, return_inverse=True)
    first = torch.zeros(len(rows), dtype=torch.long, device=places.device)
    first[places] = torch.arange(len(places), device=places.device)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))  # sorted ones lie together
    rows, first = rows[order], first[order]
    radius = 0.1 * relative_tolerance * float((rows - rows.mean(0)).square().sum(1).mean().sqrt())
    kept = order[:0]
    for part in torch.split(torch.arange(len(rows)), 256):
        new = part[(_distances(rows[part], rows[kept]) > radius).all(dim=1)]
        is_near = torch.triu(_distances(rows[new], rows[new]) <= radius, diagonal=1)
        for place in range(len(new)):  # whoever lies near one that counts does not count
            if is_near[:place, place].any():
                is_near[place] = False
        kept = torch.cat([kept, new[~is_near.any(dim=0)]])
        if len(kept) >= at_most:
            break
    return first[kept[:at_most]]


def _distances(one: Tensor, other: Tensor) -> Tensor:
    """By differences: inner products lose half of the digits between near points."""
    return torch.cdist(one, other, compute_mode="donot_use_mm_for_euclid_dist")
