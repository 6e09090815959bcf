"""The geometry of a convolution: the patches its weights see, and the inputs its outputs look at.

Everything is two-dimensional; a one-dimensional convolution is one of height one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

Pair = tuple[int, int]
_DENSER = 16  # times more flops than needed, up to which one product with a matrix beats torch's convolution
_LARGEST_MATRIX = 2**21  # entries


@dataclass(frozen=True)
class Window:
    """A kernel that moves over an image: sizes as (height, width), ``padding`` as ((top, bottom), (left, right))."""

    image: Pair
    kernel: Pair
    stride: Pair
    padding: tuple[Pair, Pair]
    dilation: Pair
    groups: int

    @property
    def padded(self) -> Pair:
        return self.image[0] + sum(self.padding[0]), self.image[1] + sum(self.padding[1])

    @property
    def positions(self) -> Pair:
        """How many places the kernel takes along each side."""
        sides = zip(self.padded, self.kernel, self.stride, self.dilation, strict=True)
        down, right = ((size - step * (kernel - 1) - 1) // stride + 1 for size, kernel, stride, step in sides)
        return down, right

    def patches(self, images: Tensor) -> Tensor:
        """What the kernel sees: (samples, channels * height * width) as (groups, samples, positions, features)."""
        images = F.pad(images.reshape(len(images), -1, *self.image), (*self.padding[1], *self.padding[0]))
        unfolded = F.unfold(images, self.kernel, self.dilation, 0, self.stride)
        return unfolded.reshape(len(images), self.groups, -1, prod(self.positions)).permute(1, 0, 3, 2)

    def spread(self, slopes: Tensor) -> Tensor:
        """Slopes at the outputs, (samples, outputs, positions), moved to where each entry of the kernel looks.

        Row (group, sample, place of the image) and column (output of the group, entry of the kernel) hold the slope of
        the output that sees the place through the entry: the transpose of ``patches``, without its sum.
        """
        samples, outputs = slopes.shape[:2]
        slopes = slopes.reshape(samples, self.groups, outputs // self.groups, *self.positions).movedim(1, 0)
        moved = slopes.new_zeros(*slopes.shape[:3], *self.kernel, *self.padded)
        for down in range(self.kernel[0]):
            for right in range(self.kernel[1]):
                moved[:, :, :, down, right, self._seen(0, down), self._seen(1, right)] = slopes
        (top, _), (left, _) = self.padding
        moved = moved[..., top : top + self.image[0], left : left + self.image[1]]
        return moved.flatten(5).flatten(2, 4).mT

    def _seen(self, side: int, entry: int) -> slice:
        """The places of the padded image that an entry of the kernel sees, along a side."""
        first = entry * self.dilation[side]
        return slice(first, first + self.stride[side] * (self.positions[side] - 1) + 1, self.stride[side])

    def convolve(self, images: Tensor, weight: Tensor) -> Tensor:
        """The convolution itself, (samples, channels, height, width) to (samples, outputs, positions)."""
        images = F.pad(images, (*self.padding[1], *self.padding[0]))
        kernel = weight.reshape(*weight.shape[:2], *self.kernel)
        return F.conv2d(images, kernel, None, self.stride, 0, self.dilation, self.groups).flatten(2)

    def matrix(self, weight: Tensor) -> Tensor | None:
        """The convolution as one matrix (inputs, outputs * positions), or None if torch's convolution is faster."""
        channels = weight.shape[1] * self.groups
        size = channels * prod(self.image)
        denser = self.groups * prod(self.image) / prod(self.kernel)
        if denser > _DENSER or size * weight.shape[0] * prod(self.positions) > _LARGEST_MATRIX:
            return None
        units = torch.eye(size, dtype=weight.dtype).reshape(size, channels, *self.image)
        return self.convolve(units, weight).flatten(1)


def window(
    image: Sequence[int],
    kernel: Sequence[int],
    stride: int | Sequence[int],
    padding: str | int | Sequence[int],
    dilation: int | Sequence[int],
    groups: int,
) -> Window:
    """The window of a call of ``conv1d`` or ``conv2d`` with torch's own arguments."""
    dims = len(kernel)
    steps = _sides(dilation, dims, 1)
    if padding == "same":
        totals = [step * (size - 1) for step, size in zip(steps, _sides(kernel, dims, 1), strict=True)]
        pads = tuple((total // 2, total - total // 2) for total in totals)
    else:
        pads = tuple((pad, pad) for pad in _sides(0 if isinstance(padding, str) else padding, dims, 0))
    return Window(
        _sides(image, dims, 1), _sides(kernel, dims, 1), _sides(stride, dims, 1), (pads[0], pads[1]), steps, groups
    )


def _sides(value: int | Sequence[int], dims: int, flat: int) -> Pair:
    """One number or one per side, as (height, width); ``flat`` is that of the height one-dimensional calls lack."""
    sides = [value] * dims if isinstance(value, int) else list(value) * (dims if len(value) == 1 else 1)
    return (flat, sides[0]) if dims == 1 else (sides[0], sides[1])
