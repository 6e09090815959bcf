"""Top eigenpairs of a layer Hessian, started where its Kronecker factors say they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from hessmap.curvature.layers import CompressedHessian, KroneckerProduct, LayerHessian
from hessmap.errors import require
from hessmap.measurement.matrices import EPS
from hessmap.measurement.top_eigenpairs import eigenpairs_bytes, top_eigenpairs
from hessmap.measurement.wanted_pairs import Reference
from hessmap.results import EigenpairsMeasurement

Bases = tuple[Tensor, Tensor]
BLOCK_SIZE = 8  # wider blocks need more products, narrower ones leave the matrix products too thin
_CANDIDATES = 4  # Kronecker eigenvectors per wanted one that span the first space
_ROUGH = 1e-3
_AT_ONCE = 16
_WORTH_IT = 0.95  # of the size; above it a copy in fewer directions costs more than it saves


def layer_eigenpairs(
    hessian: LayerHessian,
    count: int,
    *,
    tolerance: float = 1e-8,
    relative_to: Reference = "norm",
    block_size: int = BLOCK_SIZE,
    seed: int = 0,
) -> EigenpairsMeasurement:
    """The largest eigenpairs of a layer Hessian, by ``top_eigenpairs`` from a Rayleigh-Ritz step.

    Outputs and inputs that the Hessian never acts on (dead units, inputs that are always zero or tied to others) are
    left out. The step then takes the eigenvectors u_i (x) v_j of E[M] (x) E[x x^T] that hold its ``4 * count`` largest
    eigenvalues, finds the best vectors among their combinations (products there cost a fraction of the true ones), and
    mixes them into the first block. ``residual_check`` is of the whole Hessian; if it were too large, the leaving out
    was wrong and is undone.
    """
    samples, size = hessian.num_samples, hessian.size
    require(1 <= count <= size, f"count must lie between 1 and the size {size} of the layer", f"got {count}")
    remedy = "Use more samples or fewer eigenpairs"
    must = "top eigenpairs of a layer need at least as many samples as eigenpairs"
    require(count <= samples, must, f"there are {samples} samples and count is {count}", remedy)
    bases = _active_directions(hessian)
    found = _among(hessian, bases, count, tolerance, relative_to, block_size, seed)
    if bases is None or found.residual_check <= 3 * count**0.5 * max(tolerance, 1e-13) * found.norm:
        return found
    return _among(hessian, None, count, tolerance, relative_to, block_size, seed)


def layer_eigenpairs_bytes(hessian: LayerHessian, count: int, block_size: int = BLOCK_SIZE) -> int:
    """The memory that ``layer_eigenpairs`` will take beside the Hessian itself (``hessian.plan.held_bytes``)."""
    bases = _active_directions(hessian)
    if bases is None:
        return eigenpairs_bytes(hessian.size, count, block_size)
    size = bases[0].shape[1] * bases[1].shape[1]
    copy = int(hessian.held_bytes * size / hessian.size)
    return copy + eigenpairs_bytes(size, count, block_size)


def _among(
    hessian: LayerHessian,
    bases: Bases | None,
    count: int,
    tolerance: float,
    relative_to: Reference,
    block_size: int,
    seed: int,
) -> EigenpairsMeasurement:
    """Eigenpairs within the directions that are active; with None, in all of them."""
    product = hessian.kronecker_approximation()
    acting: LayerHessian | CompressedHessian = hessian
    if bases is not None and bases[0].shape[1] * bases[1].shape[1] >= count:
        acting = hessian.compressed(*bases)
        product = _seen_along(product, bases)
    width = min(acting.size, block_size)
    start = kronecker_start(acting, product, count, width, seed)
    found = top_eigenpairs(
        acting, count, tolerance=tolerance, relative_to=relative_to, start=start, block_size=width, seed=seed
    )
    return found if acting is hessian or bases is None else _lifted(hessian, found, bases)


def kronecker_start(
    hessian: LayerHessian | CompressedHessian, product: KroneckerProduct, count: int, width: int, seed: int = 0
) -> Tensor:
    """Random mixtures of the Rayleigh-Ritz vectors of the Hessian in the leading eigenvectors of the product."""
    pairs = product.leading(min(product.size, _CANDIDATES * count))
    outputs = product.output_eigenpairs[1][:, : int(pairs.output_index.max()) + 1]
    inputs = product.input_eigenpairs[1][:, : int(pairs.input_index.max()) + 1]
    small = hessian.compressed(outputs, inputs)
    wanted = min(count, small.size)
    found = top_eigenpairs(small, wanted, tolerance=_ROUGH, block_size=min(small.size, width), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    mixture = torch.randn(wanted, width, generator=generator, dtype=torch.float64)
    return _spread(torch.from_numpy(found.eigenvectors) @ mixture, outputs, inputs)


def _active_directions(hessian: LayerHessian) -> Bases | None:
    """Orthonormal columns that span the directions of outputs, and of inputs, that the Hessian acts on at all; None if
    those are nearly all of them."""
    identities = [torch.eye(size, dtype=torch.float64) for size in hessian.weight_shape]
    shares = hessian.contracted_inputs(identities[1]), hessian.contracted_outputs(identities[0])
    outputs, inputs = (_range(share) for share in shares)
    return (outputs, inputs) if outputs.shape[1] * inputs.shape[1] <= _WORTH_IT * hessian.size else None


def _range(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    kept = values.abs() > len(values) * EPS * values.abs().max()
    active: Tensor = vectors[:, kept] if kept.any() else vectors[:, :1]
    return active


def _seen_along(whole: KroneckerProduct, bases: Bases) -> KroneckerProduct:
    outputs, inputs = bases
    return KroneckerProduct(outputs.T @ whole.output_factor @ outputs, inputs.T @ whole.input_factor @ inputs)


def _lifted(hessian: LayerHessian, found: EigenpairsMeasurement, bases: Bases) -> EigenpairsMeasurement:
    """Eigenpairs in the active directions as those of the whole, with one product of the whole as a check."""
    vectors = _spread(torch.from_numpy(found.eigenvectors), *bases)
    signs = np.random.default_rng(found.seed).choice((-1.0, 1.0), size=len(found.eigenvalues))
    values = torch.from_numpy(found.eigenvalues * signs)
    rest = hessian @ (vectors @ torch.from_numpy(signs)) - vectors @ values
    return replace(
        found,
        eigenvectors=vectors.numpy(),
        size=hessian.size,
        residual_check=float(rest.norm()),
        num_products=found.num_products + 1,
        provenance=hessian.provenance,
    )


def _spread(vectors: Tensor, outputs: Tensor, inputs: Tensor) -> Tensor:
    """(U (x) V) y for columns y, a few at a time."""
    spread = torch.empty(vectors.shape[1], len(outputs) * len(inputs), dtype=torch.float64)
    for start in range(0, len(spread), _AT_ONCE):
        matrices = vectors.T[start : start + _AT_ONCE].reshape(-1, outputs.shape[1], inputs.shape[1])
        spread[start : start + _AT_ONCE] = (outputs @ matrices @ inputs.T).flatten(1)
    return spread.T
