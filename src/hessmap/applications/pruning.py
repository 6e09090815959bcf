"""Which weights can be removed, and which part of a weight its curvature holds.

Optimal brain damage goes by the diagonal, optimal brain surgeon by the blocks of layers: removing weight i of a minimum
costs h_ii w_i^2 / 2 if the others stay (OBD), and w_i^2 / (2 [B^-1]_ii) if the others of its block B adapt (OBS). For a
set S of weights of a layer, those that stay (R) adapt by B_RR^-1 B_RS w_S.

A projection splits a weight in the eigenbasis of its curvature. With the Kronecker factors G = U diag(g) U^T of the
outputs and A = V diag(a) V^T of the inputs, the component of W in u_i v_j^T is (U^T W V)_ij and its curvature g_i a_j.
The components with the largest products are kept until these sum to the wanted share of all. Merullo et al. 2025 find
that what language models recite is mostly in the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from hessmap.applications.curvatures import HessianPart, SecondOrderModel, hessian_of
from hessmap.errors import (
    InvalidInput,
    checked_number,
    list_of,
    require,
    require_name,
    sentence,
    short_text,
    unknown_name,
)
from hessmap.hessians import Hessian
from hessmap.layers import CurvatureBlock, KroneckerCurvature, kronecker_curvature
from hessmap.linalg import require_memory
from hessmap.measurement import diagonal_estimate
from hessmap.problem import Problem, require_problem
from hessmap.records import CurvatureProjection, LayerPruning, ProjectedWeight, PruningPlan

PruningMethod = Literal["obd", "obs"]
Scope = Literal["global", "layer"]


def pruning_plan(
    problem: Problem,
    sparsity: float = 0.5,
    method: PruningMethod = "obd",
    *,
    scope: Scope = "global",
    layers: Sequence[str] | None = None,
    part: HessianPart | None = None,
    damping: float = 1e-3,
    measure: bool = True,
    seed: int = 0,
) -> PruningPlan:
    """Score every weight by the predicted cost of removing it, and remove the cheapest.

    Args:
        problem: Model, loss (or objective) and data.
        sparsity: Share of the weights to remove, between 0 and 1. Defaults to 0.5.
        method: "obd" (default): h_ii w_i^2 / 2, the others stay. "obs": w_i^2 / (2 [B^-1]_ii) with the dense block B of
            the weight's layer, and the weights that stay compensate.
        scope: "global" (default): the lowest scores of all layers. "layer": the same share of each layer.
        layers: Names of the weights to prune, as in ``problem.layout``. Default: all parameters with two or more axes.
        part: "outer_product" (Gauss-Newton, never negative) or "loss". Default: "outer_product", except for an
            objective, which has "loss" alone.
        damping: For "obs": number added to the eigenvalues of each block, relative to their mean. Defaults to 1e-3.
        measure: Also measure the costs, by one pass over the data per layer. Defaults to True.
        seed: Seed of the probes, where the diagonal has to be estimated. Defaults to 0.

    Returns:
        PruningPlan: ``scores``, ``removed``, the ``parameters`` after pruning, predicted beside measured costs of every
        layer and of the whole.

    Raises:
        InvalidInput: If an argument is not valid, or a damped block is not positive definite.
        TooLarge: If the dense blocks of "obs" do not fit in memory.

    Notes:
        Scores assume a minimum: they have no gradient term. The predicted costs contain it. LeCun, Denker & Solla 1990;
        Hassibi & Stork 1993.

    Example:
        >>> import hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=60)
        >>> model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
        >>> plan = pruning_plan(hm.Problem(model, "cross_entropy", inputs, labels), sparsity=0.25)
        >>> int(plan.removed.sum()), len(plan.scores)
        (148, 592)
    """
    require_problem(problem)
    share = checked_sparsity(sparsity)
    require_name("method", method, get_args(PruningMethod))
    require_name("scope", scope, get_args(Scope))
    chosen_part = _scoring_part(problem) if part is None else part
    require_name("part", chosen_part, get_args(HessianPart))
    relative = checked_number("damping", damping)
    require(relative > 0, "damping must be positive", f"got {relative:g}")
    names = compressed_names(problem, layers)
    scored = hessian_of(problem, chosen_part)
    error: float | None = None
    blocks: dict[str, _Block] = {}
    if method == "obd":
        diagonal, error = curvature_diagonal(scored, seed)
        scores = {name: _obd_scores(problem, diagonal, name) for name in names}
    else:
        blocks = _damped_blocks(scored, names, relative)
        scores = {name: block.scores for name, block in blocks.items()}
    removed = _lowest(scores, share, scope)
    steps = {name: _removal(problem, name, removed[name], blocks.get(name)) for name in names}
    model = SecondOrderModel(problem, "loss")
    whole = torch.stack(list(steps.values())).sum(0)
    found = _priced(model, steps, scores, removed, measure)
    (joint,) = model.terms([whole])
    return PruningPlan(
        method=method,
        sparsity=share,
        scope=scope,
        damping=relative if method == "obs" else None,
        layers=tuple(found.values()),
        scores=_host(torch.cat(list(scores.values()))),
        removed=torch.cat(list(removed.values())).cpu().numpy(),
        parameters=_host(problem.parameters + whole),
        risk=model.risk,
        gradient_norm=float(model.gradient.norm()),
        joint_increase=sum(joint),
        measured_increase=model.measured(whole) if measure else None,
        diagonal_error=error,
        num_samples=problem.num_samples,
        provenance=problem.provenance,
    )


def compressed_names(problem: Problem, layers: Sequence[str] | None) -> tuple[str, ...]:
    """The weights to compress: those named, in the order of the layout, or all with two or more axes."""
    if layers is None:
        names = tuple(name for name, shape in problem.layout.shapes if len(shape) > 1)
        must = "the problem must have a parameter with two or more axes"
        require(bool(names), must, f"it has {', '.join(problem.layout.names[:4])}", "Pass layers=")
        return names
    wanted = list_of("layers", [layers] if isinstance(layers, str) else layers)
    for name in wanted:
        if not isinstance(name, str) or name not in problem.layout.names:
            raise unknown_name("weight", name, problem.layout.names)
    require(bool(wanted), "layers must name at least one weight", "got none")
    return problem.layout.restricted_to(wanted).names


def checked_sparsity(sparsity: float) -> float:
    """A share of weights, above 0 and below 1."""
    share = checked_number("sparsity", sparsity)
    require(0 < share < 1, "sparsity must be above 0 and below 1", f"got {short_text(sparsity)}")
    return share


def curvature_diagonal(hessian: Hessian, seed: int) -> tuple[Tensor, float]:
    """The diagonal on the problem's device, and its relative standard error: 0 where the structure determines it."""
    estimate = diagonal_estimate(hessian, seed=seed)
    error = 0.0 if estimate.method == "exact" else estimate.relative_error
    return torch.as_tensor(estimate.values).to(hessian.problem.parameters), error


