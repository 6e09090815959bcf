"""Fitting a posterior: stochastic gradients on an upper bound of the error plus a multiple of the divergence.

Dziugaite & Roy 2017; Wu et al. 2022, algorithm 1, whose plain gradient steps do not move the deviations: the slope in
them is of order 1 / N. RMSprop is used instead, as by the former. A fit on disk continues only from the same networks,
samples and settings.

A step lowers a surrogate, E cross-entropy / log 2, which is an upper bound of the error for any number of classes (a
wrong answer gives its label a probability of at most one half), plus a weight times the complexity B. "pinsker" adds
sqrt(B / 2), as Dziugaite & Roy 2017 and Wu et al. 2022 do; that gap is loose where errors are rare, and the surrogate
is several times the error. "bound" follows the slope of the bound that is certified in the end: a unit of B replaces
``theory.pac_bayes.error_per_divergence`` of the error, and the error is taken to move in proportion to the surrogate,
both as they were in the last steps. "balanced" takes the geometric mean of both slopes: a network that errs less than
that of "bound", with a bound between the two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, isfinite, log, pi
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from hessmap.certificates.bases import GivenBases, basis_rule, take_curvature_bases, take_given_bases
from hessmap.certificates.draws import Sampler
from hessmap.certificates.losses import BoundedLoss, ClassificationError, bounded_loss
from hessmap.certificates.model_copies import in_format
from hessmap.certificates.pairs import KnownSquares, PairLinear, squared_coordinates
from hessmap.certificates.posterior import LayerPosterior, Posterior
from hessmap.certificates.stochastic import StochasticLayer, StochasticNetwork
from hessmap.datasets import Data
from hessmap.errors import HessmapError, checked_count, checked_number, checked_seed, require, sentence, unknown_name
from hessmap.records import data_hash
from hessmap.theory.pac_bayes import PriorGrid, binary_kl_inverse, error_per_divergence, log_maurer_constant
from hessmap.training import check_same_settings, content_of, load_checkpoint, save_checkpoint

Objective = Literal["bound", "pinsker", "balanced"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
_WINDOW = 100  # steps over which errors and surrogates are averaged
_COUNTS = ("iterations", "batch_size", "refresh_every", "basis_samples", "progress_every")


@dataclass(frozen=True)
class FitSettings:
    """How a posterior is fitted. Every field determines the result and is stored in the certificate.

    Args:
        iterations: Steps of the fit. Defaults to 6000.
        objective: "bound" (default) follows the slope of the certified bound; "pinsker", that of the papers, gives a
            better network with a looser bound; "balanced" is between the two.
        batch_size: Samples in a step. Defaults to 128.
        learning_rate: Learning rate of the means. Defaults to 3e-3.
        deviation_learning_rate: Learning rate of the log deviations. Defaults to 1e-2.
        smoothing: Decay of the running mean of squared gradients in RMSprop. Defaults to 0.9.
        refresh_every: Iterations between two computations of an iterative basis. Defaults to 400.
        basis_samples: Samples that a basis is computed from. Defaults to 2000.
        delta: Probability that the samples mislead. Defaults to 0.025.
        grid: Prior variances, fixed before the samples were seen. Default: ``PriorGrid()``.
        seed: Seed of the fit. Defaults to 0.
        progress_every: Iterations between two progress updates, among which the best posterior is chosen. Defaults to
            200.
        loss: "cross_entropy" (default), "bce" or "squared".
        starts_at_prior: Whether the fit starts with the deviations of a prior that was trained on separate samples,
            instead of deviations of the size of the weights. Defaults to False.

    Raises:
        InvalidInput: If a setting is out of range.
    """

    iterations: int = 6000
    objective: Objective = "bound"
    batch_size: int = 128
    learning_rate: float = 3e-3
    deviation_learning_rate: float = 1e-2
    smoothing: float = 0.9
    refresh_every: int = 400
    basis_samples: int = 2000
    delta: float = 0.025
    grid: PriorGrid = field(default_factory=PriorGrid)
    seed: int = 0
    progress_every: int = 200
    loss: str = "cross_entropy"
    starts_at_prior: bool = False

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise unknown_name("objective", self.objective, OBJECTIVES)
        for name in _COUNTS:
            checked_count(name, getattr(self, name))
        checked_seed(self.seed)
        bounded_loss(self.loss)
        require(isinstance(self.grid, PriorGrid), "grid must be a PriorGrid", f"got {self.grid!r}")
        for name in ("learning_rate", "deviation_learning_rate"):
            rate = checked_number(name, getattr(self, name))
            require(isfinite(rate) and rate >= 0, f"{name} must be finite and not negative", f"got {rate}")


@dataclass(frozen=True)
class FitMoment:
    """Progress of a fit.

    Attributes:
        iteration: Iterations done.
        iterations: Iterations in total.
        bound: Estimate of the bound from the last batches; not a certificate.
        error: Error of the stochastic network over the last batches.
        kl: Divergence of the posterior from the prior.
    """

    iteration: int
    iterations: int
    bound: float
    error: float
    kl: float


class FitObjective:
    """The objective of a fit with the errors and surrogates of its last steps; ``recent`` is all it remembers."""

    def __init__(self, kind: Objective, loss: BoundedLoss | None = None) -> None:
        self.kind, self.loss = kind, loss or ClassificationError()
        self.recent: list[tuple[float, float]] = []

    @property
    def error(self) -> float:
        """Of the stochastic network, over the last batches; 1 before the first."""
        return sum(error for error, _ in self.recent) / len(self.recent) if self.recent else 1.0

    def of(self, outputs: Tensor, targets: Tensor, complexity: Tensor) -> Tensor:
        """The objective of a batch, whose error and surrogate are remembered."""
        surrogate = self.loss.surrogate(outputs, targets)
        with torch.no_grad():
            wrong = float(self.loss.values(outputs, targets).mean())
        self.recent = [*self.recent[1 - _WINDOW :], (wrong, float(surrogate.detach()))]
        if self.kind == "pinsker":
            return surrogate.double() + (complexity / 2).sqrt()
        slope = self._slope(float(complexity.detach()), len(targets))
        if self.kind == "balanced":
            slope = (slope * _pinsker_slope(float(complexity.detach()))) ** 0.5
        return surrogate.double() + slope * complexity

    def _slope(self, complexity: float, batch_size: int) -> float:
        """How much of the surrogate a unit of B replaces, at the same bound."""
        if not 0 < complexity < float("inf"):
            return 1.0  # the objective is no number, which the fit finds out
        resolution = 1 / (len(self.recent) * batch_size)
        error = min(max(self.error, resolution), 1 - resolution)
        surrogate = sum(surrogate for _, surrogate in self.recent) / len(self.recent)
        return error_per_divergence(error, complexity) * surrogate / error


def _pinsker_slope(complexity: float) -> float:
    """d sqrt(B / 2) / dB."""
    return 1 / (8 * complexity) ** 0.5 if 0 < complexity < float("inf") else 1.0


_RATE_REDUCTIONS = (0.6, 0.85)  # of the iterations: the step sizes are then a tenth
_FIRST_LOG_DEVIATION = -3.0  # of the prior
_SMALLEST_DEVIATION = 1e-3  # of a weight's posterior before the first step


class FitDiverged(HessmapError, ArithmeticError):
    """The objective is no longer a number."""


class PosteriorFit:
    """A fit under way; ``restored_fit`` resumes it bit for bit.

    A batch is drawn in pairs or as one network, whatever the certificate does; any posterior may be certified.
    """

    def __init__(
        self,
        model: nn.Module,
        initial: nn.Module,
        data: Data,
        basis: str | GivenBases,
        settings: FitSettings,
        num_certified: int | None = None,
    ) -> None:
        self.data, self.settings, self.rule = data, settings, basis_rule(basis)
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.network = StochasticNetwork(model, self.generator)
        self.prior = StochasticNetwork(initial, self.generator).posterior()
        loss = bounded_loss(settings.loss)
        self.sampler = Sampler(self.network, data.inputs, model, initial, loss=loss)
        self.num_certified = len(data.inputs) if num_certified is None else num_certified
        self.inputs, self.targets = in_format(data.inputs, self.network.dtype), data.targets
        self.without_curvature: tuple[str, ...] = ()
        self.log_prior_deviation = nn.Parameter(torch.tensor(self._first_log_deviation(), dtype=torch.float64))
        if not isinstance(basis, str):
            take_given_bases(self.network, basis)
        self.iteration = 0
        self.best: tuple[float, Posterior, float] | None = None
        self.objective = FitObjective(settings.objective, loss)
        self._start()
        self.first = self.network.posterior()

    def _start(self) -> None:
        if self.rule.output_factor is not None:
            self._refresh_bases()
        self._set_first_deviations()
        layers = self.network.layers.values()
        means = [mean for layer in layers for mean in (layer.weight, layer.bias) if mean is not None]
        deviations = [
            one for layer in layers for one in (layer.log_deviations, layer.bias_log_deviations) if one is not None
        ]
        settings = self.settings
        self.optimiser = torch.optim.RMSprop(
            [
                {"params": means, "lr": settings.learning_rate},
                {"params": [*deviations, self.log_prior_deviation], "lr": settings.deviation_learning_rate},
            ],
            alpha=settings.smoothing,
        )

    def _first_log_deviation(self) -> float:
        """Of the prior: in the middle of a grid that ends, so that a posterior can start at the prior itself."""
        grid = self.settings.grid
        if grid.num_points is None:
            return _FIRST_LOG_DEVIATION
        return 0.5 * log(grid.variance((grid.num_points + 1) // 2))

    @torch.no_grad()
    def _hold_prior_if_due(self) -> None:
        """On a grid that ends the prior's deviation is held at a point of it: from the first step on where the fit
        starts at the prior, elsewhere when the step sizes have been reduced.

        Points of a short grid lie far apart: where the posterior has settled around a deviation between two of them,
        the divergence from either one is thousands, for a hundred thousand weights. What was best before that is
        forgotten.
        """
        grid, held_from = self.settings.grid, int(_RATE_REDUCTIONS[0] * self.settings.iterations)
        if grid.num_points is not None and (self.settings.starts_at_prior or self.iteration >= held_from):
            index = grid.precision * (log(grid.scale) - 2 * float(self.log_prior_deviation))
            nearest = min(max(1, round(index)), grid.num_points)
            self.log_prior_deviation.fill_(0.5 * log(grid.variance(nearest)))
            self.best = None if self.iteration == held_from and not self.settings.starts_at_prior else self.best

    @torch.no_grad()
    def _set_first_deviations(self) -> None:
        for layer in self.network.layers.values():
            if self.settings.starts_at_prior:
                for deviations in (layer.log_deviations, layer.bias_log_deviations):
                    if deviations is not None:
                        deviations.fill_(self._first_log_deviation())
                continue
            layer.log_deviations.copy_(layer.rotated(layer.weight).abs().clamp_min(_SMALLEST_DEVIATION).log())
            if layer.bias is not None and layer.bias_log_deviations is not None:
                bias = layer.bias if layer.output_basis is None else layer.output_basis.T @ layer.bias
                layer.bias_log_deviations.copy_(bias.abs().clamp_min(_SMALLEST_DEVIATION).log())

    def run(self, progress: Callable[[FitMoment], None] | None, keep: Callable[[], None] | None) -> str:
        """Iterate to the end and return, as a sentence, why it ended; Ctrl-C ends it early without losing the state.

        ``progress`` is called every ``settings.progress_every`` iterations; ``keep`` may then store the state.
        """
        every = self.settings.progress_every
        try:
            while self.iteration < self.settings.iterations:
                self._step()
                if self.iteration % every == 0 or self.iteration == self.settings.iterations:
                    moment = self._moment()
                    if progress is not None:
                        progress(moment)
                    if keep is not None:
                        keep()
        except KeyboardInterrupt:
            if self.best is None:
                self._moment()
            return f"interrupted after {self.iteration} of {self.settings.iterations} iterations"
        return f"{self.iteration} iterations done"

    @torch.enable_grad()
    def _step(self) -> None:
        self._refresh_if_due()
        chosen = torch.randint(len(self.inputs), (self.settings.batch_size,), generator=self.generator)
        outputs = self._outputs(chosen)
        objective = self.objective.of(outputs, self.targets[chosen], self.complexity())
        self._require_finite(float(objective.detach()))
        self.optimiser.zero_grad()
        torch.autograd.backward(objective)
        self._reduce_rates_if_due()
        self.optimiser.step()
        grid = self.settings.grid
        with torch.no_grad():
            least = None if grid.num_points is None else 0.5 * log(grid.variance(grid.num_points))
            self.log_prior_deviation.clamp_(min=least, max=0.5 * log(grid.scale) - 0.5 / grid.precision)
        self.iteration += 1
        self._hold_prior_if_due()

    def _outputs(self, chosen: Tensor) -> Tensor:
        batch = self.inputs[chosen]
        first = self._first_layer()
        if first is not None:
            first.known_squares = KnownSquares.of(batch, self._squares[chosen])
        return self.sampler.outputs(batch)

    def _first_layer(self) -> PairLinear | None:
        """A first layer that sees the samples as they are: (V^T x)^2 of them is found once, because V never changes."""
        pairs = self.sampler.pairs
        first = None if pairs is None else next(iter(pairs.network.children()), None)
        if pairs is None or first is not next(iter(pairs.layers.values())) or not isinstance(first, PairLinear):
            return None
        basis = first.law.input_basis
        if basis is None or self.inputs.shape[1:] != basis.shape[:1]:
            return None
        if not hasattr(self, "_squares"):
            self._squares = squared_coordinates(self.inputs, basis)
        return first

    def complexity(self) -> Tensor:
        """B of ``theory.pac_bayes.complexity`` with a continuous grid index, differentiable."""
        settings = self.settings
        return continuous_complexity(
            self.kl(), self.log_prior_deviation, self.num_certified, settings.grid, settings.delta
        )

    def kl(self) -> Tensor:
        """The divergence of the posterior from the prior, differentiable."""
        return differentiable_divergence(self.network.layers, self.prior, self.log_prior_deviation)

    def _moment(self) -> FitMoment:
        with torch.no_grad():
            kl, complexity = float(self.kl()), float(self.complexity())
        self._require_finite(complexity)
        error = self.objective.error
        bound = binary_kl_inverse(error, max(0.0, complexity))
        if self.best is None or bound <= self.best[0]:
            self.best = (bound, self.network.posterior(), exp(2 * float(self.log_prior_deviation.detach())))
        return FitMoment(self.iteration, self.settings.iterations, bound, error, kl)

    def _require_finite(self, objective: float) -> None:
        if not isfinite(objective):
            broken = f"the objective is {objective} at iteration {self.iteration}"
            remedy = "Use smaller learning rates"
            raise FitDiverged(sentence("fitting a posterior must keep the objective finite", broken, remedy))

    def _refresh_if_due(self) -> None:
        num_reductions = sum(self.iteration >= share * self.settings.iterations for share in _RATE_REDUCTIONS)
        interval = self.settings.refresh_every * (10**num_reductions if self.rule.decays else 1)
        if self.rule.is_refreshed and self.iteration > 0 and self.iteration % interval == 0:
            self._refresh_bases()

    def _refresh_bases(self) -> None:
        samples = torch.randperm(len(self.inputs), generator=self.generator)[: self.settings.basis_samples]
        some = Data(self.data.inputs[samples], self.targets[samples])
        fixed = next(iter(self.network.layers)) if self.iteration > 0 else None
        self.without_curvature = take_curvature_bases(self.network, some, self.rule, fixed, self.settings.loss)

    def _reduce_rates_if_due(self) -> None:
        if self.iteration in [int(share * self.settings.iterations) for share in _RATE_REDUCTIONS]:
            for group in self.optimiser.param_groups:
                group["lr"] /= 10


def continuous_complexity(
    kl: Tensor, log_prior_deviation: Tensor, num_samples: int, grid: PriorGrid, delta: float
) -> Tensor:
    """B of ``theory.pac_bayes.maurer_complexity`` between the points of a grid."""
    index = grid.precision * (log(grid.scale) - 2 * log_prior_deviation)
    cost = 2 * index.log() + log(pi**2 / 6) if grid.num_points is None else log(grid.num_points)
    return (kl + cost + log(2 / delta) + log_maurer_constant(num_samples)) / num_samples


def differentiable_divergence(
    layers: Mapping[str, StochasticLayer], prior: Posterior, log_prior_deviation: Tensor
) -> Tensor:
    """KL of the posterior from the normal law of one deviation around the means of ``prior``."""
    log_variance = 2 * log_prior_deviation
    total = torch.zeros((), dtype=torch.float64)
    for name, layer in layers.items():
        start = prior[name]
        for mean, log_deviations, origin in (
            (layer.weight, layer.log_deviations, start.weight),
            (layer.bias, layer.bias_log_deviations, start.bias),
        ):
            if mean is None or log_deviations is None or origin is None:
                continue
            squares = (mean - origin).square().sum().double() + (2 * log_deviations).exp().sum().double()
            total = total + squares / log_variance.exp() - 2 * log_deviations.sum().double()
            total = total + mean.numel() * (log_variance - 1)
    return total / 2


def restored_fit(
    fit: PosteriorFit, path: str | Path, basis: str | GivenBases, hashes: dict[str, str]
) -> Callable[[], None]:
    """Continue from the checkpoint, if it is there; the function that is returned writes it.

    ``hashes`` are those of the samples and weights that the fit depends on, besides its settings.
    """
    wanted = {**dataclasses.asdict(fit.settings), "basis": _basis_name(basis), **hashes}
    if Path(path).exists():
        state = load_checkpoint(path)
        check_same_settings(path, state.get("settings"), wanted)
        with content_of(path, "a fit under way"):
            _restore(fit, state["fit"])
    return lambda: save_checkpoint(path, {"settings": wanted, "fit": _state(fit)})


def _state(fit: PosteriorFit) -> dict[str, Any]:
    """All that the rest of the fit depends on."""
    best = None
    if fit.best is not None:
        layers = {name: vars(layer).copy() for name, layer in fit.best[1].items()}
        best = {"bound": fit.best[0], "posterior": layers, "variance": fit.best[2]}
    return {
        "iteration": fit.iteration,
        "network": {name: vars(layer).copy() for name, layer in fit.network.posterior().items()},
        "log_prior_deviation": fit.log_prior_deviation.detach().clone(),
        "optimiser": fit.optimiser.state_dict(),
        "generator": fit.generator.get_state(),
        "recent": fit.objective.recent,
        "without_curvature": list(fit.without_curvature),
        "best": best,
    }


def _restore(fit: PosteriorFit, state: dict[str, Any]) -> None:
    fit.iteration = state["iteration"]
    fit.network.take({name: LayerPosterior(**layer) for name, layer in state["network"].items()})
    with torch.no_grad():
        fit.log_prior_deviation.copy_(state["log_prior_deviation"])
    fit.optimiser.load_state_dict(state["optimiser"])
    fit.generator.set_state(state["generator"])
    fit.objective.recent = list(state["recent"])
    fit.without_curvature = tuple(state.get("without_curvature", ()))
    if (best := state["best"]) is not None:
        layers = {name: LayerPosterior(**layer) for name, layer in best["posterior"].items()}
        fit.best = (best["bound"], layers, best["variance"])


def _basis_name(basis: str | GivenBases) -> str:
    if isinstance(basis, str):
        return basis
    parts = [np.asarray(part) for name in sorted(basis) for part in (name, *basis[name])]
    return f"given ({data_hash(*parts)})"


def weights_hash(model: nn.Module) -> str:
    """A hash of the weights of a network."""
    return data_hash(*(parameter.detach().double().cpu().numpy() for parameter in model.parameters()))
