"""The curvature that an optimiser's next step meets, and what the step will do to the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.applications.optimiser_step import (
    GradientChoice,
    OptimiserStep,
    PreconditionedHessian,
    Preconditioner,
    StepPreconditioner,
    inner_optimizer,
    optimiser_step,
    step_preconditioner,
)
from hessmap.errors import checked_count, checked_number, checked_seed, require, require_name
from hessmap.hessians import Hessian, loss_hessian
from hessmap.linalg import SymmetricOperator, full_precision
from hessmap.measurement import sharpness
from hessmap.problem import (
    PRODUCTS,
    Batch,
    BatchGraph,
    HeldSamples,
    Problem,
    num_rows,
    require_problem,
    take_rows,
    twice_differentiable,
)
from hessmap.records import LayerTerms, StepQuantity, StepReport

StepName = Literal[
    "sharpness",
    "preconditioned_sharpness",
    "batch_sharpness",
    "gradient_noise_scale",
    "directional_sharpness",
    "layer_terms",
    "measured_change",
    "critical_learning_rate",
]
STEP_QUANTITIES: tuple[StepName, ...] = get_args(StepName)
_BRACKET = 1 / 16  # width of the bracket of the critical learning rate, relative to it
_MOST_PASSES = 40  # evaluations of the loss in search of it
_ROUNDINGS = 8  # roundings of the last digit that a sum over samples may add up to


@torch.inference_mode(False)
@torch.enable_grad()
@twice_differentiable()
def step_report(
    problem: Problem,
    optimizer: Any,
    *,
    model: nn.Module | None = None,
    gradient: GradientChoice = "problem",
    quantities: Sequence[StepName] = STEP_QUANTITIES,
    batch_size: int | None = None,
    num_batches: int = 16,
    preconditioner: Preconditioner | None = None,
    stability_threshold: float | None = None,
    tolerance: float | None = None,
    max_products: int | None = None,
    max_layers: int = 64,
    known_sharpness: StepQuantity | None = None,
    seed: int = 0,
) -> StepReport:
    """Measure the curvature that the optimiser's next step meets, without taking the step.

    Args:
        problem: Model, data and loss at the present weights.
        optimizer: The optimiser that trains the model; any ``torch.optim`` optimiser. Only its state is read.
        model: The model whose parameters the optimiser has. Defaults to the one that the problem was built from.
        gradient: "problem" (default): the step uses the gradient of the problem's risk. "stored": it uses the
            ``.grad`` of the parameters, as ``optimizer.step()`` would now.
        quantities: Which of ``STEP_QUANTITIES`` to measure. Defaults to all; what is left out is None in the report.
        batch_size: Samples of a mini-batch. Defaults to the batches of a loader, and to all samples of tensors.
        num_batches: Number of mini-batches. Defaults to 16.
        preconditioner: Function of the optimiser (a copy that has taken the step) that returns a dictionary from its
            parameters to the diagonal of P, in the parameter's shape, or to a function x -> P^-1/2 x of tensors of that
            shape. Defaults to P as torch applies it in SGD, Adam, AdamW, Adamax, RMSprop, Adagrad and Adafactor.
        stability_threshold: Threshold of an optimiser for which none is derived.
        tolerance: Residual of eigenpairs relative to the norm. Defaults to that of ``sharpness``.
        max_products: Limit on the products of each eigenvalue. Defaults to that of ``sharpness``.
        max_layers: Largest number of layers for which pairs of layers are computed, one product each. Defaults to 64.
        known_sharpness: The sharpness, where it was measured already. Defaults to measuring it.
        seed: Seed of mini-batches and start vectors. Defaults to 0.

    Returns:
        StepReport: sharpness, preconditioned sharpness and its stability threshold, batch sharpness, gradient noise
        scale, directional sharpness with its split over layers, predicted and measured change of the loss, and the
        critical learning rate.

    Raises:
        InvalidInput: If the optimiser does not train the problem's model at these weights.

    Notes:
        P is that of the reported step: the state after a step with the chosen gradient, with torch's bias correction
        and eps. Learning rates, momenta and decoupled weight decay that differ between parameter groups are folded into
        P (``notes`` of the report). Thresholds and their derivation: ``hessmap.applications.optimiser_step``. Weights,
        buffers, gradients, random state and the optimiser are never written to.

        Batch sharpness, the mean of the quotients: Andreyev & Beneventano 2024, "Edge of stochastic stability". Noise
        scale: McCandlish et al. 2018, "An empirical model of large-batch training", tr(Sigma) / |G|^2 with the
        problem's data as the population. Critical learning rate: Kalra & Barkeshli 2024, "Why warmup the learning
        rate?"; the root of the quadratic model is confirmed by two evaluations of the loss, and where these disagree
        the multiple is doubled or halved and bisected until the bracket is 1/16 of it. A raise between two multiples
        that were tried is not excluded.

    Example:
        >>> import hessmap as hm
        >>> model = torch.nn.Linear(2, 1, bias=False).double()
        >>> problem = hm.Problem(model, "squared", torch.eye(2), torch.ones(2, 1))  # H = I / 2
        >>> report = step_report(problem, torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9))
        >>> report.preconditioned_sharpness.value, report.stability_threshold.value
        (0.5, 3.8)
        >>> round(report.critical_learning_rate.value, 9)  # without momentum yet, the loss rises from 2 / 0.5 on
        4.0
    """
    require_problem(problem)
    inner = inner_optimizer(optimizer)
    require_name("gradient", gradient, get_args(GradientChoice))
    for name in quantities:
        require_name("quantities", name, STEP_QUANTITIES)
    threshold = None if stability_threshold is None else checked_number("stability_threshold", stability_threshold)
    require(threshold is None or threshold > 0, "stability_threshold must be positive", f"got {threshold}")
    must = "preconditioner must be a function of the optimiser"
    require(preconditioner is None or callable(preconditioner), must, f"got a {type(preconditioner).__name__}")
    slope = problem.gradient()
    step = optimiser_step(problem, inner, slope, model=model, choice=gradient)
    rule = step_preconditioner(step.optimizer, step.moved, problem.layout, slope, preconditioner, threshold)
    settings = _Settings(
        tuple(quantities),
        None if batch_size is None else checked_count("batch_size", batch_size),
        checked_count("num_batches", num_batches),
        tolerance,
        max_products,
        checked_count("max_layers", max_layers, 0),
        checked_seed(seed),
        known_sharpness,
    )
    return _Measurement(problem, step, slope, rule, settings).report(type(inner).__name__)


class _Settings(NamedTuple):
    quantities: tuple[StepName, ...]
    batch_size: int | None
    num_batches: int
    tolerance: float | None
    max_products: int | None
    max_layers: int
    seed: int
    known_sharpness: StepQuantity | None


@dataclass(eq=False)
class _Measurement:
    """The quantities of one step; each is found when it is asked for."""

    problem: Problem
    step: OptimiserStep
    slope: Tensor
    rule: StepPreconditioner
    settings: _Settings
    num_products: int = 0
    num_passes: int = 0
    notes: list[str] = field(default_factory=list)

    def report(self, optimizer: str) -> StepReport:
        wants = self.settings.quantities
        plain = self.settings.known_sharpness
        if "sharpness" in wants and plain is None:
            plain = self._eigenvalue(self.hessian)
        scaled = self._preconditioned(plain) if "preconditioned_sharpness" in wants else None
        batches = self._batch_quantities() if {"batch_sharpness", "gradient_noise_scale"} & set(wants) else _NO_BATCHES
        direction = self._directional() if "directional_sharpness" in wants and self.has_step else None
        terms = self._layer_terms() if "layer_terms" in wants and self.has_step else None
        measured = self._measured_change() if "measured_change" in wants and self.has_step else None
        critical = self._critical_rate() if "critical_learning_rate" in wants and self.has_step else None
        if not self.has_step:
            self.notes.append("the step is zero: quantities along it are undefined")
        if self.problem.l2 and self.rule.decay is not None:
            self.notes.append("the problem has l2 and the optimiser weight decay: both are counted")
        rule = self.rule
        return StepReport(
            optimizer=optimizer,
            learning_rate=rule.rate,
            risk=self.risk,
            gradient_norm=float(self.slope.norm()),
            step_norm=float(self.step.change.norm()),
            sharpness=plain,
            preconditioned_sharpness=scaled,
            stability_threshold=None if rule.threshold is None else StepQuantity(rule.threshold, 0.0, "exact"),
            threshold_formula=rule.formula,
            batch_sharpness=batches.sharpness if "batch_sharpness" in wants else None,
            gradient_noise_scale=batches.noise_scale if "gradient_noise_scale" in wants else None,
            directional_sharpness=direction,
            layer_terms=terms,
            first_order_change=self._first_order() if direction is not None else None,
            predicted_change=self._predicted_change() if direction is not None else None,
            measured_change=measured,
            critical_learning_rate=critical,
            batch_size=batches.batch_size,
            num_batches=batches.num_batches,
            num_samples=self.problem.num_samples,
            num_products=self.num_products,
            num_passes=self.num_passes,
            seed=self.settings.seed,
            notes=tuple(dict.fromkeys((*self.step.notes, *rule.notes, *self.notes))),
            provenance=self.problem.provenance,
        )

    @cached_property
    def hessian(self) -> Hessian:
        return loss_hessian(self.problem)

    @cached_property
    def risk(self) -> float:
        self.num_passes += 1
        return self.problem.risk()

    @property
    def has_step(self) -> bool:
        return bool(self.step.change.any())

    @property
    def rounding(self) -> float:
        """The relative error of a product or a sum over samples."""
        narrowest = self.problem.narrowest_format or self.problem.dtype
        unit = float(torch.finfo(narrowest).eps)
        return _ROUNDINGS * unit if self.problem.products == "auto" else unit ** (2 / 3)

    def _eigenvalue(self, operator: SymmetricOperator) -> StepQuantity:
        given = {"tolerance": self.settings.tolerance, "max_products": self.settings.max_products}
        found = sharpness(operator, seed=self.settings.seed, **given)  # type: ignore[arg-type]
        self.num_products += found.num_products
        return StepQuantity(found.value, found.residual, "residual", found.converged)

    def _preconditioned(self, plain: StepQuantity | None) -> StepQuantity | None:
        root = self.rule.inverse_root
        if root is None:
            return None
        if self.rule.is_identity and plain is not None:
            return plain
        signed = self.hessian if self.rule.sign > 0 else -self.hessian
        assert isinstance(signed, SymmetricOperator)
        return self._eigenvalue(PreconditionedHessian(signed, root, self.rule.decay))

    @cached_property
    def image(self) -> Tensor:
        """H u."""
        self.num_products += 1
        found: Tensor = self.hessian @ self.step.change
        return found

    @cached_property
    def curvature(self) -> float:
        """u^T H u."""
        return float(self.step.change @ self.image)

    @cached_property
    def descent(self) -> float:
        """g^T u."""
        return float(self.slope @ self.step.change)

    @property
    def _curvature_error(self) -> float:
        return self.rounding * float(self.step.change.norm() * self.image.norm())

    def _directional(self) -> StepQuantity:
        square = float(self.step.change @ self.step.change)
        return StepQuantity(self.curvature / square, self._curvature_error / square, "rounding")

    def _first_order(self) -> StepQuantity:
        error = self.rounding * float(self.slope.norm() * self.step.change.norm())
        return StepQuantity(self.descent, error, "rounding")

    def _predicted_change(self) -> StepQuantity:
        error = self._first_order().error + self._curvature_error / 2
        return StepQuantity(self.descent + self.curvature / 2, error, "rounding")

    def _layer_terms(self) -> LayerTerms:
        layers: dict[str, list[slice]] = {}
        for name, place in self.problem.layout:
            layers.setdefault(name.rpartition(".")[0] or name, []).append(place)
        names, step = tuple(layers), self.step.change

        def sums(columns: Tensor) -> Tensor:
            return torch.stack(
                [torch.stack([columns[place].sum(0) for place in layers[name]]).sum(0) for name in names]
            )

        if len(names) > self.settings.max_layers:
            self.notes.append(f"{len(names)} layers: pairs were left out (max_layers={self.settings.max_layers})")
            terms = sums((step * self.image)[:, None])[:, 0]
            return LayerTerms(names, terms.cpu().double().numpy(), None, self._curvature_error)
        found = []
        width = max(1, self.hessian.block_size)
        for start in range(0, len(names), width):
            columns = torch.zeros(len(step), len(names[start : start + width]), dtype=step.dtype, device=step.device)
            for column, name in enumerate(names[start : start + width]):
                for place in layers[name]:
                    columns[place, column] = step[place]
            found.append(sums(step[:, None] * self.hessian.matmat(columns)))
        self.num_products += len(names)
        pairs = torch.cat(found, 1).cpu().double().numpy()
        symmetric = (pairs + pairs.T) / 2
        error = max(float(np.abs(pairs - symmetric).max()), self._curvature_error)
        return LayerTerms(names, symmetric.sum(1), symmetric, error)

    def _risk_at(self, multiple: float) -> float:
        self.num_passes += 1
        return self.problem.at(self.problem.parameters + multiple * self.step.change).risk()

    @cached_property
    def _moved_risk(self) -> float:
        return self._risk_at(1.0)

    def _measured_change(self) -> StepQuantity:
        error = self.rounding * (abs(self.risk) + abs(self._moved_risk))
        return StepQuantity(self._moved_risk - self.risk, error, "rounding")

    def _critical_rate(self) -> StepQuantity | None:
        """The learning rate at which the step raises the loss, from phi(c) = (L(w + c u) - L(w)) / c, which is linear
        in c on a quadratic: its root in the last bracket is exact there."""
        rate = self.rule.rate
        if rate is None:
            return None
        if self.descent >= 0:
            self.notes.append("the step does not go downhill: every small multiple of it raises the loss")
            return StepQuantity(0.0, 0.0, "exact")
        found = critical_multiple(self._risk_at, self.risk, self.descent, self.curvature)
        if found is None:
            self.notes.append("no multiple of the step that was tried raises the loss")
            return None
        value, low, high = found
        return StepQuantity(rate * value, rate * (high - low) / 2, "bracket")

    def _batch_quantities(self) -> _BatchQuantities:
        problem, settings = self.problem, self.settings
        wants = set(settings.quantities)
        needs_products = "batch_sharpness" in wants and problem.products == "auto"
        if "batch_sharpness" in wants and problem.products != "auto":
            self.notes.append("batch sharpness is undefined with finite differences")
        quotients, distances, sizes = [], [], []
        size = settings.batch_size
        is_whole = isinstance(problem.samples, HeldSamples) and (size is None or size >= problem.num_samples)
        count = 1 if is_whole else settings.num_batches
        batches = mini_batches(problem, problem.num_samples if is_whole else size, count, settings.seed)
        for batch in batches if needs_products or not is_whole else ():
            gradient, curvature = batch_gradient(problem, batch, with_product=needs_products)
            sizes.append(_size_of(problem, batch))
            distances.append(float((gradient - self.slope).square().sum()))
            square = float(gradient @ gradient)
            if needs_products:
                self.num_products += 1
                assert curvature is not None
                quotients += [curvature / square] if square > 0 else []
        if is_whole:
            distances, noise_sizes = self._single_distances(), [1]
        else:
            noise_sizes = sizes
        sharp = _mean_with_error(quotients, self.rounding if is_whole else None)
        noise = self._noise_scale(distances, noise_sizes) if "gradient_noise_scale" in wants else None
        return _BatchQuantities(sharp, noise, max(sizes, default=None), len(sizes))

    def _single_distances(self) -> list[float]:
        """Squared distances of the gradients of single samples from the mean."""
        if "gradient_noise_scale" not in self.settings.quantities or self.problem.num_samples < 2:
            return []
        count = min(self.settings.num_batches, self.problem.num_samples)
        singles = mini_batches(self.problem, 1, count, self.settings.seed)
        found = (batch_gradient(self.problem, one, with_product=False)[0] for one in singles)
        return [float((gradient - self.slope).square().sum()) for gradient in found]

    def _noise_scale(self, distances: list[float], sizes: list[int]) -> StepQuantity | None:
        """tr(Sigma) / |G|^2. A mini-batch of B out of n samples, drawn without replacement, has the squared distance
        tr(Sigma) / B (n - B) / (n - 1) from the mean gradient."""
        square, size = float(self.slope @ self.slope), fmean(sizes) if sizes else 0
        samples = getattr(self.problem.samples, "sizes", None)  # of the batches of an objective
        total = sum(samples) if samples else self.problem.num_samples
        if not distances or square == 0 or total <= size:
            return None
        scale = size * (total - 1) / (total - size) / square
        found = _mean_with_error([scale * each for each in distances], None)
        if found is not None and size == 1:  # the samples are drawn without replacement
            left = sqrt(max(0.0, (total - len(distances)) / (total - 1)))
            found = StepQuantity(found.value, found.error * left if left else 0.0, found.error_kind)
        return found


class _BatchQuantities(NamedTuple):
    sharpness: StepQuantity | None
    noise_scale: StepQuantity | None
    batch_size: int | None
    num_batches: int


_NO_BATCHES = _BatchQuantities(None, None, None, 0)


def _mean_with_error(values: list[float], rounding: float | None) -> StepQuantity | None:
    """Mean and standard error; a single value of all samples has the rounding error alone."""
    if not values:
        return None
    if rounding is not None:
        return StepQuantity(values[0], rounding * abs(values[0]), "rounding")
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else inf
    return StepQuantity(fmean(values), error, "standard_error")


def _size_of(problem: Problem, batch: Batch) -> int:
    """Samples of a mini-batch; those of an objective's batch are rows of its tensors."""
    return int(batch[0].size) if problem.is_objective else num_rows(batch[0])


