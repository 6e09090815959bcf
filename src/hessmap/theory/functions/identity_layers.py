"""A deeper network for the same function: identity layers where the representation is narrowest.

Reference: Jacot 2023, proof of Theorem 1 (upper bound) and Proposition 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap.theory.functions.layers import Layer, as_layers, bounds_on_box, squared_norm

Floats = NDArray[np.float64]
GivenLayers = Sequence[tuple[ArrayLike, ArrayLike | None] | Layer]


@dataclass(frozen=True, eq=False)
class DeepenedNetwork:
    """``layers`` represent the given function on the box; ``inner_dim`` is the width of what was inserted behind layer
    ``opened_layer`` (from 0)."""

    layers: tuple[Layer, ...]
    inner_dim: int
    opened_layer: int

    @property
    def squared_norm(self) -> float:
        """An upper bound, by construction, on the representation cost at this depth."""
        return squared_norm(self.layers)


def deepened_network(layers: GivenLayers, num_layers: int, low: ArrayLike, high: ArrayLike) -> DeepenedNetwork:
    """A ReLU network of ``num_layers`` layers equal to the given one for all inputs between ``low`` and ``high``.

    One layer z = W a + b is opened: W = U S V^T of rank k becomes m layers S^(1/m) V^T, S^(1/m), .., U S^(1/m), moved
    by a bias into the positive orthant, where ReLU is the identity. For large m the middle costs k per layer. The layer
    to open is the one that gives the smallest squared norm.

    >>> narrow = deepened_network([([[1.0]], None), ([[4.0]], None)], num_layers=3, low=[-1.0], high=[1.0])
    >>> narrow.inner_dim, len(narrow.layers)
    (1, 3)
    """
    openings = _openings(layers, low, high)
    given = [opening.layer for opening in openings]
    count = num_layers - len(given) + 1
    require(count >= 2, f"num_layers must be above the {len(given)} of the network", f"got {num_layers}")
    made = [
        DeepenedNetwork((*given[:place], *opening.opened_layers(count), *given[place + 1 :]), opening.rank, place)
        for place, opening in enumerate(openings)
    ]
    return min(made, key=lambda network: network.squared_norm)


def cost_constant(layers: GivenLayers, inner_dim: int, low: ArrayLike, high: ArrayLike) -> float:
    """C with representation cost <= k L + C at every depth L above the network's own, k the ``inner_dim``.

    Kind of truth: upper bound by construction. A layer of rank k with singular values s, opened into m, costs
    m sum s^(2/m) <= m k + sum (s^2 - 1), because s^(2u) is convex in u; the shift into the positive orthant costs at
    most max(1, s) times the square of the unscaled one, and what takes it back is the same for every m.
    Reference: Jacot 2023, Proposition 5.

    >>> cost_constant([([[1.0]], None), ([[1.0]], None)], inner_dim=1, low=[0.0], high=[1.0])
    0.0
    """
    openings = _openings(layers, low, high)
    total = sum(opening.layer.squared_norm for opening in openings)
    constants = [
        total - opening.layer.squared_norm + opening.cost_above_rank() - inner_dim * len(openings)
        for opening in openings
        if opening.rank == inner_dim
    ]
    ranks = ", ".join(str(opening.rank) for opening in openings)
    require(bool(constants), f"a weight matrix must have rank {inner_dim}", f"the ranks are {ranks}")
    return float(min(constants))


@dataclass(frozen=True, eq=False)
class _Opening:
    """A layer with its singular value decomposition, and the smallest entries of V^T a over the box."""

    layer: Layer
    left: Floats
    values: Floats
    right: Floats
    lowest: Floats

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def shift(self) -> Floats:
        return np.maximum(0.0, -self.lowest)

    @property
    def last_bias(self) -> Floats:
        """The bias that takes the shift back; it does not depend on the number of layers."""
        return self.layer.bias - self.left @ (self.values * self.shift)

    def opened_layers(self, count: int) -> list[Layer]:
        roots = self.values ** (1.0 / count)
        first = Layer(roots[:, None] * self.right, roots * self.shift)
        middle = [Layer(np.diag(roots), np.zeros(self.rank)) for _ in range(count - 2)]
        return [first, *middle, Layer(self.left * roots, self.last_bias)]

    def cost_above_rank(self) -> float:
        """An upper bound on what the opened layers cost beyond their number times the rank, plus one rank."""
        biases = (np.maximum(1.0, self.values) * self.shift**2).sum() + np.square(self.last_bias).sum()
        return float(np.square(self.values).sum() + biases)


def _openings(layers: GivenLayers, low: ArrayLike, high: ArrayLike) -> list[_Opening]:
    given = as_layers(layers)
    box = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    must = "the box must have the dimension of the inputs"
    wanted = (given[0].weight.shape[1],)
    require(box[0].shape == box[1].shape == wanted, must, f"got shapes {box[0].shape} and {box[1].shape}")
    entering = [box, *bounds_on_box(given, *box)[:-1]]
    return [_opening(layer, *bounds) for layer, bounds in zip(given, entering, strict=True)]


def _opening(layer: Layer, low: Floats, high: Floats) -> _Opening:
    left, values, right = np.linalg.svd(layer.weight, full_matrices=False)
    floor = max(layer.weight.shape) * np.finfo(np.float64).eps * values.max(initial=0.0)
    rank = max(1, int((values > floor).sum()))
    lowest = right[:rank] @ ((low + high) / 2) - np.abs(right[:rank]) @ ((high - low) / 2)
    return _Opening(layer, left[:, :rank], values[:rank], right[:rank], lowest)
