"""The geometry of convolutions and pools: which inputs each entry of a kernel meets at each of its positions.

Sizes have one number an axis; a one-dimensional convolution is two-dimensional of height one. Tensors of floats go
through torch's own unfolding and convolution; the same geometry as plain integers (``input_indices``) serves Toeplitz
matrices and arithmetic over finite fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from hessmap.errors import require

Sizes = tuple[int, ...]
Indices = NDArray[np.int64]
# Set for two CPU cores; benchmarks/conv_hessian.py times what it decides.
_DENSER = 16  # times more flops than needed, up to which one product with a matrix beats torch's convolution
_LARGEST_MATRIX = 2**21  # entries
# numpy's names for torch's ways to continue an image.
_PADDING_MODES: dict[str, Any] = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@dataclass(frozen=True)
class ConvolutionGeometry:
    """Which entries of an image each position of a kernel covers.

    Args:
        image: Lengths of the image's axes.
        kernel: Lengths of the kernel's axes.
        stride: Steps between positions, per axis.
        padding: Zeros before and after the image, per axis.
        dilation: Steps between entries of the kernel, per axis.
        groups: Number of groups of channels with kernels of their own. Defaults to 1.
    """

    image: Sizes
    kernel: Sizes
    stride: Sizes
    padding: tuple[tuple[int, int], ...]
    dilation: Sizes
    groups: int = 1

    @classmethod
    def of_call(
        cls,
        image: Sequence[int],
        kernel: Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> ConvolutionGeometry:
        """The geometry of a call of ``conv1d``, ``conv2d`` or ``conv3d`` with torch's own arguments.

        >>> ConvolutionGeometry.of_call((5,), (3,), padding="same").padding
        ((0, 0), (1, 1))
        """
        num_axes = len(kernel)
        steps = _sizes(dilation, num_axes, 1)
        if padding == "same":
            totals = [step * (size - 1) for step, size in zip(steps, _sizes(kernel, num_axes, 1), strict=True)]
            pads = tuple((total // 2, total - total // 2) for total in totals)
        else:
            pads = tuple((pad, pad) for pad in _sizes(0 if isinstance(padding, str) else padding, num_axes, 0))
        sizes = (_sizes(image, num_axes, 1), _sizes(kernel, num_axes, 1), _sizes(stride, num_axes, 1))
        return cls(*sizes, pads, steps, groups)

    @classmethod
    def of_module(cls, module: nn.Conv1d | nn.Conv2d | nn.Conv3d, image: Sequence[int]) -> ConvolutionGeometry:
        """The geometry of a module on images of these lengths; its padding mode is for ``input_indices``."""
        given = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups)
        found = cls.of_call(image, *given)
        found.require_fit()
        return found

    def require_fit(self) -> None:
        """The kernel has at least one position along each axis."""
        for length, kernel, step in zip(self.padded, self.kernel, self.dilation, strict=True):
            span = step * (kernel - 1) + 1
            got = f"it spans {span} of {length} entries"
            require(span <= length, "a kernel must fit into its padded input", got)

    @property
    def padded(self) -> Sizes:
        """Lengths of the image with its padding."""
        return tuple(size + before + after for size, (before, after) in zip(self.image, self.padding, strict=True))

    @property
    def positions(self) -> Sizes:
        """How many positions the kernel takes along each axis."""
        axes = zip(self.padded, self.kernel, self.stride, self.dilation, strict=True)
        return tuple((size - step * (kernel - 1) - 1) // stride + 1 for size, kernel, stride, step in axes)

    def patches(self, images: Tensor) -> Tensor:
        """What the kernel meets: (samples, channels * sizes of the image) as (groups, samples, positions, entries)."""
        unfolded = self._unfold(images)
        return unfolded.reshape(len(images), self.groups, -1, prod(self.positions)).permute(1, 0, 3, 2)

    def unfolded_inputs(self, images: Tensor) -> Tensor:
        """The patches of all channels, (samples, positions, channels * entries of the kernel).

        The entries are ordered as in ``weight.reshape(outputs, -1)`` of a convolution with one group.
        """
        return self._unfold(images).transpose(1, 2)

    def spread(self, gradients: Tensor) -> Tensor:
        """Gradients by the outputs, (samples, outputs, positions), placed at the inputs that each entry meets.

        Row (group, sample, place in the image) and column (output of the group, entry of the kernel) hold the gradient
        by the output that meets the place through the entry: the transpose of ``patches``, without its sum.
        """
        samples, outputs = gradients.shape[:2]
        gradients = gradients.reshape(samples, self.groups, outputs // self.groups, *self.positions).movedim(1, 0)
        spread = gradients.new_zeros(*gradients.shape[:3], *self.kernel, *self.padded)
        for entry in product(*map(range, self.kernel)):
            met: list[Any] = [*entry, *(self._met(axis, offset) for axis, offset in enumerate(entry))]
            spread[(slice(None), slice(None), slice(None), *met)] = gradients
        inside: list[Any] = [slice(low, low + size) for size, (low, _) in zip(self.image, self.padding, strict=True)]
        num_axes = len(self.image)
        return spread[(..., *inside)].flatten(3 + num_axes).flatten(2, 2 + num_axes).mT

    def convolve(self, images: Tensor, weight: Tensor) -> Tensor:
        """The convolution itself, (samples, channels, *image) to (samples, outputs, positions)."""
        kernel = weight.reshape(*weight.shape[:2], *self.kernel)
        convolution: Any = F.conv3d if len(self.kernel) == 3 else F.conv2d
        outputs: Tensor = convolution(self._pad(images), kernel, None, self.stride, 0, self.dilation, self.groups)
        return outputs.flatten(2)

    def matrix(self, weight: Tensor) -> Tensor | None:
        """The convolution as one matrix (inputs, outputs * positions), or None if torch's convolution is faster."""
        channels = weight.shape[1] * self.groups
        size = channels * prod(self.image)
        denser = self.groups * prod(self.image) / prod(self.kernel)
        if denser > _DENSER or size * weight.shape[0] * prod(self.positions) > _LARGEST_MATRIX:
            return None
        units = torch.eye(size, dtype=weight.dtype).reshape(size, channels, *self.image)
        return self.convolve(units, weight).flatten(1)

    def input_indices(self, num_channels: int, padding_mode: str = "zeros") -> Indices:
        """Which of the flat inputs each entry meets, (groups, positions, channels of a group * entries); -1 for none.

        ``padding_mode`` is torch's name for what stands in the padding.

        >>> ConvolutionGeometry.of_call((3,), (2,), padding=1).input_indices(1).tolist()
        [[[-1, 0], [0, 1], [1, 2], [2, -1]]]
        """
        windows = self.image_indices(padding_mode)
        channels = in_every_channel(windows, num_channels, prod(self.image)).reshape(self.groups, -1, *windows.shape)
        return channels.transpose(0, 2, 1, 3).reshape(self.groups, len(windows), -1)

    def image_indices(self, padding_mode: str = "zeros") -> Indices:
        """The same within one channel, (positions, entries)."""
        return crossed_axes([self._axis_indices(axis, padding_mode) for axis in range(len(self.image))], self.image)

    def _axis_indices(self, axis: int, padding_mode: str) -> Indices:
        """(positions, entries) along an axis."""
        places: Indices = np.arange(self.image[axis])
        if padding_mode == "zeros":
            places = np.pad(places, self.padding[axis], constant_values=-1)
        else:
            places = np.pad(places, self.padding[axis], mode=_PADDING_MODES[padding_mode])
        starts = np.arange(self.positions[axis]) * self.stride[axis]
        return np.take(places, starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis])

    def _met(self, axis: int, entry: int) -> slice:
        """The places of the padded image that an entry of the kernel meets, along an axis."""
        first = entry * self.dilation[axis]
        return slice(first, first + self.stride[axis] * (self.positions[axis] - 1) + 1, self.stride[axis])

    def _pad(self, images: Tensor) -> Tensor:
        pads = [size for pair in reversed(self.padding) for size in pair]
        return F.pad(images, pads) if any(pads) else images

    def _unfold(self, images: Tensor) -> Tensor:
        """(samples, channels * entries, positions)."""
        images = images.reshape(len(images), -1, *self.image)
        if len(self.image) == 2:
            return F.unfold(self._pad(images), self.kernel, self.dilation, 0, self.stride)
        indices = torch.from_numpy(self.image_indices().T)
        return F.pad(images.flatten(2), (0, 1))[:, :, indices].flatten(1, 2)  # -1 is the zero at the end