def mini_batches(problem: Problem, size: int | None, count: int, seed: int) -> Iterator[Batch]:
    """Random mini-batches with weights of their own mean: disjoint ones of samples in memory, as long as these last;
    the first ones of a loader, in its order; the first batches of an objective."""
    samples = problem.samples
    if not isinstance(samples, HeldSamples):
        for number, batch in enumerate(problem.batches(size)):
            if number == count:
                return
            yield _averaged(problem, batch)
        return
    generator = torch.Generator().manual_seed(seed)
    size = samples.num_samples if size is None else min(size, samples.num_samples)
    order = torch.empty(0, dtype=torch.long)
    for _ in range(count):
        if len(order) < size:
            order = torch.randperm(samples.num_samples, generator=generator)
        chosen, order = order[:size].to(problem.device), order[size:]
        part = take_rows(samples.inputs, chosen), samples.targets[chosen], problem.weights[chosen]
        yield _averaged(problem, part)


def _averaged(problem: Problem, batch: Batch) -> Batch:
    """The batch with weights that make its loss the mean over its own samples, or their sum for a summed loss."""
    inputs, targets, weights = batch
    if problem.loss.is_sum:
        return batch
    mass = (weights * problem.loss.target_weights(targets).to(weights)).sum()
    return inputs, targets, weights / mass if float(mass) > 0 else weights


