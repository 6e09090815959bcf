"""Networks like LeNet5 at small resolution: two 2D convolutions with pooling, two dense layers, no bias.

The linear one with average pooling is a product of Toeplitz matrices, and so a dense linear network whose layers are
restricted; the bounds of deep linear networks hold for it as they do in one dimension. Averages commute with
convolutions: all pooling can be done first, which blurs the image, and leaves convolutions that move in strides.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn

KERNELS = (3, 2)
POOLED = 2


@dataclass(frozen=True)
class SmallLeNet:
    """3x3 filters, pooling by 2, twice as many 2x2 filters, pooling by 2, a dense hidden layer, a dense output layer.

    ``pooling`` is "average" or "max"; the activation ("identity", "relu", "tanh") follows all layers but the last.

    >>> net = SmallLeNet(side=8, filters=3, pooling="average", activation="identity", hidden=12, outputs=4)
    >>> net.linear == net, net.num_filters
    (True, 21)
    """

    side: int
    filters: int
    pooling: str
    activation: str
    hidden: int
    outputs: int

    @property
    def linear(self) -> SmallLeNet:
        """The network with the same weights whose layers are all linear."""
        return replace(self, pooling="average", activation="identity")

    @property
    def num_filters(self) -> int:
        """Hidden filters and units: each can be scaled up and what leaves it down."""
        return 3 * self.filters + self.hidden

    def build(self, seed: int = 0, init: str = "gaussian") -> nn.Sequential:
        """A float64 model on flat inputs, its weights drawn from ``seed`` alone."""
        from torch import nn

        from hessmap.networks.build import MODULES

        first, second, hidden, last = self._layers(seed, init)
        pool = {"average": nn.AvgPool2d, "max": nn.MaxPool2d}[self.pooling]
        activation = MODULES[self.activation]
        shape = nn.Unflatten(1, (1, self.side, self.side))
        convolutions = (first, activation(), pool(POOLED), second, activation(), pool(POOLED))
        return nn.Sequential(shape, *convolutions, nn.Flatten(), hidden, activation(), last)

    def build_after_blurring(self, seed: int = 0, init: str = "gaussian") -> nn.Sequential:
        """The linear network with its poolings in front, as a model on ``blurred`` inputs."""
        from torch import nn

        first, second, hidden, last = self._layers(seed, init, stride=POOLED)
        side = self.side - POOLED**2 + 1
        return nn.Sequential(nn.Unflatten(1, (1, side, side)), first, second, nn.Flatten(), hidden, last)

    def blurred(self, inputs: Tensor) -> Tensor:
        """Flat images averaged over every square of 4x4 pixels: two averages of 2, the second over pixels of 2."""
        from torch.nn.functional import avg_pool2d

        images = inputs.reshape(-1, 1, self.side, self.side)
        return avg_pool2d(images, POOLED**2, stride=1).flatten(1)

    def _layers(self, seed: int, init: str, stride: int = 1) -> tuple[nn.Conv2d | nn.Linear, ...]:
        import torch
        from torch import nn

        from hessmap.networks.build import initialise

        first, second, units = self.filters, 2 * self.filters, 2 * self.filters * self._last_length() ** 2
        layers: tuple[nn.Conv2d | nn.Linear, ...] = (
            nn.Conv2d(1, first, KERNELS[0], stride, bias=False, device="meta", dtype=torch.float64),
            nn.Conv2d(first, second, KERNELS[1], stride, bias=False, device="meta", dtype=torch.float64),
            nn.Linear(units, self.hidden, bias=False, device="meta", dtype=torch.float64),
            nn.Linear(self.hidden, self.outputs, bias=False, device="meta", dtype=torch.float64),
        )
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            initialise(layer.to_empty(device="cpu"), init, generator)
        return layers

    def _last_length(self) -> int:
        length = self.side
        for kernel in KERNELS:
            length = (length - kernel + 1) // POOLED
        return length


class ToeplitzChain(NamedTuple):
    """A linear network as matrices: ``sizes`` of input, hidden layers and output, ``layer_parameters``, the layers.

    A pooling is taken together with the layer before it: ``sizes`` count what is left after it.
    """

    sizes: tuple[int, ...]
    layer_parameters: tuple[int, ...]
    matrices: tuple[Tensor, ...]

    def outputs(self, inputs: Tensor) -> Tensor:
        for matrix in self.matrices:
            inputs = inputs @ matrix.T
        return inputs


def toeplitz_chain(model: nn.Sequential) -> ToeplitzChain:
    """The layers of a linear model as matrices on flattened inputs."""
    from torch import nn

    from hessmap_research.toeplitz import toeplitz_layer

    shape: tuple[int, ...] = ()
    sizes: list[int] = []
    parameters: list[int] = []
    matrices: list[Tensor] = []
    for module in model:
        if isinstance(module, nn.Unflatten):
            shape = tuple(module.unflattened_size)
            sizes.append(prod(shape))
        elif isinstance(module, nn.Flatten):
            shape = (prod(shape),)
        elif not isinstance(module, nn.Identity):
            layer = toeplitz_layer(module, shape)
            shape = layer.output_shape
            matrices.append(layer.matrix)
            if layer.num_weights:
                parameters.append(layer.num_weights)
                sizes.append(prod(shape))
            else:
                sizes[-1] = prod(shape)
    return ToeplitzChain(tuple(sizes), tuple(parameters), tuple(matrices))
