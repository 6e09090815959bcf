"""Influence of training samples on queries: g_query^T (K + damping I)^-1 g_sample, with any curvature K.

Removing sample n from the weighted sum of losses moves the minimiser by ``weight_n (H - weight_n H_n)^-1 g_n`` in one
Newton step, H_n = J_n^T A_n J_n being the sample's own curvature. Leaving H_n out gives the usual influence function;
keeping it multiplies the residual by ``(1 - h_n)^-1``, h_n = weight_n A_n J_n H^-1 J_n^T (the leverage, a matrix over
the outputs), which is exact for linear models with a squared loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hessmap.applications.curvatures import (
    Curvature,
    chosen_curvature,
    chosen_damping,
    curvature_name,
    damped_solve,
    total_damping,
)
from hessmap.errors import InvalidInput, checked_count, checked_number, require, require_name, sentence
from hessmap.hessians import jacobian_rows, output_jacobian, sample_gradients
from hessmap.linalg import full_precision, require_memory, rows_that_fit, to_host
from hessmap.problem import Problem, num_rows, require_samples
from hessmap.records import Provenance, Record

Floats = NDArray[np.float64]
Correction = Literal["leverage"]
Measure = Literal["loss", "output"]

_COPIES = 4  # of the Jacobian of a batch that are held at once
_PASS = 4096  # samples of a pass of a training
_NEWTON_STEPS = 20
_LEAST = 1e-10  # of 1 - h: below it the sample determines its own prediction


@dataclass(frozen=True, eq=False, repr=False)
class InfluenceScores(Record):
    """Influence of training samples on queries.

    Attributes:
        scores: g_query^T (K + damping I)^-1 g_sample, shape (queries, samples). Positive: training on the sample lowers
            the query's loss, and removing it raises that.
        weights: Weight of every training sample in the mean.
        self_influence: The score of every training sample on itself; None unless it was asked for.
        leverages: Trace of the leverage of every training sample, the number of parameters that it determines; None
            without ``correction="leverage"``.
        curvature: Which curvature was inverted.
        damping: What was added to its eigenvalues, the penalty included.
        correction: "leverage", or None for the plain influence function.
        measure: "loss" or "output": what of a query the scores are of.
        provenance: Where the numbers come from.
    """

    scores: Floats
    weights: Floats
    self_influence: Floats | None
    leverages: Floats | None
    curvature: str
    damping: float
    correction: str | None
    measure: str
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = ("scores", "curvature", "damping", "correction", "measure")

    @property
    def removal_effects(self) -> Floats:
        """Predicted change of every query when one sample is removed, shape (queries, samples)."""
        found: Floats = self.scores * self.weights
        return found

    def top(self, count: int = 5, *, helpful: bool = True) -> NDArray[np.int64]:
        """The most influential training samples of every query.

        Args:
            count: Number of samples.
            helpful: Whether those with the largest scores are returned, or those with the smallest (harmful ones).

        Returns:
            Indices of shape (queries, count), the most influential first.
        """
        chosen = checked_count("count", count, 1)
        size = self.scores.shape[1]
        require(chosen <= size, f"count must be between 1 and {size}", f"got {chosen}")
        order: NDArray[np.int64] = np.argsort(-self.scores if helpful else self.scores, axis=1, kind="stable")
        return order[:, :chosen]

    def predicted_effects(self, removed: Sequence[Sequence[int]]) -> Floats:
        """Predicted change of every query when groups of samples are removed.

        Args:
            removed: Groups of indices of training samples.

        Returns:
            Shape (groups, queries): sums over the group, which neglect how its samples act together.
        """
        return np.stack([self.removal_effects[:, list(group)].sum(1) for group in removed])


@dataclass(frozen=True, eq=False, repr=False)
class RetrainingEffects(Record):
    """What removing groups of training samples did to queries, by training again.

    Attributes:
        effects: Change of every query, shape (groups, queries).
        gradient_norms: Norm of the gradient at the end of every training; the first is that with all samples.
        tolerance: What these had to reach.
        converged: Whether every training reached it.
        measure: "loss" or "output".
    """

    effects: Floats
    gradient_norms: Floats
    tolerance: float
    converged: bool
    measure: str
    summary_fields: ClassVar[tuple[str, ...]] = ("effects", "gradient_norms", "tolerance", "converged")


@dataclass(frozen=True, eq=False, repr=False)
class DatamodellingScore(Record):
    """Rank correlation of predicted and measured effects over groups of samples.

    Attributes:
        correlations: Spearman correlation of every query.
        value: Their mean.
        standard_error: Standard error of the mean over the queries.
        num_groups: Number of groups.
    """

    correlations: Floats
    value: float
    standard_error: float
    num_groups: int
    summary_fields: ClassVar[tuple[str, ...]] = ("value", "standard_error", "num_groups")


@torch.inference_mode(False)
def influence(
    problem: Problem,
    queries: Problem,
    *,
    curvature: str | Curvature = "ekfac",
    damping: float | None = None,
    correction: Correction | None = None,
    self_influence: bool = False,
    measure: Measure = "loss",
) -> InfluenceScores:
    """Score how training samples influence the loss of queries.

    Args:
        problem: Trained model, loss and training data.
        queries: The same model and parameters with the data of the queries.
        curvature: A kind of ``kronecker_curvature`` ("kfac", "ekfac", "best", "diagonal", "block", "full"), such a
            curvature, or any operator over the parameters: ``hm.ggn(problem)`` is the exact Gauss-Newton matrix, solved
            with by Krylov iterations. Defaults to "ekfac".
        damping: Added to every eigenvalue, beside the penalty 2 l2 of the problem. Defaults to a tenth of the mean
            eigenvalue, or to 0 where the problem has a penalty.
        correction: "leverage" takes the whole Newton step of the problem without the sample, 1 / (1 - h_n) for one
            output. Default: none, the influence function.
        self_influence: Whether to compute the score of every training sample on itself.
        measure: "loss" (default) or "output", for models with one output.

    Returns:
        InfluenceScores: ``scores``, ``removal_effects``, ``top(k)``, ``predicted_effects(groups)``.

    Raises:
        InvalidInput: If the queries have other parameters than the problem, or an argument cannot be used.

    Notes:
        Removal leaves the weights of the other samples and the penalty as they are. Koh & Liang 2017 (influence
        functions); Grosse et al. 2023 (EK-FAC); Beirami et al. 2017, Pregibon 1981 (one Newton step).

    Example:
        >>> import hessmap as hm
        >>> inputs, labels = hm.datasets.digits(num_samples=80)
        >>> model = hm.FullyConnected((64, 8, 10), activation="relu").build(seed=0)
        >>> training = hm.Problem(model, "cross_entropy", inputs[:60], labels[:60])
        >>> queries = hm.Problem(model, "cross_entropy", inputs[60:], labels[60:])
        >>> found = influence(training, queries, damping=0.01)
        >>> found.scores.shape, found.top(3).shape
        ((20, 60), (20, 3))
    """
    _check_problems(problem, queries, measure)
    require(correction in (None, *get_args(Correction)), "correction must be None or 'leverage'", f"got {correction!r}")
    chosen = chosen_curvature(problem, curvature)
    own_damping = chosen_damping(problem, chosen, damping)
    total = total_damping(problem, chosen, own_damping)
    wanted = _query_rows(queries, measure)
    solved = damped_solve(chosen, wanted.T.contiguous(), total)
    if correction is None:
        scores = sample_gradients(problem) @ solved
        own = _self_scores(problem, chosen, total) if self_influence else None
        leverages = None
    else:
        scores, leverages, own = _corrected(problem, chosen, total, solved)
    return InfluenceScores(
        scores=_array(scores.T),
        weights=_array(problem.weights),
        self_influence=_array(own) if self_influence and own is not None else None,
        leverages=None if leverages is None else _array(leverages),
        curvature=curvature_name(chosen),
        damping=total,
        correction=correction,
        measure=measure,
        provenance=problem.provenance,
    )


@torch.inference_mode(False)
def retraining_effects(
    problem: Problem,
    queries: Problem,
    removed: Sequence[int | Sequence[int]],
    *,
    damping: float = 0.0,
    tolerance: float = 1e-8,
    max_steps: int = 500,
    measure: Measure = "loss",
) -> RetrainingEffects:
    """Remove training samples, train again from the same weights, and measure what changed: the check of influence.

    Args:
        problem: Trained model, loss and training data; small enough for Newton steps on all samples.
        queries: The same model and parameters with the data of the queries.
        removed: Indices of training samples, or groups of indices, each of which is removed by itself.
        damping: Coefficient of ``damping / 2 |parameters - trained parameters|^2``, which keeps a network near its
            weights as the damping of influence does. Defaults to 0.
        tolerance: Norm of the gradient at which a training ends. Defaults to 1e-8.
        max_steps: Most steps of L-BFGS; Newton steps follow.
        measure: "loss" (default) or "output", for models with one output.

    Returns:
        RetrainingEffects: changes against a training with all samples, and whether all trainings converged.

    Raises:
        InvalidInput: If an index is not that of a sample, or the problems do not fit each other.

    Notes:
        The weights of the other samples and the penalty stay as they are, as in ``influence``. Minima of networks are
        not unique: the result is that of the minimum which is reached from the trained weights.

    Example:
        >>> import hessmap as hm
        >>> x = torch.tensor([[1.0], [2.0], [3.0]])
        >>> training = hm.Problem(torch.nn.Linear(1, 1, bias=False), "squared", x, 2 * x + torch.eye(3)[:, :1])
        >>> found = retraining_effects(training, training, [0, 1])
        >>> found.effects.shape, found.converged
        ((2, 3), True)
    """
    _check_problems(problem, queries, measure)
    strength = checked_number("damping", damping)
    groups = [[group] if isinstance(group, int | np.integer) else [int(one) for one in group] for group in removed]
    for group in groups:
        for index in group:
            must = f"removed samples must be between 0 and {problem.num_samples - 1}"
            require(0 <= index < problem.num_samples, must, f"got {index}")
    weights = problem.weights
    start, norm = _Training(problem, weights, strength).minimum(problem.parameters, tolerance, max_steps)
    before, norms, effects = _query_values(queries, start, measure), [norm], []
    for group in groups:
        without = weights.clone()
        without[group] = 0.0
        found, norm = _Training(problem, without, strength).minimum(start, tolerance, max_steps)
        norms.append(norm)
        effects.append(_query_values(queries, found, measure) - before)
    return RetrainingEffects(
        effects=_array(torch.stack(effects)),
        gradient_norms=np.array(norms),
        tolerance=tolerance,
        converged=max(norms) <= tolerance,
        measure=measure,
    )


def linear_datamodelling_score(
    found: InfluenceScores, removed: Sequence[Sequence[int]], measured: RetrainingEffects | Floats
) -> DatamodellingScore:
    """Correlate predicted with measured effects of removing groups of samples (Park et al. 2023).

    Args:
        found: Influence scores.
        removed: Groups of training samples.
        measured: What removing them did, shape (groups, queries).

    Returns:
        DatamodellingScore: Spearman correlation over the groups, averaged over the queries.

    Raises:
        InvalidInput: If there are fewer than three groups, or the shapes do not fit.

    Example:
        >>> scores = InfluenceScores(np.array([[1.0, 2.0, 3.0]]), np.ones(3), None, None, "full", 0.1, None, "loss")
        >>> round(linear_datamodelling_score(scores, [[0], [1], [2]], np.array([[0.5], [1.0], [1.5]])).value, 12)
        1.0
    """
    effects = measured.effects if isinstance(measured, RetrainingEffects) else np.asarray(measured, dtype=np.float64)
    predicted = found.predicted_effects(removed)
    require(len(predicted) > 2, "a rank correlation needs at least three groups", f"got {len(predicted)}")
    must = "measured effects must have the shape (groups, queries)"
    require(effects.shape == predicted.shape, must, f"got {effects.shape} for {predicted.shape}")
    correlations = np.array([_rank_correlation(*pair) for pair in zip(predicted.T, effects.T, strict=True)])
    spread = float(correlations.std(ddof=1) / np.sqrt(len(correlations))) if len(correlations) > 1 else 0.0
    return DatamodellingScore(correlations, float(correlations.mean()), spread, len(predicted))


def _rank_correlation(one: Floats, other: Floats) -> float:
    from scipy.stats import rankdata  # slow to load

    left, right = (rankdata(values) - (len(values) + 1) / 2 for values in (one, other))
    size = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / size if size else 0.0


def _check_problems(problem: Problem, queries: Problem, measure: str) -> None:
    for one in (problem, queries):
        require_samples(one, "influence")
    must = "queries must have the model and the parameters of the problem"
    same = queries.layout == problem.layout
    same = same and torch.equal(queries.parameters.to(problem.parameters), problem.parameters)
    require(same, must, "names, shapes or values of parameters differ", "Build both with the same model")
    require_name("measure", measure, get_args(Measure))
    must = "measure='output' needs a model with one output"
    require(measure == "loss" or queries.output_dim == 1, must, f"it has {queries.output_dim}", "Use measure='loss'")


def _query_rows(queries: Problem, measure: str) -> Tensor:
    """The gradient of every query, (queries, parameters)."""
    return sample_gradients(queries).to_dense() if measure == "loss" else output_jacobian(queries)[:, 0]


def _self_scores(problem: Problem, curvature: Curvature, damping: float) -> Tensor:
    groups = sample_gradients(problem).rows(problem.working_bytes / 2)
    return torch.cat([(rows.T * damped_solve(curvature, rows.T.contiguous(), damping)).sum(0) for rows in groups])


def _corrected(problem: Problem, curvature: Curvature, damping: float, solved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores with the residual of each sample replaced by (1 - h)^-1 residual; leverages; scores on itself."""
    scores, leverages, own = [], [], []
    for rows, residuals, curvatures, weights in _linearised(problem):
        count, outputs, size = rows.shape
        inverse = damped_solve(curvature, rows.reshape(-1, size).T.contiguous(), damping)
        kernel = rows @ inverse.reshape(size, count, outputs).permute(1, 0, 2)  # J H^-1 J^T of each sample
        leverage = weights[:, None, None] * (curvatures @ kernel)
        matrix = torch.eye(outputs, dtype=rows.dtype, device=rows.device) - leverage
        smallest = float(torch.linalg.svdvals(matrix).min())
        if smallest < _LEAST:
            must, got = (
                "1 - h must not be zero for any sample",
                f"it is {smallest:.1g} for a sample that determines its own fit",
            )
            raise InvalidInput(sentence(must, got, "Increase damping, or leave correction=None"))
        corrected = torch.linalg.solve(matrix, residuals[:, :, None])[..., 0]
        scores.append(torch.einsum("nc,ncq->nq", corrected, rows @ solved))
        own.append(torch.einsum("nc,ncd,nd->n", residuals, kernel, corrected))
        leverages.append(leverage.diagonal(dim1=1, dim2=2).sum(1))
    return torch.cat(scores), torch.cat(leverages), torch.cat(own)


