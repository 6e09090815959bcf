"""A weight in the eigenbasis of its curvature, split into the part of most curvature and the rest.

With the Kronecker factors G = U diag(g) U^T of the outputs and A = V diag(a) V^T of the inputs, the component of W in
u_i v_j^T is (U^T W V)_ij and its curvature g_i a_j. The components with the largest products are kept until these sum
to the wanted share of all. Merullo et al. 2025 find that what language models recite is mostly in the rest.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import InvalidInput, checked_number, require, require_name, sentence, unknown_name
from hessmap.layers import CurvatureBlock, KroneckerCurvature, kronecker_curvature
from hessmap.problem import Problem, require_problem
from hessmap.records import CurvatureProjection, ProjectedWeight


def curvature_projection(
    problem: Problem,
    layer: str,
    keep: float = 0.8,
    *,
    curvature: Literal["kfac", "ekfac", "best", "diagonal", "block"] | KroneckerCurvature = "kfac",
) -> CurvatureProjection:
    """Split the weights of a layer into the part along directions of high curvature and the rest.

    Args:
        problem: Model, loss and data.
        layer: Name of the layer, as in ``model.named_modules()``, or of its weight.
        keep: Share of the sum of eigenvalues that the kept components have, above 0 and at most 1. Defaults to 0.8.
        curvature: What the eigenbasis is of: "kfac" (default), "ekfac", "best", "diagonal" or "block" (the exact dense
            block), or a curvature of ``kronecker_curvature`` that is used for several layers.

    Returns:
        CurvatureProjection: both parts of every parameter of the layer (a bias belongs to the layer's block), which add
        up to it; eigenvalues and components; the loss with each part alone.

    Raises:
        InvalidInput: If there is no such layer in the curvature, ``keep`` is not valid, or the curvature has a negative
            eigenvalue (``part="loss"``).

    Notes:
        The parts add up to the weights up to the rounding of one subtraction. Components are kept in descending order
        of their eigenvalues until their sum reaches ``keep`` of the whole; equal eigenvalues are taken in the order of
        the block. ``curvature="block"`` is exact and needs memory for the square of the layer's size.

    Example:
        >>> import hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=60)
        >>> model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
        >>> problem = hm.Problem(model, "cross_entropy", inputs, labels)
        >>> found = curvature_projection(problem, "2")
        >>> weight = found.parts[0]
        >>> bool(np.allclose(weight.kept + weight.rest, model[2].weight.detach().numpy(), atol=1e-15))
        True
    """
    require_problem(problem)
    share = checked_number("keep", keep)
    require(0 < share <= 1, "keep must be above 0 and at most 1", f"got {share:g}")
    whole = _checked_curvature(problem, curvature)
    block = _block_of(whole, problem, layer)
    lowest = float(block.values.min())
    if lowest < -1e-10 * float(block.values.abs().max()):
        must, remedy = "the curvature must not have negative eigenvalues", 'Use part="outer_product"'
        raise InvalidInput(sentence(must, f"the block of '{layer}' has {lowest:.3g}", remedy))
    is_kept, order = _largest(block.values, share)
    weights = problem.parameters[block.entries]
    kept = block.apply(lambda values: is_kept.to(values.dtype), weights[:, None])[:, 0]
    rest = weights - kept
    values = block.values.flatten().clamp_min(0)
    components = _components(block, weights)
    risks = [_risk_with(problem, block, part) for part in (kept, rest)]
    size = float(weights.square().sum())
    return CurvatureProjection(
        layer=layer,
        curvature=whole.kind,
        form=block.form,
        keep=share,
        kept_mass=float(values[is_kept.flatten()].sum() / values.sum()) if float(values.sum()) > 0 else 1.0,
        num_components=len(values),
        num_kept=int(is_kept.sum()),
        kept_norm_share=float(kept.square().sum()) / size if size else 0.0,
        eigenvalues=_host(values[order]),
        components=_host(components[order]),
        parts=tuple(_split(problem, block, name, kept, rest) for name in block.names),
        risk=problem.risk(),
        risk_of_kept=risks[0],
        risk_of_rest=risks[1],
        num_samples=problem.num_samples,
        provenance=problem.provenance,
    )


def _checked_curvature(problem: Problem, curvature: object) -> KroneckerCurvature:
    if not isinstance(curvature, KroneckerCurvature):
        require_name("curvature", curvature, ("kfac", "ekfac", "best", "diagonal", "block"))
        return kronecker_curvature(problem, curvature)  # type: ignore[arg-type]
    must = "the curvature must be that of the problem's parameters"
    require(curvature.layout == problem.layout, must, "their names or shapes differ")
    return curvature


def _block_of(curvature: KroneckerCurvature, problem: Problem, layer: object) -> CurvatureBlock:
    for block in curvature.blocks:
        owners = {name.rpartition(".")[0] for name in block.names}
        if isinstance(layer, str) and (layer in block.names or owners == {layer}):
            return block
    if isinstance(layer, str) and curvature.kind == "diagonal":
        names = [name for name in problem.layout.names if layer in (name, name.rpartition(".")[0])]
        if names:
            (whole,) = curvature.blocks
            return _part_of(whole, problem, tuple(names))
    layers = [name.rpartition(".")[0] or name for block in curvature.blocks for name in block.names]
    raise unknown_name("layer", layer, dict.fromkeys(layers))


def _part_of(block: CurvatureBlock, problem: Problem, names: tuple[str, ...]) -> CurvatureBlock:
    """The block of some parameters of a diagonal."""
    places = [torch.arange(problem.layout[name].start, problem.layout[name].stop) for name in names]
    entries = torch.cat(places).to(block.entries.device)
    whole = torch.zeros(problem.num_parameters, dtype=block.values.dtype, device=block.values.device)
    whole[block.entries] = block.values
    return CurvatureBlock(names, block.form, entries, whole[entries], ())


def _largest(values: Tensor, share: float) -> tuple[Tensor, Tensor]:
    """Which eigenvalues are the fewest that sum to a share of all, and the descending order of all."""
    flat = values.flatten().clamp_min(0)
    order = flat.argsort(descending=True, stable=True)
    sums = flat[order].cumsum(0)
    count = int((sums < share * sums[-1] * (1 - 1e-14)).sum()) + 1
    chosen = torch.zeros_like(flat, dtype=torch.bool)
    chosen[order[:count]] = True
    return chosen.reshape(values.shape), order


def _components(block: CurvatureBlock, weights: Tensor) -> Tensor:
    """The weights in the block's eigenvectors, in the order of its flat eigenvalues."""
    if not block.bases:
        return weights
    if len(block.bases) == 1:
        return block.bases[0].T @ weights
    left, right = block.bases
    return (left.T @ weights.reshape(block.values.shape) @ right).flatten()


def _risk_with(problem: Problem, block: CurvatureBlock, part: Tensor) -> float:
    parameters = problem.parameters.clone()
    parameters[block.entries] = part
    return problem.risk(parameters)


def _split(problem: Problem, block: CurvatureBlock, name: str, kept: Tensor, rest: Tensor) -> ProjectedWeight:
    place, shape = problem.layout[name], problem.layout.shape(name)
    parts = []
    for part in (kept, rest):
        whole = torch.zeros_like(problem.parameters)
        whole[block.entries] = part
        parts.append(_host(whole[place].reshape(shape)))
    return ProjectedWeight(name, *parts)


def _host(values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = values.detach().cpu().double().numpy()
    return found
