"""Convolutions as matrix products, to be differentiated any number of times: of float64 images on CPUs.

torch has no fast float64 convolution for CPUs: it unfolds every patch and multiplies thin matrices. Here an image is
unfolded along its rows alone, and the rows of the kernel are as many matrix products over slices of that, without a
copy. A convolution is linear in the image and in the kernel, and the derivatives of

    y = x * w,    dx = y *' w,    dw = y *'' x

are each other: three functions that close under differentiation.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

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
    """``torch.conv2d``, by matrix products in float64 without strides and groups."""
    is_plain = _pair(stride) == _pair(dilation) == (1, 1) and groups == 1 and not isinstance(padding, str)
    is_double = input.dtype == weight.dtype == torch.float64
    if not (is_plain and is_double) or input.ndim != 4 or not len(input):
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    high, wide = _pair(padding)
    image = F.pad(input, (wide, wide, high, high)) if high or wide else input
    fits = image.shape[1] == weight.shape[1] and image.shape[2] >= weight.shape[2] and image.shape[3] >= weight.shape[3]
    if not fits:  # torch says why
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
    outputs: Tensor = _Convolution.apply(image, weight)  # type: ignore[no-untyped-call]
    return outputs if bias is None else outputs + bias[:, None, None]


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
