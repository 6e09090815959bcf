"""The windows of torch's convolutions and pools, with their strides, paddings, dilations and modes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from torch import nn

from hessmap.curvature.finite_field.chain import Indices
from hessmap.curvature.finite_field.windows import (
    adaptive_windows,
    axis_windows,
    convolution_sources,
    image_windows,
    of_all_channels,
    padded_axis,
)

Shape = tuple[int, ...]

AVERAGES: dict[type[nn.Module], int] = {
    nn.AvgPool1d: 1,
    nn.AvgPool2d: 2,
    nn.AdaptiveAvgPool1d: 1,
    nn.AdaptiveAvgPool2d: 2,
}
MAXIMA: dict[type[nn.Module], int] = {nn.MaxPool1d: 1, nn.MaxPool2d: 2}


def num_axes(module: nn.Module) -> int:
    """Of the images that a pool is for."""
    return (AVERAGES | MAXIMA)[type(module)]


def convolution(module: nn.Conv1d | nn.Conv2d, lengths: Shape) -> tuple[Indices, Shape]:
    """The sources (groups, places, taps) of a convolution of images of these lengths; the lengths of its outputs."""
    axes = []
    for axis, (length, kernel, stride, dilation) in enumerate(
        zip(lengths, module.kernel_size, module.stride, module.dilation, strict=True)
    ):
        reach = dilation * (kernel - 1)
        low, high = 0, 0
        if module.padding == "same":
            low, high = reach // 2, reach - reach // 2
        elif not isinstance(module.padding, str):
            low = high = module.padding[axis]
        axes.append(axis_windows(padded_axis(length, low, high, module.padding_mode), kernel, stride, dilation))
    windows = image_windows(axes, lengths)
    sources = convolution_sources(windows, module.in_channels, module.groups, prod(lengths))
    return sources, tuple(len(axis) for axis in axes)


def maximum(module: Any, num_channels: int, lengths: Shape) -> tuple[Indices, Shape]:
    """The windows (outputs, taps) of a max-pool over all channels, and the lengths of its outputs."""
    axes = _pool_axes(module, lengths, module.dilation)
    windows = of_all_channels(image_windows(axes, lengths), num_channels, prod(lengths))
    return windows.reshape(-1, windows.shape[2]), tuple(len(axis) for axis in axes)


def average(module: Any, num_channels: int, lengths: Shape) -> tuple[Indices, Indices, Shape]:
    """The same of an average-pool, and the number by which each sum is divided."""
    if isinstance(module, nn.AdaptiveAvgPool1d | nn.AdaptiveAvgPool2d):
        wanted = _per_axis(module.output_size, len(lengths))
        sizes = [length if size is None else size for size, length in zip(wanted, lengths, strict=True)]
        axes = [adaptive_windows(length, size) for length, size in zip(lengths, sizes, strict=True)]
        counts = np.sum(image_windows(axes, lengths) >= 0, axis=1)
    else:
        axes = _pool_axes(module, lengths, dilation=1)
        counts = _counts(module, axes, lengths)
    windows = of_all_channels(image_windows(axes, lengths), num_channels, prod(lengths))
    return windows.reshape(-1, windows.shape[2]), np.tile(counts, num_channels), tuple(len(axis) for axis in axes)


def _pool_axes(module: Any, lengths: Shape, dilation: Any) -> list[Indices]:
    """The windows along each axis. How many there are is asked of torch: rounding up has its own rules."""
    empty = torch.zeros(1, 1, *lengths, dtype=torch.float64)
    counts = module(empty).shape[2:]
    options = (
        _per_axis(option, len(lengths)) for option in (module.kernel_size, module.stride, module.padding, dilation)
    )
    return [
        axis_windows(padded_axis(length, padding, padding), kernel, stride, step, count)
        for length, count, kernel, stride, padding, step in zip(lengths, counts, *options, strict=True)
    ]


def _counts(module: Any, axes: Sequence[Indices], lengths: Shape) -> Indices:
    """By how much an average is divided at each place: the padding counts or not, what lies beyond it never does."""
    if getattr(module, "divisor_override", None):
        return np.full(prod(len(axis) for axis in axes), module.divisor_override)
    if not module.count_include_pad:
        return np.asarray(np.sum(image_windows(axes, lengths) >= 0, axis=1))
    sizes = []
    options = (_per_axis(option, len(lengths)) for option in (module.kernel_size, module.stride, module.padding))
    for axis, length, kernel, stride, padding in zip(axes, lengths, *options, strict=True):
        starts = np.arange(len(axis)) * stride
        sizes.append(np.minimum(starts + kernel, length + 2 * padding) - starts)
    total = sizes[0]
    for size in sizes[1:]:
        total = np.multiply.outer(total, size).ravel()
    return np.asarray(total)


def _per_axis(option: Any, num: int) -> tuple[Any, ...]:
    return tuple(option) if isinstance(option, tuple | list) else (option,) * num
