"""Linear networks whose products of weights have any ranks that are possible, as the exact engine takes them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hessmap.exact.field import FieldArray, PrimeField, from_integers
from hessmap.exact.generic import random_network
from hessmap.exact.network import Affine, Chain, Identity


@dataclass(frozen=True)
class SumOfIntervals:
    """Weights of zeros and ones: a direct sum of copies of 1 -> 1 -> .. -> 1, each on the vertices first..last.

    Up to a change of basis at every vertex these are all linear networks (``theory.fully_connected.products``).
    """

    num_layers: int
    intervals: tuple[tuple[int, int], ...]

    def units(self, vertex: int) -> list[int]:
        """The intervals that have a unit at a vertex."""
        return [place for place, (first, last) in enumerate(self.intervals) if first <= vertex <= last]

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(self.units(vertex)) for vertex in range(self.num_layers + 1))

    @property
    def product_ranks(self) -> tuple[tuple[int, ...], ...]:
        """rho[j][i], the rank of the weights from vertex i to vertex j: the intervals that hold both."""
        return tuple(
            tuple(sum(first <= i and j <= last for first, last in self.intervals) for i in range(j + 1))
            for j in range(self.num_layers + 1)
        )


@random_network.register
def _sum_of_intervals(network: SumOfIntervals, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    vertices = [np.array(network.units(vertex)) for vertex in range(network.num_layers + 1)]
    layers, start = [], 0
    for before, after in pairwise(vertices):
        size = len(after) * len(before)
        positions = np.arange(start, start + size).reshape(len(after), len(before))
        weights = from_integers(field, np.equal.outer(after, before).astype(np.int64))
        layers.append(Affine(weights, positions, False))
        start += size
    return Chain(tuple(layers), (Identity(),) * (len(layers) - 1), start)
