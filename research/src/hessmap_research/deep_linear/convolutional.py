"""Deep linear convolutional networks in closed form: that of their Toeplitz matrices, restricted to the filters.

A convolution is a matrix T_l that is linear in its weights (``toeplitz``), so the network is the deep linear network
T_L .. T_1 and by the chain rule, with nothing else because second derivatives of T_l vanish, its Hessian blocks are

    H_lk = (dT_l / dW_l)^T  [block of the dense network, ``blocks``]  (dT_k / dW_k)        .

For the outer-product Hessian this is Proposition 2 of Singh, Hofmann & Schoelkopf (2023). For the functional one it is
their Proposition 3, corrected: as printed, (1 (x) Q_k^T) (T_between (x) T .. Omega^T .. T) (Q_l (x) 1), the rows of
Q_l (x) 1 are ordered (position, channel, input, filter) where the middle factor needs (channel, input, filter,
position); right as printed only where the later layer has one position. A bias is one more tap, on a constant input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from hessmap.errors import require, require_name
from hessmap.linalg.devices import require_memory
from hessmap.linalg.operator import SymmetricOperator
from hessmap.linalg.vectors import Layout
from hessmap.records import PARTS, Part
from hessmap_research.deep_linear.network import DeepLinear
from hessmap_research.deep_linear.operators import DeepLinearHessian, Pair, block_factors
from hessmap_research.toeplitz import ToeplitzLayer


@dataclass(frozen=True, eq=False)
class DeepLinearConvolution:
    """A chain of convolutions and dense layers, and ``network``, the dense network of its Toeplitz matrices.

    ``free`` says for each layer where its free parameters, in the order of ``layout``, lie among the filters with
    their bias as one more tap: in the flat (filters, taps + 1), or (filters, taps) if the network has no bias.
    """

    layers: tuple[ToeplitzLayer, ...]
    network: DeepLinear
    free: tuple[Tensor, ...]
    layout: Layout

    def __post_init__(self) -> None:
        shapes = [layer.shape for layer in self.layers]
        wanted = [tuple(weight.shape) for weight in self.network.weights]
        require(shapes == wanted, "layers must be those of the dense network", f"got {shapes} and {wanted}")
        counts = sum(len(places) for places in self.free)
        must = "the layout must name every free parameter"
        require(counts == self.layout.size, must, f"it names {self.layout.size} of {counts}")

    @cached_property
    def wirings(self) -> tuple[Tensor, ...]:
        """Which input of the dense layer each tap meets at each position, a bias the constant; past the last: none."""
        wirings = []
        for layer in self.layers:
            wiring = layer.wiring
            if self.network.has_bias:
                is_wired = wiring < layer.num_inputs
                constant = wiring.new_full((1, layer.num_positions), layer.num_inputs)
                wiring = torch.cat([torch.where(is_wired, wiring, layer.num_inputs + 1), constant])
            wirings.append(wiring)
        return tuple(wirings)

    @property
    def chain(self) -> Iterator[tuple[ToeplitzLayer, Tensor, Tensor]]:
        """Layer by layer: the layer, its wiring, the places of its free parameters."""
        return zip(self.layers, self.wirings, self.free, strict=True)

    def block(self, part: Part, later: int, earlier: int) -> Tensor:
        """The block of the free parameters of two layers, counted from 0, ``earlier`` not after ``later``."""
        factors = block_factors(self.network, part, later, earlier)
        rows, columns = self.wirings[later], self.wirings[earlier]
        filters = len(self.layers[later].filters), len(self.layers[earlier].filters)
        block = torch.zeros(filters[0], len(rows), filters[1], len(columns), dtype=torch.float64)
        if factors.outer_product is not None:
            block += _outer_product_block(factors.outer_product, filters, rows, columns)
        if factors.functional is not None:
            block += _functional_block(factors.functional, filters, rows, columns)
        flat = block.reshape(filters[0] * len(rows), filters[1] * len(columns))
        return flat[self.free[later][:, None], self.free[earlier]]


def _outer_product_block(factors: Pair, filters: tuple[int, int], rows: Tensor, columns: Tensor) -> Tensor:
    """Sum over positions a, b of output_factor[(i, a), (j, b)] input_factor[rows[u, a], columns[v, b]]."""
    output_factor = factors[0].reshape(filters[0], rows.shape[1], filters[1], columns.shape[1])
    input_factor = _with_none(_with_none(factors[1]).T).T[rows][:, :, columns]
    return torch.einsum("iajb,uavb->iujv", output_factor, input_factor)


def _functional_block(factors: Pair, filters: tuple[int, int], rows: Tensor, columns: Tensor) -> Tensor:
    """Sum over positions a, b of residual_factor[(i, a), columns[v, b]] path_factor[rows[u, a], (j, b)]."""
    residual_factor = _with_none(factors[0].T).T[:, columns].reshape(filters[0], rows.shape[1], *columns.shape)
    path_factor = _with_none(factors[1])[rows].reshape(*rows.shape, filters[1], columns.shape[1])
    return torch.einsum("iavb,uajb->iujv", residual_factor, path_factor)


def _with_none(factor: Tensor) -> Tensor:
    """One more row of zeros: what a tap meets where there is no input."""
    return torch.cat([factor, factor.new_zeros(1, factor.shape[1])])


class DeepLinearConvolutionHessian(SymmetricOperator):
    """One part of the Hessian of a deep linear convolutional network under the squared loss.

    Products go through the dense network's own (``DeepLinearHessian``), the dense form through the blocks: two ways.
    """

    def __init__(self, convolution: DeepLinearConvolution, part: Part = "loss") -> None:
        require_name("part", part, PARTS)
        self.convolution = convolution
        self.part = part
        self.layout = convolution.layout

    @property
    def size(self) -> int:
        return self.convolution.layout.size

    def matmat(self, vectors: Tensor) -> Tensor:
        dense = DeepLinearHessian(self.convolution.network, self.part)
        return self._derivative.T @ dense.matmat(self._derivative @ vectors)

    def to_dense(self) -> Tensor:
        require_memory(f"a dense Hessian of {self.size} parameters", 8 * self.size**2, "Use products instead")
        matrix = torch.empty(self.size, self.size, dtype=torch.float64)
        ends = torch.tensor([0, *(len(places) for places in self.convolution.free)]).cumsum(0).tolist()
        for later in range(len(ends) - 1):
            for earlier in range(later + 1):
                block = self.convolution.block(self.part, later, earlier)
                if later == earlier:
                    block = (block + block.T) / 2
                rows, columns = slice(*ends[later : later + 2]), slice(*ends[earlier : earlier + 2])
                matrix[rows, columns], matrix[columns, rows] = block, block.T
        return matrix

    @cached_property
    def _derivative(self) -> Tensor:
        """The dense network's parameters by the free ones: sparse and block-diagonal."""
        network = self.convolution.network
        entries, column = [], 0
        for index, (layer, wiring, free) in enumerate(self.convolution.chain):
            own_filter, own_tap = free // len(wiring), free % len(wiring)
            inputs = wiring[own_tap]
            outputs = own_filter[:, None] * layer.num_positions + torch.arange(layer.num_positions)
            places = network.layout[f"{2 * index}.weight"].start + outputs * layer.num_inputs + inputs
            if network.has_bias:
                bias = network.layout[f"{2 * index}.bias"].start + outputs
                places = torch.where(inputs == layer.num_inputs, bias, places)
            columns = torch.arange(column, column + len(free))[:, None].expand_as(places)
            is_wired = inputs < layer.num_inputs + network.has_bias
            entries.append(torch.stack([places[is_wired], columns[is_wired]]))
            column += len(free)
        every = torch.cat(entries, dim=1)
        ones, shape = torch.ones(every.shape[1], dtype=torch.float64), (network.num_parameters, self.size)
        return torch.sparse_coo_tensor(every, ones, shape, check_invariants=True).coalesce()