def _linearised(problem: Problem) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Jacobian, residual and output Hessian of single samples, and their weights, batch by batch."""
    outputs_dim, size = problem.output_dim, problem.num_parameters
    each = _COPIES * problem.dtype.itemsize * outputs_dim * size
    require_memory("the Jacobian of one sample", each, "Use correction=None")
    units = torch.eye(outputs_dim, dtype=problem.dtype, device=problem.device)
    for inputs, targets, weights in problem.ordered_batches(
        rows_that_fit(problem.working_bytes, each, problem.num_samples)
    ):
        with torch.no_grad():
            outputs = problem.forward(problem.named, inputs).detach()
        residuals = problem.loss.gradient(outputs, targets).detach().to(outputs.dtype)
        curvatures = problem.loss.hessian(outputs, targets).detach().to(outputs.dtype)
        rows = jacobian_rows(problem, inputs, units.expand(num_rows(inputs), -1, -1))
        yield rows, residuals, curvatures, weights


class _Training:
    """The weighted losses, the penalty and the damping as a function of the flat parameters."""

    def __init__(self, problem: Problem, weights: Tensor, damping: float) -> None:
        self.problem = problem
        self.weights = weights
        self.damping = damping

    def value(self, flat: Tensor) -> Tensor:
        problem, first = self.problem, 0
        total = problem.l2 * flat.square().sum() + self.damping / 2 * (flat - problem.parameters).square().sum()
        for inputs, targets, _ in problem.ordered_batches(_PASS):
            own = self.weights[first : first + len(targets)]
            total = total + problem.loss.risk(problem.function(inputs)(flat), targets, own)
            first += len(targets)
        return total

    def minimum(self, start: Tensor, tolerance: float, max_steps: int) -> tuple[Tensor, float]:
        """By L-BFGS, whose line search ends where function values are rounding, then by Newton steps, which compare
        gradients; and the norm of the gradient there."""
        flat = start.clone().requires_grad_()
        settings: dict[str, Any] = {"tolerance_grad": tolerance / max(1, flat.numel()), "tolerance_change": 1e-9}
        optimiser = torch.optim.LBFGS([flat], max_iter=max_steps, line_search_fn="strong_wolfe", **settings)

        def closure() -> Tensor:
            flat.grad = None
            value = self.value(flat)
            value.backward()  # type: ignore[no-untyped-call]
            return value

        with torch.enable_grad(), full_precision(start.device):
            optimiser.step(closure)  # type: ignore[no-untyped-call]
            return self._refined(flat.detach(), tolerance)

    def _refined(self, flat: Tensor, tolerance: float) -> tuple[Tensor, float]:
        gradient, product = self._derivatives(flat)
        for _ in range(_NEWTON_STEPS):
            norm = float(gradient.norm())
            if norm <= tolerance:
                break
            step = _conjugate_gradients(product, gradient)
            for halvings in range(8):
                moved = flat - step / 2**halvings
                new_gradient, new_product = self._derivatives(moved)
                if float(new_gradient.norm()) < norm:
                    break
            else:
                break  # no shorter step has a smaller gradient
            flat, gradient, product = moved, new_gradient, new_product
        return flat, float(gradient.norm())

    def _derivatives(self, flat: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        leaf = flat.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(self.value(leaf), leaf, create_graph=True)

        def product(vector: Tensor) -> Tensor:
            return torch.autograd.grad(gradient, leaf, vector, retain_graph=True)[0]

        return gradient.detach(), product


def _conjugate_gradients(product: Callable[[Tensor], Tensor], right: Tensor) -> Tensor:
    """H^-1 b to a relative residual of 1e-6; ends before the first direction of negative curvature."""
    solution, residual = torch.zeros_like(right), right.clone()
    direction, size = residual.clone(), float(residual @ residual)
    for step in range(2 * len(right)):
        image = product(direction)
        curvature = float(direction @ image)
        if curvature <= 0:
            return solution if step else right
        solution = solution + size / curvature * direction
        residual = residual - size / curvature * image
        before, size = size, float(residual @ residual)
        if size <= 1e-12 * float(right @ right):
            break
        direction = residual + size / before * direction
    return solution


@torch.no_grad()
def _query_values(queries: Problem, parameters: Tensor, measure: str) -> Tensor:
    found = []
    for inputs, targets, _ in queries.ordered_batches():
        outputs = queries.function(inputs)(parameters)
        found.append(queries.loss.value(outputs, targets) if measure == "loss" else outputs[:, 0])
    return torch.cat(found)


def _array(values: Any) -> Floats:
    found: Floats = to_host(values.detach()).numpy()
    return found
