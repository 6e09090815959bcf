"""Hessians of linear networks with any weights and a bias in some layers, over GF(2^61 - 1), by polarisation.

The output map is linear in every single layer, so a derivative by an entry is the map with that layer replaced by the
entry's unit matrix, and a second derivative has two layers replaced. Shares nothing with the library; slow on purpose.

Data are given as coordinates: the rows of ``inputs`` are the input variables as functions on a sample space of some
dimension, and ``constant`` is the constant function there. ``moment`` is the residual as a functional on output times
sample space: [Omega, omega] in these coordinates.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import reduce

from flint import nmod_mat

from exact_oracle import PRIME, Matrix, field_matrix, plain, product, random_matrix, rank, transpose


@dataclass(frozen=True)
class Data:
    inputs: Matrix
    constant: list[int]
    moment: Matrix

    @property
    def residual_rank(self) -> int:
        """Of [Omega, omega]."""
        return rank(product(self.moment, transpose([*self.inputs, self.constant])))

    @property
    def uncentred_residual_rank(self) -> int:
        return rank(product(self.moment, transpose(self.inputs)))

    @property
    def mean_residual_is_zero(self) -> bool:
        return not any(entry for row in product(self.moment, transpose([self.constant])) for entry in row)


def ranks(weights: list[Matrix], biases: dict[int, list[int]], data: Data) -> tuple[int, int, int]:
    """Of the outer-product, the functional and the loss Hessian; ``biases`` by layer, from 1."""
    layers = [_homogeneous(matrix, biases.get(place)) for place, matrix in enumerate(weights, start=1)]
    samples = field_matrix([*data.inputs, data.constant])
    units = [(place, unit) for place in range(len(layers)) for unit in _units(weights[place], place + 1 in biases)]
    jacobian = [_flat(_output(layers, samples, {place: unit})) for place, unit in units]
    moment = _flat(field_matrix(data.moment))
    functional = [
        [0 if a[0] == b[0] else _inner(moment, _flat(_output(layers, samples, dict([a, b])))) for b in units]
        for a in units
    ]
    outer = product(jacobian, transpose(jacobian))
    total = [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(outer, functional, strict=True)]
    return rank(outer), rank(functional), rank(total)


def random_data(draw: random.Random, input_dim: int, output_dim: int, input_rank: int, centred: int, kind: str) -> Data:
    """Inputs of the given ranks; the residual "generic", of "low rank", of "zero mean", or with a mean of its "own"
    that no input sees (possible where the constant is not a function of the inputs)."""
    size = centred + 1
    constant = random_matrix(draw, 1, size)[0]
    codes = random_matrix(draw, input_rank, size)
    if centred < input_rank:
        codes[0] = constant
    inputs = product(random_matrix(draw, input_dim, input_rank), codes)
    num_directions = output_dim if kind == "generic" else draw.randint(0, min(output_dim, size))
    directions = random_matrix(draw, num_directions, size)
    blind = {"zero mean": [constant], "own mean": codes}.get(kind, [])
    if kind == "zero mean":
        directions = [_orthogonal(draw, blind, size) for _ in directions]
    if kind == "own mean" and directions and centred == input_rank:
        directions[0] = _orthogonal(draw, blind, size)
    if not directions:
        return Data(inputs, constant, [[0] * size for _ in range(output_dim)])
    return Data(inputs, constant, product(random_matrix(draw, output_dim, num_directions), directions))


def _orthogonal(draw: random.Random, vectors: Matrix, size: int) -> list[int]:
    """A random vector that the given ones map to zero; zero if there is no other."""
    basis, nullity = field_matrix(vectors).nullspace()
    columns = transpose(plain(basis))[:nullity]
    factors = [draw.randrange(PRIME) for _ in columns]
    return [sum(f * column[place] for f, column in zip(factors, columns, strict=True)) % PRIME for place in range(size)]


def _homogeneous(matrix: Matrix, bias: list[int] | None) -> nmod_mat:
    column = bias or [0] * len(matrix)
    rows = [[*row, entry] for row, entry in zip(matrix, column, strict=True)]
    return field_matrix([*rows, [0] * len(matrix[0]) + [1]])


def _units(matrix: Matrix, has_bias: bool) -> list[nmod_mat]:
    rows, columns = len(matrix), len(matrix[0])
    units = []
    for i in range(rows):
        for j in range(columns + has_bias):
            unit = nmod_mat(rows + 1, columns + 1, PRIME)
            unit[i, j] = 1
            units.append(unit)
    return units


def _output(layers: list[nmod_mat], samples: nmod_mat, replaced: dict[int, nmod_mat]) -> nmod_mat:
    chosen = [replaced.get(place, layer) for place, layer in enumerate(layers)]
    return reduce(lambda values, layer: layer * values, chosen, samples)


def _flat(matrix: nmod_mat) -> list[int]:
    """All entries, row after row; the constant's row comes last and is zero in a derivative."""
    return [int(entry) for row in matrix.table() for entry in row]


def _inner(moment: list[int], output: list[int]) -> int:
    """The residual against an output map, whose last row (the constant's) it does not see."""
    return sum(a * b for a, b in zip(moment, output, strict=False)) % PRIME