def _scoring_part(problem: Problem) -> HessianPart:
    """The Gauss-Newton part, whose scores are never negative, where the problem has one."""
    return "loss" if problem.is_objective else "outer_product"


def obd_layers(
    model: SecondOrderModel, names: Sequence[str], sparsity: float, measure: bool, seed: int
) -> tuple[dict[str, LayerPruning], float]:
    """The cost of removing the same share of each layer by OBD scores, and the relative error of the diagonal."""
    diagonal, error = curvature_diagonal(hessian_of(model.problem, _scoring_part(model.problem)), seed)
    scores = {name: _obd_scores(model.problem, diagonal, name) for name in names}
    removed = _lowest(scores, sparsity, "layer")
    steps = {name: _removal(model.problem, name, removed[name], None) for name in names}
    return _priced(model, steps, scores, removed, measure), error


def _obd_scores(problem: Problem, diagonal: Tensor, name: str) -> Tensor:
    place = problem.layout[name]
    return diagonal[place] * problem.parameters[place].square() / 2


def _lowest(scores: Mapping[str, Tensor], share: float, scope: Scope) -> dict[str, Tensor]:
    """Which weights have the lowest scores, in each layer or in all; of equal scores the first."""
    if scope == "layer":
        return {name: _is_lowest(own, share) for name, own in scores.items()}
    together = _is_lowest(torch.cat(list(scores.values())), share)
    return dict(zip(scores, torch.split(together, [len(own) for own in scores.values()]), strict=True))


