"""A fully connected ReLU network as plain arrays: evaluated, and bounded on a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Layer:
    """z = weight a + bias; a ReLU follows every layer but the last."""

    weight: Floats
    bias: Floats

    @property
    def squared_norm(self) -> float:
        return float(np.square(self.weight).sum() + np.square(self.bias).sum())


def as_layers(layers: Sequence[tuple[ArrayLike, ArrayLike | None] | Layer]) -> list[Layer]:
    """Pairs (weight, bias or None) as layers whose shapes fit."""
    made: list[Layer] = []
    for place, layer in enumerate(layers):
        weight, bias = (layer.weight, layer.bias) if isinstance(layer, Layer) else layer
        matrix = np.asarray(weight, dtype=np.float64)
        vector = np.zeros(len(matrix)) if bias is None else np.asarray(bias, dtype=np.float64)
        fits = matrix.ndim == 2 and vector.shape == (len(matrix),)
        fits = fits and (not made or made[-1].weight.shape[0] == matrix.shape[1])
        must = "every layer must take what the one before it gives"
        require(fits, must, f"layer {place} has a weight of shape {matrix.shape} and a bias of shape {vector.shape}")
        made.append(Layer(matrix, vector))
    require(len(made) > 0, "a network must have a layer", "there is none")
    return made


def squared_norm(layers: Sequence[Layer]) -> float:
    """||W||^2, weights and biases.

    >>> squared_norm([Layer(np.array([[3.0, 0.0]]), np.array([4.0]))])
    25.0
    """
    return float(sum(layer.squared_norm for layer in layers))


def bounds_on_box(layers: Sequence[Layer], low: ArrayLike, high: ArrayLike) -> list[tuple[Floats, Floats]]:
    """Bounds on what leaves each layer, behind its ReLU, for all inputs between ``low`` and ``high``.

    Interval arithmetic: never too narrow but by rounding.

    >>> difference = Layer(np.array([[1.0, -1.0]]), np.zeros(1))
    >>> [(lower, upper)] = bounds_on_box([difference], [0, 0], [2, 1])
    >>> lower.tolist(), upper.tolist()
    ([-1.0], [2.0])
    """
    lower, upper = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    require(bool((lower <= upper).all()), "a box must have low <= high", f"got {lower} and {upper}")
    found = []
    for place, layer in enumerate(layers):
        middle, radius = (lower + upper) / 2, (upper - lower) / 2
        centre, spread = layer.weight @ middle + layer.bias, np.abs(layer.weight) @ radius
        lower, upper = centre - spread, centre + spread
        if place < len(layers) - 1:
            lower, upper = np.maximum(lower, 0.0), np.maximum(upper, 0.0)
        found.append((lower, upper))
    return found
