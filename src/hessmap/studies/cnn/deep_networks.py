"""Small deep linear convolutional networks: all within limits, or drawn from the families that formulas fear."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

from hessmap.errors import unknown_name
from hessmap.theory.convolutional.deep_law import is_free, product_dimension
from hessmap.theory.convolutional.filter_chains import FilterChain

_MOST_PARAMETERS = {"random": 110, "strides": 110, "rounding": 260}
FAMILIES = tuple(_MOST_PARAMETERS)


def every_small_chain(num_hidden: int, input_channels: int, outputs: int, positions: int) -> Iterator[FilterChain]:
    """All networks of up to three channels and, for two hidden layers, three taps; two taps for more."""
    taps = range(1, 4 if num_hidden == 2 else 3)
    for hidden, kernels in product(product(range(1, 4), repeat=num_hidden), product(taps, repeat=num_hidden)):
        yield FilterChain((input_channels, *hidden, outputs), (*kernels, positions))


def random_chain(draw: random.Random, family: str, num_hidden: int) -> FilterChain:
    """A chain of a family: "random", "strides" (up to 3), or "rounding" (long filters whose degrees do not divide)."""
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    while True:
        chain = _drawn(draw, family, num_hidden)
        if chain.num_parameters <= _MOST_PARAMETERS[family] and (family != "rounding" or rounds(chain)):
            return chain


def _drawn(draw: random.Random, family: str, num_hidden: int) -> FilterChain:
    is_long = family == "rounding"
    channels = [
        draw.randint(1, 3),
        *(draw.randint(1, 5) for _ in range(num_hidden)),
        draw.randint(1, 10 if is_long else 5),
    ]
    kernels = [
        *(draw.randint(1, 10 if is_long else 5) for _ in range(num_hidden)),
        draw.randint(1, 3 if is_long else 5),
    ]
    strides = [draw.randint(1, 3) if family == "strides" else 1 for _ in range(num_hidden)]
    return FilterChain(tuple(channels), tuple(kernels), (*strides, 1))


def rounds(chain: FilterChain) -> bool:
    """Whether some part of the chain has a smaller dimension than the count of its weights less its gauge."""
    last = chain.num_layers
    return any(
        product_dimension(chain, i, j) < _count(chain, i, j) for i in range(last) for j in range(i + 2, last + 1)
    )


def _count(chain: FilterChain, first: int, last: int) -> int:
    """The first two lines of the law for R(first, last)."""
    counts = [chain.weights(first, last)]
    for vertex in range(first + 1, last):
        if is_free(chain, vertex, first, last):
            parts = product_dimension(chain, first, vertex) + product_dimension(chain, vertex, last)
            counts.append(parts - chain.channels[vertex] ** 2)
    return min(counts)


def input_length(chain: FilterChain) -> int:
    """The shortest input of a chain: longer ones only add positions that no filter meets."""
    length = chain.kernels[-1]
    for kernel, stride in zip(chain.kernels[-2::-1], chain.strides[-2::-1], strict=True):
        length = (length - 1) * stride + kernel
    return length
