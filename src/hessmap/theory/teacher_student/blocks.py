"""Blocks of a Hessian by name, put together in the order of the parameters: W1, b1, W2, b2."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from hessmap.theory.teacher_student.weights import Array, Weights

NAMES = ("W1", "b1", "W2", "b2")
Blocks = dict[tuple[str, str], Array]


def present(weights: Weights) -> dict[str, int]:
    """The sizes of the parameters that a two-layer network has, by name."""
    named = dict(zip(NAMES, _in_order(weights), strict=True))
    return {name: array.size for name, array in named.items() if array is not None}


def _in_order(weights: Weights) -> tuple[Array | None, ...]:
    return (weights.layers[0], weights.biases[0], weights.layers[1], weights.biases[1])


def assembled(blocks: Blocks, weights: Weights) -> Array:
    """The symmetric matrix with these blocks on and above the diagonal; a block that is not given is zero."""
    sizes = present(weights)
    stops = np.cumsum(list(sizes.values()))
    places = {name: slice(stop - size, stop) for (name, size), stop in zip(sizes.items(), stops, strict=True)}
    dtype = object if weights.is_exact else float
    matrix = np.full((stops[-1], stops[-1]), Fraction(0) if weights.is_exact else 0.0, dtype=dtype)
    for (row, column), block in blocks.items():
        flat = block.reshape(sizes[row], sizes[column])
        matrix[places[row], places[column]] = flat
        if row != column:
            matrix[places[column], places[row]] = flat.T
    return matrix
