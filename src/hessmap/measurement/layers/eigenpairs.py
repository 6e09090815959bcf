"""Top eigenpairs of a layer Hessian, started where its Kronecker factors say they are."""

from __future__ import annotations

import torch
from torch import Tensor

from hessmap.curvature.layers import KroneckerProduct, LayerHessian
from hessmap.errors import require
from hessmap.measurement.top_eigenpairs import Reference, top_eigenpairs
from hessmap.results import EigenpairsMeasurement

BLOCK_SIZE = 8  # wider blocks need more products, narrower ones leave the GEMMs too thin
_CANDIDATES = 4  # Kronecker eigenvectors per wanted one that span the first space
_ROUGH = 1e-3


def layer_eigenpairs(
    hessian: LayerHessian,
    count: int,
    *,
    tolerance: float = 1e-8,
    relative_to: Reference = "norm",
    block_size: int | None = None,
    seed: int = 0,
) -> EigenpairsMeasurement:
    """The largest eigenpairs of a layer Hessian, by ``top_eigenpairs`` from a Rayleigh-Ritz step.

    The step takes the eigenvectors u_i (x) v_j of E[M] (x) E[x x^T] that hold its ``4 * count`` largest eigenvalues,
    finds the best vectors among their combinations (products there cost a fraction of the true ones), and mixes them
    into the first block.
    """
    samples, size = hessian.num_samples, hessian.size
    require(1 <= count <= size, f"count must lie between 1 and the size {size} of the layer", f"got {count}")
    remedy = "Use more samples or fewer eigenpairs"
    must = "top eigenpairs of a layer need at least as many samples as eigenpairs"
    require(count <= samples, must, f"there are {samples} samples and count is {count}", remedy)
    width = min(size, block_size or BLOCK_SIZE)
    start = kronecker_start(hessian, hessian.kronecker_approximation(), count, width, seed)
    return top_eigenpairs(
        hessian, count, tolerance=tolerance, relative_to=relative_to, start=start, block_size=width, seed=seed
    )


def kronecker_start(hessian: LayerHessian, product: KroneckerProduct, count: int, width: int, seed: int = 0) -> Tensor:
    """Random mixtures of the Rayleigh-Ritz vectors of the layer Hessian in the leading Kronecker eigenvectors."""
    pairs = product.leading(min(product.size, _CANDIDATES * count))
    outputs = product.output_eigenpairs[1][:, : int(pairs.output_index.max()) + 1]
    inputs = product.input_eigenpairs[1][:, : int(pairs.input_index.max()) + 1]
    small = hessian.compressed(outputs, inputs)
    wanted = min(count, small.size)
    found = top_eigenpairs(small, wanted, tolerance=_ROUGH, block_size=min(small.size, width), seed=seed)
    assert found.eigenvectors is not None
    generator = torch.Generator().manual_seed(seed)
    mixture = torch.randn(wanted, width, generator=generator, dtype=torch.float64)
    mixed = (torch.from_numpy(found.eigenvectors) @ mixture).reshape(outputs.shape[1], inputs.shape[1], width)
    return torch.einsum("ir,rqk,aq->iak", outputs, mixed, inputs).reshape(hessian.size, width)