def crossed_axes(axes: Sequence[Indices], lengths: Sequence[int]) -> Indices:
    """Combine windows along each axis to windows of an image.

    Args:
        axes: For each axis, indices (positions, entries).
        lengths: Length of each axis.

    Returns:
        Indices (positions, entries) into the flat image, row by row.
    """

    def crossed(rows: tuple[Indices, int], columns: tuple[Indices, int]) -> tuple[Indices, int]:
        (first, first_length), (second, second_length) = rows, columns
        both = first[:, None, :, None] * second_length + second[None, :, None, :]
        is_outside = (first < 0)[:, None, :, None] | (second < 0)[None, :, None, :]
        positions, entries = len(first) * len(second), first.shape[1] * second.shape[1]
        return np.where(is_outside, -1, both).reshape(positions, entries), first_length * second_length

    return reduce(crossed, zip(axes, lengths, strict=True))[0]


def in_every_channel(windows: Indices, num_channels: int, size: int) -> Indices:
    """Repeat windows of one channel for all channels.

    Args:
        windows: Indices (positions, entries) into one channel, -1 for padding.
        num_channels: Number of channels.
        size: Entries of a channel.

    Returns:
        Indices (channels, positions, entries) into all channels.

    Example:
        >>> in_every_channel(np.array([[0, -1]]), num_channels=2, size=3).tolist()
        [[[0, -1]], [[3, -1]]]
    """
    return np.where(windows < 0, -1, windows + np.arange(num_channels)[:, None, None] * size)


def _sizes(value: int | Sequence[int], num_axes: int, flat: int) -> Sizes:
    """One number an axis; ``flat`` is that of the height which one-dimensional calls lack."""
    sizes = [value] * num_axes if isinstance(value, int) else list(value) * (num_axes if len(value) == 1 else 1)
    return (flat, *sizes) if num_axes == 1 else tuple(sizes)
