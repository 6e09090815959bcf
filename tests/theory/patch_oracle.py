"""The exact oracle for two-layer linear networks whose first layer reads patches of the input.

Position j applies its filters to the inputs of patch j; a dense layer reads all positions. Filters may be shared by
all positions (convolutions, weight sharing) or owned by each (locally connected). Parameters: filters, then dense.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from exact_oracle import (
    PRIME,
    Matrix,
    product,
    random_inputs,
    random_matrix,
    random_output_hessian,
    random_residuals,
    rank,
    total,
    transpose,
)


@dataclass(frozen=True)
class PatchNetwork:
    patches: list[list[int]]
    filters: int
    outputs: int
    shared: bool
    input_dim: int

    @property
    def num_banks(self) -> int:
        return 1 if self.shared else len(self.patches)

    @property
    def num_taps(self) -> int:
        return len(self.patches[0])

    @property
    def num_parameters(self) -> int:
        return self.num_banks * self.filters * self.num_taps + self.outputs * len(self.patches) * self.filters

    def filter_place(self, position: int, unit: int, tap: int) -> int:
        bank = 0 if self.shared else position
        return (bank * self.filters + unit) * self.num_taps + tap

    def dense_place(self, output: int, position: int, unit: int) -> int:
        start = self.num_banks * self.filters * self.num_taps
        return start + (output * len(self.patches) + position) * self.filters + unit


def convolution(input_length: int, kernel: int, filters: int, outputs: int, channels: int, stride: int) -> PatchNetwork:
    starts = range(0, input_length - kernel + 1, stride)
    patches = [[c * input_length + start + tap for c in range(channels) for tap in range(kernel)] for start in starts]
    return PatchNetwork(patches, filters, outputs, True, channels * input_length)


def locally_connected(patches: int, patch_size: int, filters: int, outputs: int, shared: bool) -> PatchNetwork:
    disjoint = [list(range(i * patch_size, (i + 1) * patch_size)) for i in range(patches)]
    return PatchNetwork(disjoint, filters, outputs, shared, patches * patch_size)


def jacobian(net: PatchNetwork, parameters: list[int], sample: list[int]) -> Matrix:
    rows = [[0] * net.num_parameters for _ in range(net.outputs)]
    for position, patch in enumerate(net.patches):
        for unit in range(net.filters):
            taps = [parameters[net.filter_place(position, unit, tap)] for tap in range(net.num_taps)]
            hidden = sum(weight * sample[place] for weight, place in zip(taps, patch, strict=True))
            for output, row in enumerate(rows):
                dense = net.dense_place(output, position, unit)
                row[dense] = hidden % PRIME
                for tap, place in enumerate(patch):
                    entry = net.filter_place(position, unit, tap)
                    row[entry] = (row[entry] + parameters[dense] * sample[place]) % PRIME
    return rows


def functional_hessian(net: PatchNetwork, moment: Matrix) -> Matrix:
    """From the moment sum residual x^T: only a filter's tap and a dense weight of its unit have a mixed derivative."""
    hessian = [[0] * net.num_parameters for _ in range(net.num_parameters)]
    for position, patch in enumerate(net.patches):
        for unit in range(net.filters):
            for output in range(net.outputs):
                dense = net.dense_place(output, position, unit)
                for tap, place in enumerate(patch):
                    entry = net.filter_place(position, unit, tap)
                    hessian[dense][entry] = hessian[entry][dense] = moment[output][place]
    return hessian


def generic_ranks(
    net: PatchNetwork,
    seed: int,
    loss: str = "squared",
    input_rank: int | None = None,
    residual_rank: int | None = None,
) -> tuple[int, int, int]:
    """Ranks of the three Hessians for random parameters, inputs of the given rank and residuals of the given rank."""
    draw = random.Random(seed)
    data_rank = net.input_dim if input_rank is None else input_rank
    inputs = random_inputs(draw, net.input_dim, data_rank, data_rank, data_rank + 2)
    softmax = loss == "cross_entropy"
    factor = net.outputs if residual_rank is None else residual_rank
    residuals = random_residuals(draw, len(inputs), net.outputs, factor, False, softmax)
    moment = product(transpose(residuals), inputs)
    assert residual_rank is None or rank(moment) == residual_rank
    parameters = random_matrix(draw, 1, net.num_parameters)[0]
    outer = [[0] * net.num_parameters for _ in range(net.num_parameters)]
    for sample in inputs:
        slope = jacobian(net, parameters, sample)
        curvature = random_output_hessian(draw, loss, net.outputs)
        outer = total(outer, product(transpose(slope), product(curvature, slope)))
    functional = functional_hessian(net, moment)
    return rank(outer), rank(functional), rank(total(outer, functional))
