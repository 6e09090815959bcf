"""A deep linear loss Hessian without its kernel: a smaller matrix with the same non-zero spectrum.

The kernel of a deep linear loss Hessian, known in closed form layer by layer.

The spectrum of a deep linear loss Hessian whose kernel was taken out before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork, require, sentence
from hessmap.measurement.dense_spectrum import spectrum
from hessmap.records import Spectrum
from hessmap_research.deep_linear.network import DeepLinear
from hessmap_research.deep_linear.operators import DeepLinearHessian, Pair, Section, assemble, block_factors, section

RESIDUAL_TOLERANCE = 1e-12
RANK_TOLERANCE = 1e-12
_REDUCTION = "Use reduce_deep_linear of hessmap_research.deep_linear"


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


@dataclass(frozen=True, eq=False)
class Reduction:
    """The loss Hessian on the orthogonal complement of its kernel, and how well that kernel was one.

    ``num_zeros`` eigenvalues were taken out; ``kernel_residual`` bounds ||H K|| / ||H|| for the kernel K that was
    tried. Where it was not to be used, ``matrix`` is the dense Hessian, ``num_zeros`` is 0 and ``obstacle`` says why.
    """

    matrix: Tensor
    num_zeros: int
    kernel_residual: float
    obstacle: str = ""

    @property
    def is_reduced(self) -> bool:
        return not self.obstacle


def reduce_deep_linear(
    network: DeepLinear, kernel: Sequence[LayerKernel] | None = None, allow_partial: bool = False
) -> Reduction:
    """Rotate each layer so that its part of the kernel is a corner, and form only the rest.

    The rotations act on the small factors of the blocks, so the dense Hessian never exists. The kernel is
    ``explicit_kernel(network)`` unless another is given; either is checked against the Hessian, and above 1e-12 the
    dense matrix is returned. So it is with biases, and where the kernel is known to be only a part of the null space:
    inputs that do not span their space, or Omega of smaller rank than the bottleneck. ``allow_partial`` reduces by
    that part (it is a true kernel, only not all of it; the matrix then has further zero eigenvalues).
    """
    try:
        layers = explicit_kernel(network) if kernel is None else tuple(kernel)
    except UnsupportedNetwork as error:
        return _dense_reduction(network, 0.0, str(error))
    residual = kernel_residual(network, layers)
    if residual > RESIDUAL_TOLERANCE:
        return _dense_reduction(network, residual, f"||H K|| / ||H|| is {residual:.2g}, above {RESIDUAL_TOLERANCE:g}")
    missing = "" if allow_partial else _why_partial(network)
    if missing:
        return _dense_reduction(network, residual, missing)
    return Reduction(_reduced_matrix(network, layers), sum(layer.dimension for layer in layers), residual)


def _dense_reduction(network: DeepLinear, residual: float, obstacle: str) -> Reduction:
    return Reduction(DeepLinearHessian(network).to_dense(), 0, residual, obstacle)


def _why_partial(network: DeepLinear) -> str:
    """Why the explicit kernel is not the whole null space; empty for generic data."""
    input_dim, smallest = network.widths[0], min(network.widths)
    input_rank, residual_rank = _rank(network.input_second_moment), _rank(network.residual_input_moment)
    if input_rank < input_dim:
        return f"the inputs have rank {input_rank} in {input_dim} dimensions"
    if residual_rank < smallest:
        return f"the residual moment has rank {residual_rank}, the bottleneck {smallest}"
    return ""


def _rank(matrix: Tensor) -> int:
    values = torch.linalg.svdvals(matrix)
    return int((values > RANK_TOLERANCE * values.max()).sum())


def _reduced_matrix(network: DeepLinear, kernel: Sequence[LayerKernel]) -> Tensor:
    bases = [(layer.output_basis, layer.input_basis) for layer in kernel]
    sections = []
    start = 0
    for layer in kernel:
        parts = _kept_sections(layer, start)
        sections.append(parts)
        start = parts[-1].place.stop
    return assemble(
        sections,
        lambda later, earlier: block_factors(network, "loss", later, earlier).in_bases(bases[later], bases[earlier]),
    )


def _kept_sections(layer: LayerKernel, start: int) -> tuple[Section, Section]:
    """All but the corner of null outputs and null inputs: kept outputs with all inputs, the others with kept inputs."""
    outputs, inputs, kept = len(layer.output_basis), len(layer.input_basis), layer.num_kept
    first = section(start, slice(0, kept), slice(0, inputs))
    return first, section(first.place.stop, slice(kept, outputs), slice(0, kept))


def reduced_spectrum(reduction: Reduction) -> Spectrum:
    """The whole spectrum of a deep linear loss Hessian from its reduced matrix, the removed zeros filled in.

    Where the reduction fell back to the dense matrix there are none to fill in, and ``method`` says why. Taking out a
    kernel K moves no eigenvalue by more than ||H K||, which is added to ``eigenvalue_error``.
    """
    is_reduction = isinstance(reduction, Reduction)
    require(is_reduction, "the spectrum of a reduction needs one", f"got {type(reduction).__name__}", _REDUCTION)
    kept = spectrum(reduction.matrix)
    if not reduction.is_reduced:
        return replace(kept, method=f"dense: {reduction.obstacle}")
    assert kept.eigenvalue_error is not None
    place = int((kept.eigenvalues > 0).sum())
    return replace(
        kept,
        eigenvalues=np.insert(kept.eigenvalues, place, np.zeros(reduction.num_zeros)),
        method="reduced by the explicit kernel",
        num_zeros=reduction.num_zeros,
        kernel_residual=reduction.kernel_residual,
        eigenvalue_error=kept.eigenvalue_error + reduction.kernel_residual * kept.norm,
    )