def batch_gradient(problem: Problem, batch: Batch, *, with_product: bool) -> tuple[Tensor, float | None]:
    """The gradient g of a mini-batch, and g^T H g with the Hessian of the same mini-batch."""
    point = problem.parameters
    graph = BatchGraph(problem, batch, vectorised=False)
    risk = problem.loss.risk(graph.outputs, graph.targets, graph.weights)
    if not risk.requires_grad:
        gradient = 2 * problem.l2 * point
        return gradient, 2 * problem.l2 * float(gradient @ gradient)
    with full_precision(problem.device):
        parts = torch.autograd.grad(risk, graph.leaves, retain_graph=with_product, materialize_grads=True)
    gradient = torch.cat([part.reshape(-1) for part in parts]) + 2 * problem.l2 * point
    if not with_product:
        return gradient, None
    image = PRODUCTS["loss"](graph)(gradient[None])[0] + 2 * problem.l2 * gradient
    return gradient, float(gradient @ image)


def critical_multiple(risk_at: Any, risk: float, descent: float, curvature: float) -> tuple[float, float, float] | None:
    """The smallest tried multiple of a step that raises the loss, and its bracket.

    Args:
        risk_at: The loss at a multiple of the step.
        risk: The loss without the step.
        descent: Slope of the loss along the step, negative.
        curvature: Second derivative of the loss along the step.

    Returns:
        The root of phi(c) = (loss(c) - loss(0)) / c by linear interpolation in the bracket, and the bracket, at most
        1/16 of its upper end wide; None where no multiple that was tried raises the loss.
    """
    known: dict[float, float] = {}

    def slope(multiple: float) -> float:
        if multiple not in known:
            value = risk_at(multiple)
            known[multiple] = (value - risk) / multiple if isfinite(value) else inf
        return known[multiple]

    guess = -2 * descent / curvature if curvature > 0 else 1.0
    low, high = guess * (1 - _BRACKET / 2), guess * (1 + _BRACKET / 2)
    if curvature <= 0:
        low = high = guess
    while slope(high) <= 0:  # the loss does not rise at the upper end
        low, high = high, 2 * high
        if len(known) >= _MOST_PASSES:
            return None
    while slope(low) > 0:
        low, high = low / 2, low
        if len(known) >= _MOST_PASSES:
            return None
    while high - low > _BRACKET * high * (1 + 1e-12):
        middle = (low + high) / 2
        low, high = (low, middle) if slope(middle) > 0 else (middle, high)
    left, right = slope(low), slope(high)
    root = low + (high - low) * left / (left - right) if isfinite(right) and right > left else high
    return root, low, high
