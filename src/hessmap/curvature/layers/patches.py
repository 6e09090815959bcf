"""A convolution as a linear map of patches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

Pair = tuple[int, int]


@dataclass(frozen=True)
class Patches:
    """How a convolution cuts its input; one-dimensional ones are two-dimensional of height one.

    Entries of a patch are ordered (channel, row, column), as in ``weight.reshape(outputs, -1)``.
    """

    kernel: Pair
    stride: Pair
    dilation: Pair
    padding: tuple[int, int, int, int]  # left, right, above, below

    @classmethod
    def of(cls, weight: Tensor, arguments: Mapping[str, Any]) -> Patches:
        """From the arguments of ``conv1d`` or ``conv2d``."""
        kernel, dims = tuple(weight.shape[2:]), weight.ndim - 2
        stride, dilation = (_sizes(arguments.get(key, 1), dims) for key in ("stride", "dilation"))
        before, after = _padding(arguments.get("padding", 0), kernel, dilation)
        whole = (before[-1], after[-1], before[-2] if dims == 2 else 0, after[-2] if dims == 2 else 0)
        return cls(_two(kernel), _two(stride), _two(dilation), whole)

    def unfolded(self, inputs: Tensor) -> Tensor:
        """Patches of every sample, shape (samples, positions, entries of a patch)."""
        images = inputs[:, :, None, :] if inputs.ndim == 3 else inputs
        images = F.pad(images, self.padding) if any(self.padding) else images
        return F.unfold(images, self.kernel, dilation=self.dilation, stride=self.stride).transpose(1, 2)


def _sizes(value: Any, dims: int) -> tuple[int, ...]:
    return (int(value),) * dims if isinstance(value, int) else tuple(int(item) for item in value) * (dims // len(value))


def _two(sizes: tuple[int, ...]) -> Pair:
    return (1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1])


def _padding(given: Any, kernel: tuple[int, ...], dilation: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if given == "valid":
        given = 0
    if given != "same":
        sizes = _sizes(given, len(kernel))
        return sizes, sizes
    whole = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
    return tuple(size // 2 for size in whole), tuple(size - size // 2 for size in whole)
