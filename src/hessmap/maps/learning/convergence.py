"""Whether parallel chains of draws agree: split R-hat, and the trend of what they draw. No network is known here."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np

from hessmap.errors import require
from hessmap.measurement import Floats

NUM_BLOCKS = 8


def split_r_hat(chains: Floats) -> float:
    """sqrt of (variance of all half chains together) / (variance within half chains); 1 where they agree.

    ``chains`` has a row for each chain. Both halves of a chain count as chains, so that a common trend shows too.
    Reference: Gelman et al. 2013, Bayesian Data Analysis, section 11.4.

    >>> round(split_r_hat(np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]])), 3)
    0.707
    """
    chains = _checked_chains(chains, 4)
    length = chains.shape[1] // 2
    halves = np.concatenate([chains[:, :length], chains[:, -length:]])
    within = float(halves.var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    if within == 0:
        return 1.0 if between == 0 else inf
    return sqrt((length - 1) / length + between / within)


def block_means(chains: Floats, num_blocks: int = NUM_BLOCKS) -> Floats:
    """The mean of each chain over consecutive blocks of equal length; draws that are left over at the end count to
    the last.

    >>> block_means(np.array([[1.0, 3.0, 5.0, 7.0]]), 2)
    array([[2., 6.]])
    """
    chains = _checked_chains(chains, num_blocks)
    return np.stack([part.mean(axis=1) for part in np.array_split(chains, num_blocks, axis=1)], axis=1)


def trend(chains: Floats) -> tuple[float, float]:
    """How far the mean of all chains moves from the first to the last block by a straight line, and its standard error.

    Each chain has a slope of its own over the blocks; the error is that of the mean of these slopes, inf for one chain.

    >>> trend(np.array([[0.0, 1, 2, 3, 4, 5, 6, 7], [0.0, 1, 2, 3, 4, 5, 6, 7]]))
    (7.0, 0.0)
    """
    means = block_means(chains)
    times = np.arange(NUM_BLOCKS) - (NUM_BLOCKS - 1) / 2
    moved = means @ times / (times @ times) * (NUM_BLOCKS - 1)
    error = float(moved.std(ddof=1)) / sqrt(len(moved)) if len(moved) > 1 else inf
    return float(moved.mean()), error


def _checked_chains(chains: Floats, at_least: int) -> Floats:
    chains = np.asarray(chains, dtype=np.float64)
    is_table = chains.ndim == 2 and chains.shape[1] >= at_least
    require(is_table, f"chains must be rows of at least {at_least} draws", f"they have shape {chains.shape}")
    return chains
