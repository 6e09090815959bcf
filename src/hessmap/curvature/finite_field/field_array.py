"""Arrays of exact numbers: their residues modulo the prime, and a bound on the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hessmap.curvature.finite_field.dyadic import dyadic_parts
from hessmap.curvature.finite_field.height import Height
from hessmap.curvature.finite_field.prime_field import PrimeField, Residues


@dataclass(frozen=True, eq=False)
class FieldArray:
    """Reads like a numpy array; ``+``, ``-``, ``*``, ``@`` are exact and carry the height along."""

    field: PrimeField
    residues: Residues
    height: Height

    @property
    def shape(self) -> tuple[int, ...]:
        return self.residues.shape

    @property
    def mT(self) -> FieldArray:
        return self._with(self.residues.mT)

    def __len__(self) -> int:
        return len(self.residues)

    def __getitem__(self, place: Any) -> FieldArray:
        return self._with(self.residues[place])

    def reshape(self, *shape: int) -> FieldArray:
        return self._with(self.residues.reshape(shape))

    def transpose(self, *axes: int) -> FieldArray:
        return self._with(self.residues.transpose(axes))

    def __add__(self, other: FieldArray) -> FieldArray:
        return FieldArray(self.field, self.field.add(self.residues, other.residues), self.height + other.height)

    def __sub__(self, other: FieldArray) -> FieldArray:
        return FieldArray(self.field, self.field.subtract(self.residues, other.residues), self.height + other.height)

    def __mul__(self, other: FieldArray) -> FieldArray:
        return FieldArray(self.field, self.field.multiply(self.residues, other.residues), self.height * other.height)

    def __matmul__(self, other: FieldArray) -> FieldArray:
        height = (self.height * other.height).summed(self.shape[-1])
        return FieldArray(self.field, self.field.matmul(self.residues, other.residues), height)

    def _with(self, residues: Residues) -> FieldArray:
        return FieldArray(self.field, residues, self.height)


def from_floats(field: PrimeField, values: NDArray[np.float64]) -> FieldArray:
    """float64 numbers, mantissa * 2^exponent each, without rounding."""
    mantissas, exponents = dyadic_parts(values)
    residues = field.multiply(mantissas % field.prime, field.power_of_two(exponents))
    nonzero = mantissas != 0
    lowest = int(exponents[nonzero].min()) if nonzero.any() else 0
    highest = int(np.frexp(values[nonzero])[1].max()) if nonzero.any() else 0
    return FieldArray(field, residues, Height(max(0, -lowest), highest))


def from_integers(field: PrimeField, values: object) -> FieldArray:
    """Integers of any size, nested lists or arrays."""
    integers = np.asarray(values, dtype=object)
    largest = max((abs(int(value)) for value in integers.ravel()), default=0)
    return FieldArray(field, field.from_integers(integers), Height(0, largest.bit_length()))


def drawn(field: PrimeField, generator: np.random.Generator, *shape: int) -> FieldArray:
    """Independent uniform elements: variables of degree one, in the sense of ``Height``."""
    return FieldArray(field, field.draw(generator, *shape), Height(degree=1))


def zeros(field: PrimeField, *shape: int) -> FieldArray:
    return FieldArray(field, np.zeros(shape, dtype=np.int64), Height())


def ones(field: PrimeField, *shape: int) -> FieldArray:
    return FieldArray(field, np.ones(shape, dtype=np.int64), Height())


def identity(field: PrimeField, size: int) -> FieldArray:
    return FieldArray(field, np.eye(size, dtype=np.int64), Height())


def joined(parts: Sequence[FieldArray], axis: int) -> FieldArray:
    """The parts side by side along an axis."""
    height = Height.largest(part.height for part in parts)
    return FieldArray(parts[0].field, np.concatenate([part.residues for part in parts], axis=axis), height)


def selected(condition: NDArray[np.bool_], yes: FieldArray, no: FieldArray) -> FieldArray:
    """``yes`` where the condition holds, ``no`` elsewhere."""
    residues = np.where(condition, yes.residues, no.residues)
    return FieldArray(yes.field, residues, Height.largest((yes.height, no.height)))


def divided(array: FieldArray, divisor: int) -> FieldArray:
    """Every element divided by a whole number, which counts as one power of it in the height."""
    if divisor == 1:
        return array
    field = array.field
    inverse = np.array(pow(divisor, -1, field.prime), dtype=np.int64)
    height = array.height * Height(division_bits=divisor.bit_length())
    return FieldArray(field, field.multiply(array.residues, inverse), height)


def summed_by_place(rows: FieldArray, places: NDArray[np.int64], num_places: int) -> FieldArray:
    """The sum of all rows of each place, zero where there is none."""
    sums, found, largest_count = rows.field.sums_by_place(rows.residues, places)
    residues = np.zeros((num_places, *sums.shape[1:]), dtype=np.int64)
    residues[found] = sums
    return FieldArray(rows.field, residues, rows.height.summed(largest_count))
