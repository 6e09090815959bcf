"""A chain of filters as tables over all pairs of its vertices, so that a formula takes them all at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from hessmap.theory.convolutional.filter_chains import FilterChain
from hessmap.theory.convolutional.image_chains import ImageChain

# Whole numbers: of 64 bits where every product fits, of any size elsewhere.
Integers = npt.NDArray[Any]
NO_LIMIT = 2**62


@dataclass(frozen=True, eq=False)
class ChainTables:
    """``channels`` by vertex; for vertices i <= j ``taps`` t(i, j), ``phases`` and whether there ``is_gapless``.

    >>> tables = chain_tables(FilterChain(channels=(1, 2, 3, 4), kernels=(4, 2, 5)))
    >>> tables.taps[0].tolist(), tables.fed_from_input[0].tolist()[1:]
    ([1, 4, 5, 9], [4, 4, 9])
    """

    channels: Integers
    taps: Integers
    phases: Integers
    is_gapless: npt.NDArray[np.bool_]

    @property
    def last(self) -> int:
        """The last vertex."""
        return len(self.channels) - 1

    @property
    def mirror_image(self) -> ChainTables:
        """The same read from the output to the input."""
        return ChainTables(self.channels[::-1], mirror(self.taps), mirror(self.phases), mirror(self.is_gapless))

    @cached_property
    def fed_from_input(self) -> Integers:
        """By i and v the least m_u t(u, v) over i <= u < v: so many independent channels v can have beside them."""
        spans = self._strictly_above_diagonal(self.channels[:, None] * self.taps)
        return np.minimum.accumulate(spans[::-1], axis=0)[::-1]

    @cached_property
    def fed_from_output(self) -> Integers:
        """By v and j the least m_w t(v, w) over v < w <= j."""
        spans = self._strictly_above_diagonal(self.channels * self.taps)
        return np.minimum.accumulate(spans, axis=1)

    def _strictly_above_diagonal(self, values: Integers) -> Integers:
        is_above = np.triu(np.ones(values.shape, dtype=bool), 1)
        return np.where(is_above, values, NO_LIMIT)


@lru_cache(maxsize=64)
def chain_tables(chain: FilterChain | ImageChain) -> ChainTables:
    size = chain.num_layers + 1
    pairs = [(i, j) for i in range(size) for j in range(i, size)]
    taps = [chain.taps(i, j) for i, j in pairs]
    largest = max(chain.channels) ** 2 * max(taps)
    dtype = np.int64 if 16 * largest < NO_LIMIT else np.object_
    return ChainTables(
        np.array(chain.channels, dtype=dtype),
        _table(size, taps, dtype),
        _table(size, [chain.phases(i, j) for i, j in pairs], dtype),
        _table(size, [chain.is_gapless(i, j) for i, j in pairs], np.bool_),
    )


def mirror(table: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A table over pairs i <= j with the vertices counted from the other end."""
    return table[::-1, ::-1].T


def _table(size: int, values: list[Any], dtype: Any) -> npt.NDArray[Any]:
    table = np.zeros((size, size), dtype=dtype)
    table[np.triu_indices(size)] = values
    return table
