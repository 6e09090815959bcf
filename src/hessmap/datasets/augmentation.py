"""Images moved, turned, bent and mirrored at random: more samples of the same classes for a training."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import torch
from torch import Tensor, nn

from hessmap.errors import checked_number, integer_or_none, list_of, require, short_text

_KNOTS = 7  # on a side: of the coarse grid of displacements between which an elastic one is interpolated


@dataclass(frozen=True)
class ImageAugmentation:
    """Random affine and elastic displacements of images that are rows of numbers, channel by channel.

    All parameters are drawn uniformly for every image. Pixels from outside of an image are zero.

    Args:
        shape: Channels, height and width of an image.
        rotation: Largest angle in degrees. Defaults to 15.
        scale: Largest relative change of size. Defaults to 0.15.
        shear: Largest shear slope. Defaults to 0.2.
        shift: Largest displacement in pixels. Defaults to 2.
        elastic: Standard deviation, in pixels, of displacements at 7 x 7 knots that are interpolated smoothly
            (after Simard, Steinkraus & Platt 2003). Defaults to 1.
        mirror: Whether half of the images are mirrored left to right. Defaults to False.

    Example:
        >>> images = torch.arange(16.0).reshape(1, 16)
        >>> generator = torch.Generator().manual_seed(0)
        >>> nothing = ImageAugmentation((1, 4, 4), rotation=0, scale=0, shear=0, shift=0, elastic=0)
        >>> bool((nothing(images, generator) - images).abs().max() < 1e-5)
        True
    """

    shape: tuple[int, int, int]
    rotation: float = 15.0
    scale: float = 0.15
    shear: float = 0.2
    shift: float = 2.0
    elastic: float = 1.0
    mirror: bool = False

    def __post_init__(self) -> None:
        sides = [integer_or_none(side) or 0 for side in list_of("shape", self.shape)]
        is_shape = len(sides) == 3 and min(sides) >= 1
        require(is_shape, "shape must be (channels, height, width)", f"got {short_text(self.shape)}")
        object.__setattr__(self, "shape", tuple(sides))
        for name in ("rotation", "scale", "shear", "shift", "elastic"):
            value = checked_number(name, getattr(self, name))
            require(0 <= value < float("inf"), f"{name} must be finite and not negative", f"got {value}")
            object.__setattr__(self, name, value)
        require(self.scale < 1, "scale must be below 1", f"got {self.scale}")

    def __call__(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Other images of the same classes, as rows again; the images that are given stay as they are."""
        channels, height, width = self.shape
        fits = inputs[0].numel() == channels * height * width if len(inputs) else True
        require(fits, f"images must have {channels} x {height} x {width} values", f"got {tuple(inputs.shape[1:])}")
        images = inputs.reshape(-1, *self.shape)
        places = nn.functional.affine_grid(self._maps(inputs, generator), list(images.shape), align_corners=False)
        if self.elastic:
            places = places + self._bends(inputs, generator)
        moved = nn.functional.grid_sample(images, places, align_corners=False)
        return moved.reshape(inputs.shape)

    def _maps(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        """Affine maps of the square [-1, 1]^2, one an image, as matrices of two rows and three columns."""
        _, height, width = self.shape

        def spread(largest: float) -> Tensor:
            return largest * (2 * torch.rand(len(inputs), generator=generator, dtype=inputs.dtype) - 1)

        angle, slope = spread(self.rotation * pi / 180), spread(self.shear)
        wide, high = 1 + spread(self.scale), 1 + spread(self.scale)
        across, down = spread(2 * self.shift / width), spread(2 * self.shift / height)
        if self.mirror:
            wide = wide * (2 * torch.randint(2, (len(inputs),), generator=generator) - 1)
        cosine, sine = angle.cos(), angle.sin()
        first = torch.stack([wide * cosine, wide * (slope * cosine - sine), across], dim=1)
        second = torch.stack([high * sine, high * (slope * sine + cosine), down], dim=1)
        return torch.stack([first, second], dim=1)

    def _bends(self, inputs: Tensor, generator: torch.Generator) -> Tensor:
        _, height, width = self.shape
        knots = torch.randn(len(inputs), 2, _KNOTS, _KNOTS, generator=generator, dtype=inputs.dtype)
        smooth = nn.functional.interpolate(knots, (height, width), mode="bicubic", align_corners=True)
        pixel = torch.tensor([2 / width, 2 / height], dtype=inputs.dtype)
        return self.elastic * pixel * smooth.permute(0, 2, 3, 1)
