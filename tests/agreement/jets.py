"""Second-order jets modulo a prime, and elimination: exact Hessians of any polynomial network, by nobody else's code.

A jet is a value with its gradient and its Hessian in all parameters. Sums and products of jets are all that a network
without activations needs. Nothing here is shared with hessmap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PRIME = 2147483629  # below 2^31: products fit into 64 bits
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Jet:
    """An array of values, their gradients on one more axis and their Hessians on two more."""

    value: Integers
    gradient: Integers
    hessian: Integers

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def num_parameters(self) -> int:
        return int(self.gradient.shape[-1])

    @property
    def T(self) -> Jet:
        return Jet(self.value.T, self.gradient.swapaxes(0, 1), self.hessian.swapaxes(0, 1))

    def __getitem__(self, place: object) -> Jet:
        return Jet(self.value[place], self.gradient[place], self.hessian[place])  # type: ignore[index]

    def reshape(self, *shape: int) -> Jet:
        count = self.num_parameters
        hessian = self.hessian.reshape(*shape, count, count)
        return Jet(self.value.reshape(shape), self.gradient.reshape(*shape, count), hessian)

    def __add__(self, other: Jet) -> Jet:
        parts = zip(
            (self.value, self.gradient, self.hessian), (other.value, other.gradient, other.hessian), strict=True
        )
        return Jet(*((one + two) % PRIME for one, two in parts))

    def __mul__(self, other: Jet) -> Jet:
        one, two = self.value, other.value
        crossed = self.gradient[..., :, None] * other.gradient[..., None, :] % PRIME
        gradient = one[..., None] * other.gradient % PRIME + two[..., None] * self.gradient % PRIME
        hessian = one[..., None, None] * other.hessian % PRIME + two[..., None, None] * self.hessian % PRIME
        return Jet(one * two % PRIME, gradient % PRIME, (hessian + crossed + crossed.swapaxes(-1, -2)) % PRIME)

    def __matmul__(self, other: Jet) -> Jet:
        total = self[:, :1] * other[:1]
        for k in range(1, self.shape[1]):
            total = total + self[:, k : k + 1] * other[k : k + 1]
        return total

    def times(self, factors: Integers) -> Jet:
        """Entry by entry with constants."""
        return self * constant(factors, self.num_parameters)


def constant(values: Integers, num_parameters: int) -> Jet:
    values = np.asarray(values, dtype=np.int64) % PRIME
    gradient = np.zeros((*values.shape, num_parameters), np.int64)
    return Jet(values, gradient, np.zeros((*gradient.shape, num_parameters), np.int64))


def concatenated(jets: list[Jet], axis: int) -> Jet:
    parts = ([jet.value for jet in jets], [jet.gradient for jet in jets], [jet.hessian for jet in jets])
    return Jet(*(np.concatenate(part, axis) for part in parts))


def product(one: Integers, two: Integers) -> Integers:
    """A matrix product modulo the prime."""
    total = np.zeros((one.shape[0], two.shape[1]), np.int64)
    for k in range(one.shape[1]):
        total = (total + one[:, k, None] * two[k]) % PRIME
    return total


def rank(matrix: Integers) -> int:
    """By elimination modulo the prime."""
    left = np.array(matrix, dtype=np.int64) % PRIME
    found = 0
    for column in range(left.shape[1]):
        pivots = np.flatnonzero(left[found:, column])
        if not len(pivots):
            continue
        left[[found, found + pivots[0]]] = left[[found + pivots[0], found]]
        left[found] = left[found] * pow(int(left[found, column]), PRIME - 2, PRIME) % PRIME
        below = left[found + 1 :]
        below -= below[:, column, None].copy() * left[found] % PRIME
        below %= PRIME
        found += 1
        if found == len(left):
            break
    return found


def hessian_ranks(outputs: Jet, residuals: Integers, second: Integers) -> dict[str, int]:
    """Of the three Hessians: outputs (samples, K), dloss/doutput (samples, K), its derivatives (samples, K, K)."""
    count = outputs.num_parameters
    outer, functional = np.zeros((count, count), np.int64), np.zeros((count, count), np.int64)
    for sample, slopes in enumerate(residuals):
        jacobian = outputs.gradient[sample]
        outer = (outer + product(jacobian.T, product(second[sample] % PRIME, jacobian))) % PRIME
        for output, slope in enumerate(slopes):
            functional = (functional + slope % PRIME * outputs.hessian[sample, output]) % PRIME
    return {"outer_product": rank(outer), "functional": rank(functional), "loss": rank((outer + functional) % PRIME)}
