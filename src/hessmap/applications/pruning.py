"""Which weights can be removed: optimal brain damage by the diagonal, optimal brain surgeon by the blocks of layers.

Removing weight i of a minimum costs h_ii w_i^2 / 2 if the others stay (OBD), and w_i^2 / (2 [B^-1]_ii) if the others of
its block B adapt (OBS). For a set S of weights of a layer, those that stay (R) adapt by B_RR^-1 B_RS w_S.
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
from hessmap.linalg import require_memory
from hessmap.measurement import diagonal_estimate
from hessmap.problem import Problem, require_problem
from hessmap.records import LayerPruning, PruningPlan

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
    require_memory("the dense blocks of all layers", needed, 'Use method="obd", or some layers alone (layers=)')
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
