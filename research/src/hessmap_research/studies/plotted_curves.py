"""Arrays of a record that are there to be plotted: few places and few digits, so that results stay small."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_NUM_PLACES = 100


def four_digits(values: Floats) -> Floats:
    """The values in four digits.

    >>> four_digits(np.array([1.23456e-7, np.nan]))
    array([1.235e-07,       nan])
    """
    return np.array([float(f"{value:.3e}") for value in values])


def few_places(size: int) -> NDArray[np.int64]:
    """Where a curve over 1 .. size is kept: evenly, both ends included.

    >>> few_places(4), len(few_places(5000))
    (array([1, 2, 3, 4]), 100)
    """
    return np.unique(np.linspace(1, size, min(size, _NUM_PLACES)).round().astype(np.int64))
