"""Which inputs a convolution or a pool sees at each of its places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from hessmap.curvature.finite_field.chain import Indices

# numpy's names for torch's ways to continue an image.
_PADDING_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def padded_axis(length: int, low: int, high: int, mode: str = "zeros") -> Indices:
    """The places 0 .. length - 1 with what stands before and after them, -1 for zeros.

    >>> padded_axis(3, 1, 1).tolist(), padded_axis(3, 1, 1, "circular").tolist()
    ([-1, 0, 1, 2, -1], [2, 0, 1, 2, 0])
    """
    if mode == "zeros":
        return np.pad(np.arange(length), (low, high), constant_values=-1)
    return np.pad(np.arange(length), (low, high), mode=_PADDING_MODES[mode])


def axis_windows(axis: Indices, kernel: int, stride: int, dilation: int, num_windows: int | None = None) -> Indices:
    """(num_windows, kernel): what each window sees of a padded axis, -1 beyond its end.

    >>> axis_windows(np.arange(4), kernel=2, stride=2, dilation=1).tolist()
    [[0, 1], [2, 3]]
    """
    count = (len(axis) - dilation * (kernel - 1) - 1) // stride + 1 if num_windows is None else num_windows
    starts = np.arange(count)[:, None] * stride + np.arange(kernel) * dilation
    return np.where(starts < len(axis), axis[np.minimum(starts, len(axis) - 1)], -1)


def adaptive_windows(length: int, num_windows: int) -> Indices:
    """torch's windows of almost equal size, (num_windows, largest size), -1 where a window is smaller.

    >>> adaptive_windows(5, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    edges = [(place * length // num_windows, -(-(place + 1) * length // num_windows)) for place in range(num_windows)]
    largest = max(stop - start for start, stop in edges)
    return np.array([[at if at < stop else -1 for at in range(start, start + largest)] for start, stop in edges])


def image_windows(axes: Sequence[Indices], lengths: Sequence[int]) -> Indices:
    """(places, taps) into an image of the given lengths, row by row, from the windows along each axis."""

    def crossed(rows: tuple[Indices, int], columns: tuple[Indices, int]) -> tuple[Indices, int]:
        (first, first_length), (second, second_length) = rows, columns
        both = first[:, None, :, None] * second_length + second[None, :, None, :]
        is_outside = (first < 0)[:, None, :, None] | (second < 0)[None, :, None, :]
        places, taps = len(first) * len(second), first.shape[1] * second.shape[1]
        return np.where(is_outside, -1, both).reshape(places, taps), first_length * second_length

    return reduce(crossed, zip(axes, lengths, strict=True))[0]


def of_all_channels(windows: Indices, num_channels: int, size: int) -> Indices:
    """The windows of one image, of ``size`` numbers, repeated for every channel: (num_channels, places, taps).

    >>> of_all_channels(np.array([[0, -1]]), num_channels=2, size=3).tolist()
    [[[0, -1]], [[3, -1]]]
    """
    shifts = np.arange(num_channels)[:, None, None] * size
    return np.where(windows < 0, -1, windows + shifts)


def convolution_sources(windows: Indices, num_channels: int, num_groups: int, size: int) -> Indices:
    """(groups, places, channels of a group * taps), channel by channel, as torch stores its filters."""
    every = of_all_channels(windows, num_channels, size).reshape(num_groups, -1, *windows.shape)
    return every.transpose(0, 2, 1, 3).reshape(num_groups, len(windows), -1)
