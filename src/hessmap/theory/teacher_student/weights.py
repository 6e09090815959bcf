"""The weights of a teacher or a student: checked arrays, rational where every number given is, float64 otherwise."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from hessmap.errors import InvalidInput, require, sentence

Array = npt.NDArray[Any]
_RATIONAL = (numbers.Rational, np.integer)


@dataclass(frozen=True, eq=False)
class Weights:
    """One matrix (outputs of the layer, inputs of the layer) and one bias vector or None for each layer.

    Attributes:
        layers: One matrix (outputs, inputs) per layer.
        biases: One bias vector or None per layer.

    Notes:
        Arrays of dtype object hold fractions and lead to exact results. Leading axes, where there are any, are a batch
        of networks; loss and gradient then have the same leading axes.
    """

    layers: tuple[Array, ...]
    biases: tuple[Array | None, ...]

    @property
    def is_exact(self) -> bool:
        return all(array.dtype == object for array in self.arrays)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Every array in the order of the parameters: weight, then bias, layer by layer."""
        pairs = zip(self.layers, self.biases, strict=True)
        return tuple(array for pair in pairs for array in pair if array is not None)

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.layers[0].shape[-1], *(layer.shape[-2] for layer in self.layers))

    @property
    def batch(self) -> tuple[int, ...]:
        return tuple(self.layers[0].shape[:-2])

    @property
    def vector(self) -> Array:
        """All parameters in one vector, row-major, in the order of `arrays`; after the axes of the batch."""
        return np.concatenate([array.reshape(*self.batch, -1) for array in self.arrays], axis=-1)

    def in_floats(self) -> Weights:
        """The same numbers in float64."""
        biases = tuple(None if bias is None else bias.astype(float) for bias in self.biases)
        return Weights(tuple(layer.astype(float) for layer in self.layers), biases)


def as_array(given: Any, name: str) -> Array:
    """An array of fractions where every number given is an integer or a fraction, of float64 otherwise.

    >>> as_array([1, Fraction(1, 3)], "W2")
    array([Fraction(1, 1), Fraction(1, 3)], dtype=object)
    >>> as_array([1, 0.5], "W2")
    array([1. , 0.5])
    """
    try:
        array = given if isinstance(given, np.ndarray) and given.dtype == float else np.array(given, dtype=object)
        if array.dtype == object and array.size and all(isinstance(value, _RATIONAL) for value in array.flat):
            return np.asarray(np.vectorize(_fraction, otypes=[object])(array))
        array = array.astype(float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(sentence(f"{name} must be an array of numbers", f"got {given!r}")) from error
    require(bool(np.isfinite(array).all()), f"{name} must be finite", "it holds an infinity or nan")
    return array


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.numerator), int(value.denominator))


def checked_weights(
    layers: Sequence[Any], biases: Sequence[Any], widths: Sequence[int | None], has_bias: Sequence[bool | None]
) -> Weights:
    """Weights of these widths, None being any width; ``has_bias`` says of each layer whether it has one, None: either.

    The last matrix of a network with one output may be given as a vector.
    """
    expected = len(widths) - 1
    require(len(layers) == expected, f"the network has {expected} layers of weights", f"got {len(layers)}")
    arrays = [as_array(layer, f"W{place}") for place, layer in enumerate(layers, start=1)]
    if len(arrays) > 1 and arrays[-1].ndim == arrays[0].ndim - 1 and widths[-1] in (1, None):
        arrays[-1] = arrays[-1][..., None, :]
    vectors = [None if bias is None else as_array(bias, f"bias {place}") for place, bias in enumerate(biases, start=1)]
    for place, (array, (before, after)) in enumerate(zip(arrays, pairwise(widths), strict=True)):
        before = arrays[place - 1].shape[-2] if before is None and place else before
        _require_matrix(array, place, before, after)
    for place, (layer, bias, has) in enumerate(zip(arrays, vectors, has_bias, strict=True)):
        _require_bias(bias, place, layer.shape[-2], has)
    found = Weights(tuple(arrays), tuple(vectors))
    return found if found.is_exact else found.in_floats()


def _require_matrix(array: Array, place: int, before: int | None, after: int | None) -> None:
    shape = array.shape[-2:]
    fits = len(shape) == 2 and before in (None, shape[1]) and after in (None, shape[0])
    must = f"W{place + 1} must have shape ({after or 'outputs'}, {before or 'inputs'})"
    require(fits, must, f"it has shape {array.shape}")


def _require_bias(bias: Array | None, place: int, width: int, has: bool | None) -> None:
    if bias is None:
        must = f"layer {place + 1} has a bias in this network"
        require(has is not True, must, "none is given", "Make weights(W1, W2, hidden_bias=..., output_bias=...)")
        return
    must = f"layer {place + 1} has no bias in this network"
    require(has is not False, must, "one is given", "Pass hidden_bias=True or output_bias=True in TeacherStudent")
    must = f"the bias of layer {place + 1} must have length {width}"
    require(bias.ndim >= 1 and bias.shape[-1] == width, must, f"it has shape {bias.shape}")
