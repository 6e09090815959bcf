"""One convolution and one dense layer behind it, in integers, and sums over numbers that are as equal as can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hessmap.errors import require
from hessmap.theory.conditions import checked_count
from hessmap.theory.convolutional.balanced_degrees import sum_over_balanced


@dataclass(frozen=True)
class OneHiddenConvolution:
    """``filters`` m of ``kernel`` k taps and ``channels`` m0 over inputs of ``input_length`` d0, then a dense layer.

    ``outputs`` are the K outputs that the loss can tell apart: K - 1 of them under cross-entropy.

    >>> net = OneHiddenConvolution(input_length=11, kernel=5, filters=4, outputs=4, stride=3)
    >>> net.positions, net.num_phases, net.num_taps, net.num_visible_inputs, net.num_parameters
    (3, 3, 5, 11, 68)
    """

    input_length: int
    kernel: int
    filters: int
    outputs: int
    channels: int = 1
    stride: int = 1

    def __post_init__(self) -> None:
        for name in ("input_length", "kernel", "filters", "channels", "stride"):
            checked_count(name, getattr(self, name), at_least=1)
        checked_count("outputs", self.outputs)
        must = "a kernel must fit into its input"
        require(self.kernel <= self.input_length, must, f"kernel is {self.kernel}, input_length {self.input_length}")

    @property
    def positions(self) -> int:
        """d1 = (d0 - k) // stride + 1."""
        return (self.input_length - self.kernel) // self.stride + 1

    @property
    def num_inputs(self) -> int:
        """m0 d0."""
        return self.channels * self.input_length

    @property
    def num_phases(self) -> int:
        """n = min(stride, k) m0."""
        return min(self.stride, self.kernel) * self.channels

    @property
    def num_taps(self) -> int:
        """k m0."""
        return self.kernel * self.channels

    @property
    def most_taps(self) -> int:
        """The taps of the longest phase."""
        return -(-self.kernel // min(self.stride, self.kernel))

    @property
    def num_visible_inputs(self) -> int:
        """The inputs that some filter meets: sum over phases of d1 + taps - 1; all m0 d0 for stride 1."""
        return self.num_phases * (self.positions - 1) + self.num_taps

    @property
    def num_parameters(self) -> int:
        return self.filters * (self.num_taps + self.outputs * self.positions)

    def sum_over_phases(self, term: Callable[[int], int]) -> int:
        """The sum of ``term`` at each phase's number of taps."""
        return self.channels * int(sum_over_balanced(term, self.kernel, min(self.stride, self.kernel)))
