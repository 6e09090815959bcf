"""The vector-Jacobian product of one layer, for a block of row vectors: one per output of every sample.

A block has the shape (samples, outputs, entries of what left the layer) and becomes (samples, outputs, entries of what
entered it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.grad import conv2d_input

Vjp = Callable[[Tensor], Tensor]
Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class LinearVjp:
    """Through a linear map, which may act on the last of several dimensions."""

    weight: Tensor

    def __call__(self, block: Tensor) -> Tensor:
        return (block.reshape(*block.shape[:2], -1, self.weight.shape[0]) @ self.weight).flatten(2)


@dataclass(frozen=True, eq=False)
class ElementwiseVjp:
    """Through an elementwise layer; ``slopes`` (samples, entries)."""

    slopes: Tensor

    def __call__(self, block: Tensor) -> Tensor:
        return block * self.slopes[:, None]

    def in_place(self, block: Tensor) -> Tensor:
        return block.mul_(self.slopes[:, None])


@dataclass(frozen=True, eq=False)
class ConvolutionVjp:
    """Through a convolution: ``entering`` and ``leaving`` are the shapes of one sample."""

    weight: Tensor
    entering: torch.Size
    leaving: torch.Size
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def __call__(self, block: Tensor) -> Tensor:
        return self.images(block.reshape(-1, *self.leaving)).reshape(*block.shape[:2], -1)

    def images(self, images: Tensor) -> Tensor:
        shape = (len(images), *self.entering)
        back: Tensor = conv2d_input(  # type: ignore[no-untyped-call]
            shape, self.weight, images, self.stride, self.padding, self.dilation, self.groups
        )
        return back


@dataclass(frozen=True, eq=False)
class TilesVjp:
    """Through maxima over tiles (height, width) that divide the image.

    ``places`` (samples, channels, rows, columns) say where in the image of its channel the maximum of each tile stands,
    ``entries`` where within the tile; ``scale`` multiplies the rows.
    """

    places: Tensor
    entries: Tensor
    scale: Tensor
    tile: Pair

    @classmethod
    def of(cls, places: Tensor, tile: Pair, width: int) -> TilesVjp:
        """``places`` count along the rows of images of the given width."""
        height = tile[0] * places.shape[2]
        rows, columns = torch.arange(height)[:, None] % tile[0], torch.arange(width) % tile[1]
        entries = (rows * tile[1] + columns).flatten().take(places)  # a table, because division is slow
        return cls(places, entries, torch.ones((), dtype=torch.float64), tile)

    def behind(self, slopes: ElementwiseVjp) -> TilesVjp:
        """Through the elementwise layer before the maxima as well."""
        images = slopes.slopes.reshape(*self.places.shape[:2], -1)
        chosen = images.gather(2, self.places.flatten(2)).reshape(self.places.shape)
        return replace(self, scale=self.scale * chosen)

    def planes(self, block: Tensor) -> Tensor:
        """(samples, outputs, tile entries, channels, rows, columns): zero but at the maxima."""
        entry = torch.arange(self.tile[0] * self.tile[1])[:, None, None, None]
        factors = torch.where(self.entries[:, None] == entry, self.scale.expand_as(self.entries)[:, None], 0.0)
        return block.reshape(*block.shape[:2], 1, *self.places.shape[1:]) * factors[:, None]

    def __call__(self, block: Tensor) -> Tensor:
        count, outputs = block.shape[:2]
        planes = self.planes(block).reshape(count, outputs, *self.tile, *self.places.shape[1:])
        return planes.permute(0, 1, 4, 5, 2, 6, 3).flatten(2)


@dataclass(frozen=True, eq=False)
class TiledConvolutionVjp:
    """Through maxima over tiles and the convolution before them.

    The entries of a tile become channels, and the convolution one with a larger kernel that steps from tile to tile:
    the image between them, three quarters of it zeros, is never formed.
    """

    tiles: TilesVjp
    convolution: ConvolutionVjp

    @classmethod
    def of(cls, tiles: TilesVjp, convolution: ConvolutionVjp) -> TiledConvolutionVjp:
        (height, width), stride, dilation = tiles.tile, convolution.stride, convolution.dilation
        outputs, inputs, *kernel = convolution.weight.shape
        reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
        size = ((height - 1) * stride[0] + reach[0], (width - 1) * stride[1] + reach[1])
        weight = convolution.weight.new_zeros(height, width, outputs, inputs, *size)
        for row in range(height):
            for column in range(width):
                top, left = row * stride[0], column * stride[1]
                window = weight[row, column, :, :, top : top + reach[0], left : left + reach[1]]
                window[:, :, :: dilation[0], :: dilation[1]] = convolution.weight
        merged = replace(
            convolution,
            weight=weight.flatten(0, 2),
            leaving=torch.Size((height * width * outputs, *tiles.places.shape[2:])),
            stride=(height * stride[0], width * stride[1]),
            dilation=(1, 1),
        )
        return cls(tiles, merged)

    def __call__(self, block: Tensor) -> Tensor:
        images = self.tiles.planes(block).reshape(-1, *self.convolution.leaving)
        return self.convolution.images(images).reshape(*block.shape[:2], -1)


def merged_vjps(vjps: list[Vjp]) -> list[Vjp]:
    """The same products, in the order of the layers, with maxima over tiles merged into what comes before them."""
    found: list[Vjp] = []
    for vjp in vjps:
        if isinstance(vjp, TilesVjp):
            if found and isinstance(slopes := found[-1], ElementwiseVjp):
                found.pop()
                vjp = vjp.behind(slopes)
            if found and isinstance(convolution := found[-1], ConvolutionVjp) and convolution.groups == 1:
                found.pop()
                vjp = TiledConvolutionVjp.of(vjp, convolution)
        found.append(vjp)
    return found


def chain_jacobians(vjps: list[Vjp], num_samples: int, output_dim: int) -> Tensor:
    """The Jacobians of all layers together: the unit vectors of the outputs times one layer after another, the last
    one first."""
    block, left = _first_block(vjps, num_samples, output_dim)
    for place, vjp in enumerate(left):
        # The first block is a view of a weight; those that products have made are nobody else's.
        block = vjp.in_place(block) if place and isinstance(vjp, ElementwiseVjp) else vjp(block)
    return block


def _first_block(vjps: list[Vjp], num_samples: int, output_dim: int) -> tuple[Tensor, list[Vjp]]:
    """The block to start from and the layers, last one first, that are left: a last linear layer is its own block."""
    if vjps and isinstance(last := vjps[-1], LinearVjp) and last.weight.shape[0] == output_dim:
        return last.weight.expand(num_samples, -1, -1), vjps[-2::-1]
    return torch.eye(output_dim, dtype=torch.float64).expand(num_samples, -1, -1), vjps[::-1]
