"""Convolutions of small images as one matrix product over their patches, to be differentiated any number of times.

torch's float32 convolutions order images and kernels anew at every call; where a kernel takes few positions that takes
longer than to multiply. The patches of what enters a layer do not depend on a vector: a Hessian's product finds them in
its graph, and has to make those of the tangents alone. Entries of the kernel that meet nothing but padding, as all but
one of 3 x 3 do in an image of one pixel, are left out.

Images become patches and patches, summed where they overlap, images again: two linear maps, each the other's adjoint.
Both are operations of their own, so that a traced graph has one node for each.

Convolutions as matrix products, to be differentiated any number of times: here of float64 images.

torch has no fast float64 convolution for CPUs: it unfolds every patch and multiplies thin matrices. Here an image is
unfolded along its rows alone, and the rows of the kernel are as many matrix products over slices of that, without a
copy. A convolution is linear in the image and in the kernel, and the derivatives of

    y = x * w,    dx = y *' w,    dw = y *'' x

are each other: three functions that close under differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from hessmap.problem.geometry import ConvolutionGeometry

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


_UNFOLDED_BYTES = 2**21  # of the samples that are unfolded at once: about what a processor's own cache holds
_Size = tuple[int, int]


def matrix_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """``torch.conv2d``, by matrix products: in float64 without strides and groups, in float32 of small images."""
    if input.dtype == torch.float32:
        geometry = _small_geometry(input, weight, stride, padding, dilation, groups)
        if geometry is None:
            return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
        return _with_bias(patch_convolution(input, weight, geometry), bias)
    is_plain = _pair(stride) == _pair(dilation) == (1, 1) and groups == 1 and not isinstance(padding, str)
    if not is_plain or input.ndim != 4 or input.dtype != weight.dtype or not len(input):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    high, wide = _pair(padding)
    image = F.pad(input, (wide, wide, high, high)) if high or wide else input
    fits = image.shape[1] == weight.shape[1] and image.shape[2] >= weight.shape[2] and image.shape[3] >= weight.shape[3]
    if not fits:  # torch says why
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    outputs: Tensor = _Convolution.apply(image, weight)  # type: ignore[no-untyped-call]
    return _with_bias(outputs, bias)


def _with_bias(outputs: Tensor, bias: Tensor | None) -> Tensor:
    return outputs if bias is None else outputs + bias[:, None, None]


def _small_geometry(input: Tensor, weight: Tensor, *options: Any) -> ConvolutionGeometry | None:
    """Of a float32 convolution that is faster over patches."""
    if weight.dtype != input.dtype or input.device.type != "cpu" or input.ndim != 4 or not input.numel():
        return None
    geometry = ConvolutionGeometry.of_call(input.shape[2:], weight.shape[2:], *options)
    return geometry if is_small(geometry) and input.shape[1] == weight.shape[1] else None


def _pair(value: Any) -> _Size:
    pair = (value, value) if isinstance(value, int) else tuple(value)
    return (pair[0], pair[-1])


class _Convolution(Function):
    """y[n, o] = sum x[n, c] * w[o, c]."""

    @staticmethod
    def forward(ctx: Any, image: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(image, kernel)
        return convolution(image, kernel)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        image, kernel = ctx.saved_tensors
        needs = ctx.needs_input_grad
        to_image = _ImageGradient.apply(given[0], kernel) if needs[0] else None  # type: ignore[no-untyped-call]
        to_kernel = _KernelGradient.apply(given[0], image) if needs[1] else None  # type: ignore[no-untyped-call]
        return to_image, to_kernel


class _ImageGradient(Function):
    """x[n, c] = sum over the places that y[n, o] was made from, times w[o, c]."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, kernel: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, kernel)
        return image_gradient(outputs, kernel)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        outputs, kernel = ctx.saved_tensors
        needs = ctx.needs_input_grad
        to_outputs = _Convolution.apply(given[0], kernel) if needs[0] else None  # type: ignore[no-untyped-call]
        to_kernel = _KernelGradient.apply(outputs, given[0]) if needs[1] else None  # type: ignore[no-untyped-call]
        return to_outputs, to_kernel


class _KernelGradient(Function):
    """w[o, c] = sum over samples and places of y[n, o] times x[n, c]."""

    @staticmethod
    def forward(ctx: Any, outputs: Tensor, image: Tensor) -> Tensor:
        ctx.save_for_backward(outputs, image)
        return kernel_gradient(outputs, image)

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> Any:
        outputs, image = ctx.saved_tensors
        needs = ctx.needs_input_grad
        to_outputs = _Convolution.apply(image, given[0]) if needs[0] else None  # type: ignore[no-untyped-call]
        to_image = _ImageGradient.apply(outputs, given[0]) if needs[1] else None  # type: ignore[no-untyped-call]
        return to_outputs, to_image


def convolution(image: Tensor, kernel: Tensor) -> Tensor:
    count, channels, height, width = image.shape
    made, _, tall, broad = kernel.shape
    high, wide = height - tall + 1, width - broad + 1
    rows = kernel.permute(2, 1, 3, 0).reshape(tall, channels * broad, made)
    outputs = image.new_empty(count, made, high, wide)
    for samples in _pieces(count, channels * height * wide * broad):
        patches = _row_patches(image[samples], broad)
        total = torch.mm(patches[:high].reshape(-1, channels * broad), rows[0])
        for row in range(1, tall):
            total.addmm_(patches[row : row + high].reshape(-1, channels * broad), rows[row])
        outputs[samples] = total.view(high, -1, wide, made).permute(1, 3, 0, 2)
    return outputs


def kernel_gradient(outputs: Tensor, image: Tensor) -> Tensor:
    count, channels, height, width = image.shape
    _, made, high, wide = outputs.shape
    tall, broad = height - high + 1, width - wide + 1
    kernel = image.new_zeros(tall, made, channels * broad)
    for samples in _pieces(count, channels * height * wide * broad):
        patches = _row_patches(image[samples], broad)
        left = outputs[samples].permute(1, 2, 0, 3).reshape(made, -1)
        for row in range(tall):
            kernel[row].addmm_(left, patches[row : row + high].reshape(-1, channels * broad))
    return kernel.view(tall, made, channels, broad).permute(1, 2, 0, 3).contiguous()


def image_gradient(outputs: Tensor, kernel: Tensor) -> Tensor:
    """The convolution of the padded outputs with the flipped kernel."""
    tall, broad = kernel.shape[2:]
    padded = F.pad(outputs, (broad - 1, broad - 1, tall - 1, tall - 1))
    return convolution(padded, kernel.transpose(0, 1).flip(2, 3))


def _row_patches(image: Tensor, broad: int) -> Tensor:
    """(height, samples x places in a row, channels x broad): a slice of it is a matrix."""
    height, channels = image.shape[2], image.shape[1]
    return image.permute(2, 0, 1, 3).unfold(3, broad, 1).permute(0, 1, 3, 2, 4).reshape(height, -1, channels * broad)


def _pieces(count: int, entries: int) -> list[slice]:
    step = max(1, _UNFOLDED_BYTES // (8 * entries))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
