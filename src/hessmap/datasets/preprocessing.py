"""Inputs and targets of a data set, and what is done to them before use; no function changes its arguments.

Images moved, turned, bent and mirrored at random are more samples of the same classes for a training.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import pi
from typing import NamedTuple

import torch
from torch import Tensor, nn

from hessmap.errors import checked_count, checked_number, checked_seed, integer_or_none, list_of, require, short_text

_KNOTS = 7  # on a side: of the coarse grid of displacements between which an elastic one is interpolated


class Data(NamedTuple):
    """Inputs and targets of a data set, one row per sample.

    Args:
        inputs: Inputs (num_samples, input_dim), float64.
        targets: Labels (num_samples,), int64, or target vectors (num_samples, output_dim), float64.

    Example:
        >>> import torch
        >>> inputs, targets = Data(torch.zeros(2, 3), torch.tensor([0, 1]))
    """

    inputs: Tensor
    targets: Tensor


LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601, the weights of red, green and blue in every common image library


def one_hot(labels: Tensor, num_classes: int | None = None) -> Tensor:
    """Labels as rows of an identity matrix.

    Args:
        labels: Integer labels (num_samples,).
        num_classes: Number of columns. Defaults to the largest label plus one.

    Returns:
        Tensor: Shape (num_samples, num_classes), float64.

    Example:
        >>> one_hot(torch.tensor([2, 0]))
        tensor([[0., 0., 1.],
                [1., 0., 0.]], dtype=torch.float64)
    """
    require(
        labels.ndim == 1 and not labels.is_floating_point(),
        "one_hot needs a vector of integer labels",
        f"got shape {tuple(labels.shape)} of {labels.dtype}",
    )
    largest, smallest = (int(labels.max()), int(labels.min())) if len(labels) else (-1, 0)
    count = largest + 1 if num_classes is None else checked_count("num_classes", num_classes, at_least=None)
    require(
        smallest >= 0 and largest < count,
        f"labels must be in 0..{count - 1}",
        f"they range from {smallest} to {largest}",
    )
    return torch.eye(count, dtype=torch.float64)[labels.long()]


def standardise(inputs: Tensor, reference: Tensor | None = None) -> Tensor:
    """Subtract the mean of each feature and divide by its standard deviation (with divisor n).

    Args:
        inputs: Inputs (num_samples, input_dim).
        reference: Inputs whose means and deviations are used; pass the training inputs to standardise test inputs.
            Defaults to ``inputs``. A feature that is constant in the reference is only centred.

    Returns:
        Tensor: The standardised inputs.

    Example:
        >>> standardise(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
    """
    known = inputs if reference is None else reference
    # A constant feature is found exactly: its rounded mean may leave a spurious deviation of one ulp.
    is_constant = (known == known[:1]).all(dim=0)
    mean = torch.where(is_constant, known[0], known.mean(dim=0))
    deviation = torch.where(is_constant, torch.ones_like(mean), known.std(dim=0, correction=0))
    return (inputs - mean) / deviation


def class_subset(data: Data, classes: Iterable[int]) -> Data:
    """Select the samples of some classes, in their order.

    Args:
        data: Inputs with integer labels.
        classes: Labels to keep; they become 0, 1, .. in the order given.

    Returns:
        Data: The selected inputs with their new labels.

    Raises:
        InvalidInput: If targets are not labels, a class is repeated, or it has no sample.

    Example:
        >>> class_subset(Data(torch.tensor([[5.0], [6.0], [7.0]]), torch.tensor([3, 1, 2])), (2, 3))
        Data(inputs=tensor([[5.],
                [7.]]), targets=tensor([1, 0]))
    """
    wanted = [checked_count("a class", label, at_least=None) for label in list_of("classes", classes)]
    require(len(wanted) > 0, "classes must name at least one class", "got none")
    require(len(set(wanted)) == len(wanted), "classes must be distinct", f"got {wanted}")
    present = set(data.targets.tolist())
    absent = [label for label in wanted if label not in present]
    require(not absent, f"classes must be among {sorted(present)}", f"got {absent}")
    matches = data.targets[:, None] == torch.tensor(wanted)
    kept = matches.any(dim=1)
    return Data(data.inputs[kept], matches[kept].long().argmax(dim=1))


def two_halves(data: Data, num_classes: int = 10) -> Data:
    """Merge classes into two: label 0 for the lower half of the labels, 1 for the others (digits 0-4 and 5-9).

    Args:
        data: Inputs with integer labels.
        num_classes: Number of classes. Defaults to 10.

    Returns:
        Data: The same inputs with labels 0 and 1.

    Example:
        >>> two_halves(Data(torch.zeros(4, 1), torch.tensor([0, 4, 5, 9]))).targets
        tensor([0, 0, 1, 1])
    """
    num_classes = checked_count("num_classes", num_classes, at_least=None)
    require(num_classes >= 2, "num_classes must be at least 2", f"got {num_classes}")
    return Data(data.inputs, (data.targets >= (num_classes + 1) // 2).long())


def random_labels(data: Data, num_classes: int | None = None, seed: int = 0) -> Data:
    """Replace the labels by uniformly random ones, which can be memorised but not learnt.

    Args:
        data: Inputs with any targets.
        num_classes: Number of classes. Defaults to the largest label plus one.
        seed: Seed of the random numbers. Defaults to 0.

    Returns:
        Data: The same inputs with random labels.

    Example:
        >>> random_labels(Data(torch.zeros(5, 1), torch.tensor([0, 0, 0, 0, 1])), seed=1).targets
        tensor([1, 1, 0, 0, 1])
    """
    given = None if num_classes is None else checked_count("num_classes", num_classes, at_least=None)
    count = int(data.targets.max()) + 1 if given is None else given
    require(count >= 1, "num_classes must be at least 1", f"got {count}")
    generator = torch.Generator().manual_seed(checked_seed(seed))
    return Data(data.inputs, torch.randint(count, (len(data.targets),), generator=generator))


def subsample(data: Data, num_samples: int | None, seed: int | None = None) -> Data:
    """Take the first samples, or random ones without replacement.

    Args:
        data: Inputs and targets.
        num_samples: Number of samples. None: all of them.
        seed: Seed of a random choice, in the order drawn; classes are not balanced. Defaults to None: the first
            samples in their order.

    Returns:
        Data: The chosen samples.

    Example:
        >>> subsample(Data(torch.arange(4.0)[:, None], torch.arange(4)), 2).targets
        tensor([0, 1])
    """
    count = len(data.targets)
    wanted = count if num_samples is None else checked_count("num_samples", num_samples)
    require(1 <= wanted <= count, f"num_samples must be in 1..{count}", f"got {num_samples}")
    if seed is None:
        return Data(data.inputs[:wanted], data.targets[:wanted])
    chosen = torch.randperm(count, generator=torch.Generator().manual_seed(checked_seed(seed)))[:wanted]
    return Data(data.inputs[chosen], data.targets[chosen])


def grayscale(images: Tensor) -> Tensor:
    """Convert colours to luminance, 0.299 red + 0.587 green + 0.114 blue.

    Args:
        images: Images (..., 3, height, width).

    Returns:
        Tensor: Images (..., 1, height, width).
    """
    require(
        images.ndim >= 3 and images.shape[-3] == 3,
        "grayscale needs images of shape (..., 3, height, width)",
        f"got {tuple(images.shape)}",
    )
    weights = torch.tensor(LUMA, dtype=torch.float64)[:, None, None]
    return (images.double() * weights).sum(dim=-3, keepdim=True)


def downscale(images: Tensor, side: int) -> Tensor:
    """Scale images down by the mean over the area of each new pixel.

    A new pixel covers height/side x width/side old ones, which need not be integers: an old pixel counts by the
    area that is covered. Areas are integers until one last division, so that means of bytes round once.

    Args:
        images: Images (..., height, width).
        side: New height and width, at most the old ones.

    Returns:
        Tensor: Images (..., side, side), float64.

    Example:
        >>> downscale(torch.tensor([[0.0, 3.0, 6.0]] * 3), 2)
        tensor([[1., 5.],
                [1., 5.]], dtype=torch.float64)
    """
    height, width = images.shape[-2:]
    side = checked_count("side", side, at_least=None)
    require(
        1 <= side <= min(height, width),
        f"side must be in 1..{min(height, width)} for images of {height}x{width}",
        f"got {side}",
    )
    areas = _overlaps(height, side) @ images.double() @ _overlaps(width, side).T
    return areas / (height * width)


def _overlaps(size: int, side: int) -> Tensor:
    """How much of old pixel j new pixel i covers, in units of 1/side: integers whose rows sum to size."""
    new, old = torch.arange(side)[:, None], torch.arange(size)[None, :]
    left = torch.maximum(new * size, old * side)
    right = torch.minimum((new + 1) * size, (old + 1) * side)
    return (right - left).clamp(min=0).double()


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
