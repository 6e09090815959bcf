"""Piecewise linear functions as networks of the depth that Corollary 1 of Jacot 2023 states.

Every continuous piecewise linear function on R^n is a signed sum of maxima of at most n + 1 affine functions each (Wang
& Sun 2005). A maximum of p numbers takes ceil(log2 p) layers of pairwise maxima, max(a, b) = (a - b)_+ + b_+ - (-b)_+.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hessmap.errors import require
from hessmap.theory.functions.layers import Layer, as_layers

Floats = NDArray[np.float64]
Maximum = tuple[float, ArrayLike, ArrayLike]  # sign or factor, slopes (pieces x inputs), offsets
_PAIR_IN = np.array([[1.0, -1.0], [0.0, 1.0], [0.0, -1.0]])  # (a, b) to a - b, b, -b
_PAIR_OUT = np.array([[1.0, 1.0, -1.0]])
_SINGLE_IN, _SINGLE_OUT = np.array([[1.0], [-1.0]]), np.array([[1.0, -1.0]])  # a = a_+ - (-a)_+


def piecewise_linear_network(maxima: Sequence[Maximum]) -> list[Layer]:
    """A ReLU network for the sum of factor_i * max_j (slope_ij . x + offset_ij), of depth ceil(log2 p) + 1.

    p is the largest number of pieces of a maximum: n + 1 is enough for every continuous piecewise linear function on
    R^n, so that ceil(log2(n + 1)) + 1 layers are. Kind of truth: construction.
    Reference: Jacot 2023, Corollary 1 and Remark 1 (after Arora et al. 2018, Theorem 2.1).

    >>> layers = piecewise_linear_network([(1.0, [[1.0], [-1.0]], [0.0, 0.0])])    # |x|
    >>> len(layers), [layer.weight.shape for layer in layers]
    (2, [(3, 1), (1, 3)])
    """
    require(len(maxima) > 0, "there must be at least one maximum", "the list is empty")
    pieces = [np.atleast_2d(np.asarray(slopes, dtype=np.float64)) for _, slopes, _ in maxima]
    offsets = [np.asarray(offset, dtype=np.float64) for _, _, offset in maxima]
    fits = all(len(one) == len(other) for one, other in zip(pieces, offsets, strict=True))
    fits = fits and len({piece.shape[1] for piece in pieces}) == 1
    require(fits, "every piece must have an offset, and all the same inputs", "they do not pair up")
    factors = np.array([[factor for factor, _, _ in maxima]], dtype=np.float64)
    weight, bias, counts = np.vstack(pieces), np.concatenate(offsets), [len(piece) for piece in pieces]
    layers: list[Layer] = []
    for _ in range(max(1, ceil(log2(max(counts))))):
        into, out, counts = _pairwise(counts)
        layers.append(Layer(into @ weight, into @ bias))
        weight, bias = out, np.zeros(len(out))
    return [*layers, Layer(factors @ weight, factors @ bias)]


def leaky_network(layers: Sequence[tuple[ArrayLike, ArrayLike | None] | Layer], slope: float) -> list[Layer]:
    """The same function as a ReLU network's with units sigma_a, x for x >= 0 and a x below: twice the hidden units.

    (x)_+ = (sigma_a(x) + a sigma_a(-x)) / (1 - a^2) for every hidden unit. Reference: Jacot 2023, proof of Corollary 1,
    which prints a minus (see ``relu_from_leaky``).

    >>> [layer.weight.tolist() for layer in leaky_network([([[1.0]], None), ([[3.0]], None)], slope=0.5)]
    [[[1.0], [-1.0]], [[4.0, 2.0]]]
    """
    require(-1 < slope < 1, "the slope must lie between -1 and 1", f"got {slope}")
    given = as_layers(layers)
    made = []
    for place, layer in enumerate(given):
        weight, bias = layer.weight, layer.bias
        if place > 0:
            weight = np.hstack([weight, slope * weight]) / (1 - slope**2)
        if place < len(given) - 1:
            weight, bias = np.vstack([weight, -weight]), np.concatenate([bias, -bias])
        made.append(Layer(weight, bias))
    return made


def _pairwise(counts: Sequence[int]) -> tuple[Floats, Floats, list[int]]:
    """Matrices before and behind the units that halve every group of values, and the sizes of the halved groups."""
    into, out, halved = [], [], []
    for count in counts:
        pairs, single = divmod(count, 2)
        into += [_PAIR_IN] * pairs + [_SINGLE_IN] * single
        out += [_PAIR_OUT] * pairs + [_SINGLE_OUT] * single
        halved.append(pairs + single)
    return _diagonal(into), _diagonal(out), halved


def _diagonal(blocks: Sequence[Floats]) -> Floats:
    shape = sum(len(block) for block in blocks), sum(block.shape[1] for block in blocks)
    whole, row, column = np.zeros(shape), 0, 0
    for block in blocks:
        whole[row : row + len(block), column : column + block.shape[1]] = block
        row, column = row + len(block), column + block.shape[1]
    return whole
