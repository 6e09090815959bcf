"""Linear networks that no architecture of the library describes, as the exact engine draws them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hessmap.curvature.finite_field.chain import Affine, Chain, Identity
from hessmap.curvature.finite_field.drawn_network import drawn_network
from hessmap.curvature.finite_field.field_array import FieldArray, from_integers, random_array
from hessmap.curvature.finite_field.prime_field import PrimeField


@dataclass(frozen=True)
class PartlyBiased:
    """Generic weights, and a bias in the layers of ``biased_layers`` (from 1) only."""

    widths: tuple[int, ...]
    biased_layers: tuple[int, ...]


@dataclass(frozen=True)
class SumOfIntervals:
    """Weights of zeros and ones: a direct sum of copies of 1 -> 1 -> .. -> 1, each on the vertices first..last.

    Up to a change of basis at every vertex these are all linear networks (``theory.product_ranks``).
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


@drawn_network.register
def _partly_biased(network: PartlyBiased, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    weights = [
        random_array(field, generator, after, before + (layer in network.biased_layers))
        for layer, (before, after) in enumerate(pairwise(network.widths), start=1)
    ]
    return _chain(weights, [layer in network.biased_layers for layer in range(1, len(network.widths))])


@drawn_network.register
def _sum_of_intervals(network: SumOfIntervals, field: PrimeField, generator: np.random.Generator) -> Chain[FieldArray]:
    vertices = [np.array(network.units(vertex)) for vertex in range(network.num_layers + 1)]
    weights = [
        from_integers(field, np.equal.outer(after, before).astype(np.int64)) for before, after in pairwise(vertices)
    ]
    return _chain(weights, [False] * network.num_layers)


def _chain(weights: list[FieldArray], has_bias: list[bool]) -> Chain[FieldArray]:
    layers, start = [], 0
    for matrix, bias in zip(weights, has_bias, strict=True):
        size = matrix.shape[0] * matrix.shape[1]
        layers.append(Affine(matrix, np.arange(start, start + size).reshape(matrix.shape), bias))
        start += size
    return Chain(tuple(layers), (Identity(),) * (len(layers) - 1), start)