def _is_lowest(values: Tensor, share: float) -> Tensor:
    chosen = torch.zeros_like(values, dtype=torch.bool)
    chosen[values.argsort(stable=True)[: round(share * len(values))]] = True
    return chosen


def _removal(problem: Problem, name: str, removed: Tensor, block: _Block | None) -> Tensor:
    """The change of all parameters by removing some weights of a layer, which the block's others compensate."""
    place = problem.layout[name]
    weights = problem.parameters[place]
    step = torch.zeros_like(problem.parameters)
    own = torch.where(removed, -weights, torch.zeros_like(weights))
    if block is not None and bool(removed.any()) and not bool(removed.all()):
        own[~removed] = block.compensation(weights, removed)
    step[place] = own
    return step


def _priced(
    model: SecondOrderModel,
    steps: Mapping[str, Tensor],
    scores: Mapping[str, Tensor],
    removed: Mapping[str, Tensor],
    measure: bool,
) -> dict[str, LayerPruning]:
    terms = model.terms(steps.values())
    return {
        name: LayerPruning(
            name,
            len(removed[name]),
            int(removed[name].sum()),
            *own,
            float(scores[name][removed[name]].sum()),
            model.measured(steps[name]) if measure else None,
        )
        for name, own in zip(steps, terms, strict=True)
    }


@dataclass(frozen=True, eq=False)
class _Block:
    """A layer's damped block B + damping I, and the scores w_i^2 / (2 [(B + damping I)^-1]_ii)."""

    matrix: Tensor
    scores: Tensor

    def compensation(self, weights: Tensor, removed: Tensor) -> Tensor:
        """The change of the weights that stay which minimises the quadratic model: B_RR^-1 B_RS w_S."""
        kept = self.matrix[~removed]
        found: Tensor = torch.linalg.solve(kept[:, ~removed], kept[:, removed] @ weights[removed])
        return found


def _damped_blocks(hessian: Hessian, names: Sequence[str], relative: float) -> dict[str, _Block]:
    problem = hessian.problem
    places = {name: problem.layout[name] for name in names}
    most = max(place.stop - place.start for place in places.values())
    held = sum((place.stop - place.start) ** 2 for place in places.values())
    needed = problem.dtype.itemsize * (held + 2 * most**2)
    require_memory("the dense blocks of all layers", needed, 'Use method="obd", or fewer layers (layers=)')
    found = {}
    for name, place in places.items():
        entries = torch.arange(place.start, place.stop)
        matrix = hessian.dense_block(entries, entries).to(problem.parameters)
        matrix = (matrix + matrix.T) / 2
        mean = float(matrix.diagonal().abs().mean())
        matrix.diagonal().add_(relative * mean if mean > 0 else relative)
        root, failed = torch.linalg.cholesky_ex(matrix)
        if int(failed):
            must = f"the damped block of {name} must be positive definite"
            remedy = 'Increase damping, or use part="outer_product"'
            raise InvalidInput(sentence(must, f"it is not with damping={relative:g}", remedy))
        inverse = torch.cholesky_inverse(root).diagonal()
        found[name] = _Block(matrix, problem.parameters[place].square() / (2 * inverse))
    return found


def _host(values: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    found: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = values.detach().cpu().double().numpy()
    return found


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
            return whole.diagonal_of(problem.layout, tuple(names))
    layers = [name.rpartition(".")[0] or name for block in curvature.blocks for name in block.names]
    raise unknown_name("layer", layer, dict.fromkeys(layers))


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
