"""A deep linear loss Hessian without its kernel: a smaller matrix with the same non-zero spectrum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hessmap.errors import UnsupportedNetwork
from hessmap_research.deep_linear.blocks import Section, assemble, block_factors, section
from hessmap_research.deep_linear.kernel import LayerKernel, explicit_kernel, kernel_residual
from hessmap_research.deep_linear.network import DeepLinear
from hessmap_research.deep_linear.operators import DeepLinearHessian

RESIDUAL_TOLERANCE = 1e-12
RANK_TOLERANCE = 1e-12


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
