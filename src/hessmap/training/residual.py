"""The residual network of eighteen layers without normalisation, for small images."""

from __future__ import annotations

from torch import Tensor, nn

from hessmap.errors import require

_STRIDES = (1, 2, 2, 2)  # of the four stages, two blocks of two convolutions each


class _Residual(nn.Module):
    """conv1, then eight blocks x -> relu(x' + conv(relu(conv(x)))), x' = x or a 1x1 convolution; mean; fc1."""

    def __init__(self, width: int, image_shape: tuple[int, int, int], num_classes: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.add_module("conv1", nn.Conv2d(image_shape[0], width, 3, padding=1, bias=False))
        for index in range(16):
            stride = _STRIDES[index // 4] if index % 4 == 0 else 1
            convolution = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
            self.add_module(f"conv{index + 2}", convolution)
        for index in (1, 2, 3):
            self.add_module(f"sc-conv{index}", nn.Conv2d(width, width, 1, stride=_STRIDES[index], bias=False))
        self.add_module("fc1", nn.Linear(width, num_classes))

    def forward(self, inputs: Tensor) -> Tensor:
        layer = self.get_submodule
        hidden: Tensor = layer("conv1")(inputs.reshape(-1, *self.image_shape)).relu()
        for block in range(8):
            stage, place = divmod(block, 2)
            shortcut = layer(f"sc-conv{stage}")(hidden) if stage and not place else hidden
            inside = layer(f"conv{2 * block + 2}")(hidden).relu()
            hidden = (shortcut + layer(f"conv{2 * block + 3}")(inside)).relu()
        logits: Tensor = layer("fc1")(hidden.mean((2, 3)))
        return logits


def residual_network(width: int, image_shape: tuple[int, int, int], num_classes: int) -> nn.Module:
    """He et al. 2016 as adapted to small images: a first 3x3 convolution of stride 1 and no pooling before the mean."""
    require(width >= 1, "a residual network needs at least one channel", f"got {width}")
    return _Residual(width, image_shape, num_classes)
