"""Convolutions of small images as one matrix product over their patches, to be differentiated any number of times.

torch's float32 convolutions order images and kernels anew at every call; where a kernel takes few positions that takes
longer than to multiply. The patches of what enters a layer do not depend on a vector: a Hessian's product finds them in
its graph, and has to make those of the tangents alone. Entries of the kernel that meet nothing but padding, as all but
one of 3 x 3 do in an image of one pixel, are left out.

Images become patches and patches, summed where they overlap, images again: two linear maps, each the other's adjoint.
Both are operations of their own, so that a traced graph has one node for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hessmap.curvature.convolution_geometry import ConvolutionGeometry

_MOST_POSITIONS = 4  # of a kernel in one image, up to which patches were seen to be faster for 8, 32 and 128 images
_Ranges = list[tuple[int, slice, slice]]


def is_small(geometry: ConvolutionGeometry) -> bool:
    """Whether patches are the faster way: without groups, at few positions of the kernel.

    >>> is_small(ConvolutionGeometry.of_call((2, 2), (3, 3), padding=1))
    True
    >>> is_small(ConvolutionGeometry.of_call((8, 8), (3, 3), padding=1))
    False
    """
    high, wide = geometry.positions
    return geometry.groups == 1 and high > 0 and wide > 0 and high * wide <= _MOST_POSITIONS


def patch_convolution(image: Tensor, weight: Tensor, geometry: ConvolutionGeometry) -> Tensor:
    """``torch.conv2d`` without bias, of that geometry; the channels of its outputs lie next to each other in memory."""
    met = [_met_entries(geometry, axis) for axis in range(2)]
    (top, bottom), (left, right) = met
    tall, broad = geometry.kernel
    if (top, bottom, left, right) != (0, tall, 0, broad):
        weight = F.pad(weight, (-left, right - broad, -top, bottom - tall))
    matrix = weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    low = [geometry.padding[axis][0] - met[axis][0] * geometry.dilation[axis] for axis in range(2)]
    kernel = [bottom - top, right - left]
    if kernel == [1, 1] and geometry.stride == (1, 1) and low == [0, 0] and geometry.positions == geometry.image:
        rows = image.permute(0, 2, 3, 1).reshape(-1, image.shape[1])
    else:
        numbers = [*geometry.image, *kernel, *geometry.stride, *low, *geometry.dilation, *geometry.positions]
        rows = _patches(image, numbers)
    outputs = rows @ matrix.T
    return outputs.view(len(image), *geometry.positions, len(weight)).permute(0, 3, 1, 2)


def _met_entries(geometry: ConvolutionGeometry, axis: int) -> tuple[int, int]:
    """The first entry of the kernel that meets the image at some position, and the one after the last."""
    low, size = geometry.padding[axis][0], geometry.image[axis]
    step, stride = geometry.dilation[axis], geometry.stride[axis]
    places = [[entry * step - low + stride * position for position in range(geometry.positions[axis])]
              for entry in range(geometry.kernel[axis])]  # fmt: skip
    met = [entry for entry, where in enumerate(places) if any(0 <= place < size for place in where)]
    return (met[0], met[-1] + 1) if met else (0, 1)


@torch.library.custom_op("hessmap::patches", mutates_args=())
def _patches(image: Tensor, numbers: Sequence[int]) -> Tensor:
    """(samples, channels, height, width) to (samples x positions, entries x channels)."""
    channels_last = image.permute(0, 2, 3, 1)
    found = _empty_patches(image, numbers).zero_()
    _, _, high, wide, tall, broad = _sizes(numbers)
    parts = found.view(len(image), high, wide, tall, broad, image.shape[1])
    for row, positions, rows in _ranges(numbers, 0):
        for column, places, columns in _ranges(numbers, 1):
            parts[:, positions, places, row, column] = channels_last[:, rows, columns]
    return found


@torch.library.custom_op("hessmap::image_of_patches", mutates_args=())
def _image_of_patches(patches: Tensor, num_samples: int, numbers: Sequence[int]) -> Tensor:
    """The adjoint: what every patch holds of a place, summed."""
    _, _, high, wide, tall, broad = _sizes(numbers)
    parts = patches.view(num_samples, high, wide, tall, broad, -1)
    found = _empty_image(patches, num_samples, numbers).zero_()
    channels_last = found.permute(0, 2, 3, 1)
    for row, positions, rows in _ranges(numbers, 0):
        for column, places, columns in _ranges(numbers, 1):
            channels_last[:, rows, columns] += parts[:, positions, places, row, column]
    return found


def _ranges(numbers: Sequence[int], axis: int) -> _Ranges:
    """Of every entry along an axis: the positions at which it meets the image, and the places that it meets there."""
    size, kernel, stride, low, step, positions = (numbers[2 * kind + axis] for kind in range(6))
    found = []
    for entry in range(kernel):
        offset = entry * step - low
        first = max(0, -(offset // stride))
        last = min(positions - 1, (size - 1 - offset) // stride)
        if first <= last:
            place = offset + stride * first
            places = slice(place, offset + stride * last + 1, stride)
            found.append((entry, slice(first, last + 1), places))
    return found


def _sizes(numbers: Sequence[int]) -> tuple[int, ...]:
    """Height and width of the image, positions along both, entries along both."""
    return (*numbers[0:2], *numbers[10:12], *numbers[2:4])


def _empty_patches(image: Tensor, numbers: Sequence[int]) -> Tensor:
    _, _, high, wide, tall, broad = _sizes(numbers)
    return image.new_empty(len(image) * high * wide, tall * broad * image.shape[1])


def _empty_image(patches: Tensor, num_samples: int, numbers: Sequence[int]) -> Tensor:
    height, width, _, _, tall, broad = _sizes(numbers)
    channels = patches.shape[1] // (tall * broad)
    return patches.new_empty(num_samples, height, width, channels).permute(0, 3, 1, 2)


_patches.register_fake(_empty_patches)
_image_of_patches.register_fake(_empty_image)


def _keep_samples(ctx: Any, inputs: tuple[Tensor, list[int]], output: Tensor) -> None:
    ctx.num_samples, ctx.numbers = len(inputs[0]), inputs[1]


def _keep_numbers(ctx: Any, inputs: tuple[Tensor, int, list[int]], output: Tensor) -> None:
    ctx.numbers = inputs[2]


_patches.register_autograd(
    lambda ctx, given: (_image_of_patches(given.contiguous(), ctx.num_samples, ctx.numbers), None),
    setup_context=_keep_samples,
)
_image_of_patches.register_autograd(
    lambda ctx, given: (_patches(given, ctx.numbers), None, None), setup_context=_keep_numbers
)
