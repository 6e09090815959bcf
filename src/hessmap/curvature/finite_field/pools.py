"""The windows of torch's pools, with their strides, paddings, dilations and rounding."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from torch import nn

from hessmap.curvature.convolution_geometry import ConvolutionGeometry, Indices, crossed_axes, in_every_channel
from hessmap.networks.module_tree import Shape

AVERAGES: dict[type[nn.Module], int] = {
    nn.AvgPool1d: 1,
    nn.AvgPool2d: 2,
    nn.AvgPool3d: 3,
    nn.AdaptiveAvgPool1d: 1,
    nn.AdaptiveAvgPool2d: 2,
    nn.AdaptiveAvgPool3d: 3,
}
MAXIMA: dict[type[nn.Module], int] = {nn.MaxPool1d: 1, nn.MaxPool2d: 2, nn.MaxPool3d: 3}
_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)


def num_axes(module: nn.Module) -> int:
    """Of the images that a pool is for."""
    return (AVERAGES | MAXIMA)[type(module)]


def maximum_windows(module: Any, num_channels: int, lengths: Shape) -> tuple[Indices, Shape]:
    """The windows (outputs, entries) of a max-pool over all channels, -1 for none, and the lengths of its outputs."""
    geometry = _geometry(module, lengths, module.dilation)
    return _all_windows(geometry.image_indices(), num_channels, lengths), geometry.positions[-len(lengths) :]


def average_windows(module: Any, num_channels: int, lengths: Shape) -> tuple[Indices, Indices, Shape]:
    """The same of an average-pool, and the number by which each sum is divided."""
    if isinstance(module, _ADAPTIVE):
        wanted = _per_axis(module.output_size, len(lengths))
        sizes = tuple(length if size is None else size for size, length in zip(wanted, lengths, strict=True))
        axes = [adaptive_windows(length, size) for length, size in zip(lengths, sizes, strict=True)]
        windows = crossed_axes(axes, lengths)
        counts = np.sum(windows >= 0, axis=1)
    else:
        geometry = _geometry(module, lengths, dilation=1)
        sizes, windows = geometry.positions[-len(lengths) :], geometry.image_indices()
        counts = _counts(module, sizes, lengths, windows)
    return _all_windows(windows, num_channels, lengths), np.tile(counts, num_channels), sizes


def adaptive_windows(length: int, num_windows: int) -> Indices:
    """torch's windows of almost equal size, (num_windows, largest size), -1 where a window is smaller.

    >>> adaptive_windows(5, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    edges = [(place * length // num_windows, -(-(place + 1) * length // num_windows)) for place in range(num_windows)]
    largest = max(stop - start for start, stop in edges)
    return np.array([[at if at < stop else -1 for at in range(start, start + largest)] for start, stop in edges])


def _geometry(module: Any, lengths: Shape, dilation: Any) -> ConvolutionGeometry:
    """How many windows there are is asked of torch: rounding up has its own rules. The last may need more padding."""
    counts = module(torch.zeros(1, 1, *lengths, dtype=torch.float64)).shape[2:]
    options = (module.kernel_size, module.stride, module.padding, dilation)
    kernel, stride, padding, steps = (_per_axis(option, len(lengths)) for option in options)
    pads = []
    for axis, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        end = (count - 1) * stride[axis] + steps[axis] * (kernel[axis] - 1) + 1
        pads.append((padding[axis], max(padding[axis], end - length - padding[axis])))
    return ConvolutionGeometry(lengths, kernel, stride, tuple(pads), steps)


def _counts(module: Any, counts: Shape, lengths: Shape, windows: Indices) -> Indices:
    """By how much an average is divided at each place: the padding counts or not, what lies beyond it never does."""
    if getattr(module, "divisor_override", None):
        return np.full(len(windows), module.divisor_override)
    if not module.count_include_pad:
        return np.asarray(np.sum(windows >= 0, axis=1))
    total = np.ones(1, dtype=np.int64)
    options = (_per_axis(option, len(lengths)) for option in (module.kernel_size, module.stride, module.padding))
    for count, length, kernel, stride, padding in zip(counts, lengths, *options, strict=True):
        starts = np.arange(count) * stride
        sizes = np.minimum(starts + kernel, length + 2 * padding) - starts
        total = np.multiply.outer(total, sizes).ravel()
    return total


def _all_windows(windows: Indices, num_channels: int, lengths: Shape) -> Indices:
    return in_every_channel(windows, num_channels, prod(lengths)).reshape(-1, windows.shape[1])


def _per_axis(option: Any, num: int) -> tuple[Any, ...]:
    sizes = tuple(option) if isinstance(option, tuple | list) else (option,)
    return sizes * num if len(sizes) == 1 else sizes
