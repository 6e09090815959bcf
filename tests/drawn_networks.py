"""Random small networks whose ranks are known in exact arithmetic, for tests of what is predicted of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from hessmap.networks import Architecture, Convolutional, FullyConnected, LocallyConnected
from hessmap.theory.convolutional.chains import FilterChain

_MOST_PARAMETERS = 75


def drawn_chain(draw: random.Random, num_hidden: int, largest_stride: int = 1) -> FilterChain:
    """A chain of convolutions."""
    while True:
        channels = (draw.randint(1, 3), *(draw.randint(1, 5) for _ in range(num_hidden + 1)))
        kernels = tuple(draw.randint(1, 5) for _ in range(num_hidden + 1))
        strides = (*(draw.randint(1, largest_stride) for _ in range(num_hidden)), 1)
        chain = FilterChain(channels, kernels, strides)
        if chain.num_parameters <= 110:
            return chain


def network_of(chain: FilterChain) -> Convolutional:
    """The shortest network of a chain: longer inputs only add positions that no filter meets."""
    length = chain.kernels[-1]
    for kernel, stride in zip(chain.kernels[-2::-1], chain.strides[-2::-1], strict=True):
        length = (length - 1) * stride + kernel
    *channels, outputs = chain.channels
    return Convolutional(length, channels, chain.kernels[:-1], chain.strides[:-1], outputs)


def drawn_biased_convolution(draw: random.Random, has_last_bias: bool) -> Convolutional:
    """One hidden convolution with a bias: strides up to the kernel, and no more outputs than inputs."""
    while True:
        kernel, positions = draw.randint(1, 7), draw.randint(1, 5)
        stride = draw.randint(1, min(3, kernel))
        channels, outputs = (draw.randint(1, 3), draw.randint(1, 6)), draw.randint(1, 6)
        length = (positions - 1) * stride + kernel
        net = Convolutional(length, channels, (kernel,), (stride,), outputs, bias=(True, has_last_bias))
        if net.num_parameters <= _MOST_PARAMETERS and outputs <= net.input_dim:
            return net


def _patches(draw: random.Random) -> Architecture:
    return LocallyConnected(draw.randint(1, 5), draw.randint(1, 5), draw.randint(1, 4), draw.randint(1, 6))


def _convolutions(draw: random.Random) -> Architecture:
    kernels = [draw.randint(1, 5) for _ in range(draw.randint(1, 3))]
    length = sum(kernels) - len(kernels) + draw.randint(1, 4)
    channels = (draw.randint(1, 2), *(draw.randint(1, 4) for _ in kernels))
    return Convolutional(length, channels, kernels, outputs=draw.randint(1, 5))


def _dense(draw: random.Random) -> Architecture:
    return FullyConnected(tuple(draw.randint(1, 6) for _ in range(draw.randint(3, 5))))


LOW_RANK: dict[str, Callable[[random.Random], Architecture]] = {
    "patches": _patches,
    "convolutions": _convolutions,
    "dense": _dense,
}


def drawn_low_rank(draw: random.Random, family: str) -> tuple[Architecture, int]:
    """A network of a family, and a rank of its inputs below their number."""
    while True:
        net = LOW_RANK[family](draw)
        if net.num_parameters <= _MOST_PARAMETERS and net.input_dim > 1:
            return net, draw.randint(1, net.input_dim - 1)
