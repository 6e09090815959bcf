"""The kernel of a deep linear loss Hessian, known in closed form layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, sentence
from hessmap_research.deep_linear.blocks import Pair, block_factors
from hessmap_research.deep_linear.network import DeepLinear


@dataclass(frozen=True, eq=False)
class LayerKernel:
    """Orthogonal coordinates of one layer's weight in which its part of the kernel is a corner.

    The columns of ``output_basis`` (m, m) and ``input_basis`` (n, n) after the first ``num_kept`` are null vectors u, v
    such that every u v^T, as a direction of the weight, is in the kernel of the loss Hessian.
    """

    output_basis: Tensor
    input_basis: Tensor
    num_kept: int

    @property
    def null_vectors(self) -> tuple[Tensor, Tensor]:
        return self.output_basis[:, self.num_kept :], self.input_basis[:, self.num_kept :]

    @property
    def dimension(self) -> int:
        return (len(self.output_basis) - self.num_kept) * (len(self.input_basis) - self.num_kept)


def explicit_kernel(network: DeepLinear) -> tuple[LayerKernel, ...]:
    """Directions u v^T of every layer that the loss Hessian maps to zero.

    Let vertex i be the space between layers i and i + 1 (the data at 0, the outputs at L), b a vertex of smallest
    dimension q, and W^{j<-i} the product of the weights from vertex i to vertex j. In the layer from vertex l - 1 to l
    u v^T is in the kernel if
        l <= b:  W^{b<-l} u = 0           and  (W^{L<-b})^T Omega (W^{l-1<-0})^T v = 0
        l >  b:  (W^{l-1<-b})^T v = 0     and  W^{b<-0} Omega^T W^{L<-l} u = 0
    because one of the two conditions annihilates every factor of every block (``blocks``), whatever the weights. Each
    condition leaves at least M - q dimensions of M. Where every product of weights and Omega has full rank, as for
    generic weights, input rank d and residual rank at least q, this is the whole kernel: its dimension, the sum of
    (M_l - q)(M_{l-1} - q), is the deficiency p - rk(H_L) of Singh, Bachmann & Hofmann (2021), Fact 7.
    """
    if network.has_bias:
        must = "the explicit kernel is known for networks without bias"
        raise UnsupportedNetwork(sentence(must, "this one has biases", "Use the dense Hessian"))
    widths = network.widths
    bottleneck = widths.index(min(widths))
    return tuple(_layer_kernel(network, layer, bottleneck) for layer in range(network.num_layers))


def _layer_kernel(network: DeepLinear, layer: int, bottleneck: int) -> LayerKernel:
    """The kernel of the layer from vertex ``layer`` to vertex ``layer + 1``."""
    omega = network.residual_input_moment
    num_layers = network.num_layers
    if layer < bottleneck:
        output_condition = _product(network, layer + 1, bottleneck)
        input_condition = _product(network, bottleneck, num_layers).T @ omega @ _product(network, 0, layer).T
    else:
        output_condition = _product(network, 0, bottleneck) @ omega.T @ _product(network, layer + 1, num_layers)
        input_condition = _product(network, bottleneck, layer).T
    smallest = network.widths[bottleneck]
    return LayerKernel(_null_last(output_condition), _null_last(input_condition), smallest)


def _product(network: DeepLinear, start: int, stop: int) -> Tensor:
    """W^{stop<-start}, the product of the weights from one vertex to a later or the same one."""
    product = torch.eye(network.widths[start], dtype=torch.float64)
    for weight in network.weights[start:stop]:
        product = weight @ product
    return product


def _null_last(condition: Tensor) -> Tensor:
    """An orthogonal basis that ends with the null vectors of a wide matrix: its right singular vectors."""
    right_vectors: Tensor = torch.linalg.svd(condition, full_matrices=True).Vh
    return right_vectors.T


def kernel_residual(network: DeepLinear, kernel: Sequence[LayerKernel]) -> float:
    """An upper bound of ||H_L K|| / ||H_L||, K the orthonormal basis u (x) v of the kernel of all layers.

    Every block of H_L K is a sum of two Kronecker products, whose Frobenius norms are products of those of their
    factors: nothing of the size of the Hessian is formed.
    """
    total = 0.0
    for column, layer in enumerate(kernel):
        output_null, input_null = layer.null_vectors
        for row in range(network.num_layers):
            factors = block_factors(network, "loss", max(row, column), min(row, column))
            if row < column:
                factors = factors.transpose()
            terms = _norm(factors.outer_product, output_null, input_null)
            terms += _norm(factors.functional, input_null, output_null)
            total += terms**2
    norm = _norm_lower_bound(network)
    return float(total**0.5 / norm) if norm else float(total > 0)


def _norm(factors: Pair | None, first: Tensor, second: Tensor) -> float:
    """The Frobenius norm of the Kronecker product of both factors, times the vectors."""
    if factors is None:
        return 0.0
    return float(torch.linalg.matrix_norm(factors[0] @ first) * torch.linalg.matrix_norm(factors[1] @ second))


def _norm_lower_bound(network: DeepLinear) -> float:
    """At most ||H_L||: no block is larger than the whole, and ||H_L|| >= ||H_f|| - ||H_o||.

    H_o is positive semi-definite, so that its norm is at most the sum of those of its diagonal blocks.
    """
    layers = range(network.num_layers)
    outer = [_spectral_norm(block_factors(network, "outer_product", layer, layer).outer_product) for layer in layers]
    functional = [
        _spectral_norm(block_factors(network, "functional", later, earlier).functional)
        for later in layers
        for earlier in range(later)
    ]
    return max(max(outer), max(functional, default=0.0) - sum(outer))


def _spectral_norm(factors: Pair | None) -> float:
    assert factors is not None
    return float(torch.linalg.matrix_norm(factors[0], 2) * torch.linalg.matrix_norm(factors[1], 2))
