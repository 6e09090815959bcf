"""The learning coefficient of a model: how many directions its loss sees from where it was trained to.

Chains of stochastic gradient Langevin dynamics around trained weights, the loss along them, and the checks that decide
whether the local learning coefficient that they estimate is reliable.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, log, sqrt
from typing import Any, Literal

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor, func

from hessmap.errors import InvalidInput, checked_count, checked_number, checked_seed, require, sentence
from hessmap.linalg import full_precision
from hessmap.measurement import Floats
from hessmap.problem import Inputs, Problem, bytes_per_sample, require_problem, take_rows
from hessmap.progress import Progress, new_progress
from hessmap.records import (
    ChainSettings,
    CheckOutcome,
    EstimateVerdict,
    LearningCheck,
    LearningCoefficientEstimate,
    provenance,
)

__all__ = ["learning_coefficient_estimate"]

_AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-3}
NUM_BLOCKS = 8


class ChainRisk:
    """Values and gradients of the risk at the rows of a matrix, on all samples or on some of them.

    All rows go through the model together where ``torch.func.vmap`` takes it and agrees with a row by itself; else one
    after the other.
    """

    @torch.inference_mode(False)
    def __init__(self, problem: Problem, num_chains: int) -> None:
        self.problem = problem
        self.start = problem.parameters.detach().clone()
        self._samples = problem.inputs, problem.targets, problem.weights
        each = bytes_per_sample(problem) * num_chains
        self._at_once = max(1, int(problem.working_bytes / each))
        self.is_parallel = num_chains > 1 and self._can_be_parallel()

    @torch.inference_mode(False)
    def __call__(self, points: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values (rows) and gradients (rows, parameters); a batch of ``chosen`` samples stands for all of them."""
        values = self.problem.l2 * points.square().sum(1)
        gradients = 2 * self.problem.l2 * points
        for inputs, targets, weights in self._parts(chosen):
            with full_precision(self.problem.device):
                if self.is_parallel:
                    risks, slopes = func.vmap(lambda flat: self._at(flat, inputs, targets, weights))(points)  # noqa: B023
                else:
                    rows = [self._at(flat, inputs, targets, weights) for flat in points]
                    risks, slopes = (torch.stack(items) for items in zip(*rows, strict=True))
            values, gradients = values + risks, gradients + slopes
        return values.detach(), gradients.detach()

    def _at(self, flat: Tensor, inputs: Inputs, targets: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        linearised: Any = func.vjp(self.problem.function(inputs), flat)
        outputs, vjp = linearised
        slopes = weights[:, None] * self.problem.loss.gradient(outputs, targets)
        return (weights * self.problem.loss.value(outputs, targets)).sum(), vjp(slopes.to(outputs.dtype))[0]

    def _parts(self, chosen: Tensor | None) -> Iterator[tuple[Inputs, Tensor, Tensor]]:
        inputs, targets, weights = self._samples
        if chosen is not None:
            weights = weights[chosen] * (len(targets) / len(chosen))
            inputs, targets = take_rows(inputs, chosen), targets[chosen]
        if len(targets) <= self._at_once:
            yield inputs, targets, weights
            return
        for first in range(0, len(targets), self._at_once):
            part = slice(first, first + self._at_once)
            yield take_rows(inputs, part), targets[part], weights[part]

    def _can_be_parallel(self) -> bool:
        inputs, targets, weights = self._samples
        few = slice(min(len(targets), 4))
        batch = take_rows(inputs, few), targets[few], weights[few]
        points = torch.stack([self.start, self.start * 1.01])
        try:
            values, gradients = func.vmap(lambda flat: self._at(flat, *batch))(points)
        except Exception:  # a model that torch.func cannot map over: whatever it says, rows by themselves are right
            return False
        alone, slope = self._at(points[1], *batch)
        tolerance = _AGREEMENT.get(self.problem.dtype, 1e-2)
        error = (gradients[1] - slope).abs().max() + (values[1] - alone).abs()
        return bool(error <= tolerance * (slope.abs().max() + alone.abs()))


def largest_curvatures(risk: ChainRisk, points: Tensor, generator: torch.Generator, num_products: int = 12) -> Tensor:
    """The largest curvature at each of the points, in absolute value: power iteration by differences of gradients."""
    vectors = torch.randn(points.shape, generator=generator, dtype=torch.float64).to(points)
    scale = 1e-5 if points.dtype == torch.float64 else 1e-2
    _, here = risk(points)
    norms: Tensor = torch.linalg.vector_norm(vectors, dim=1)
    for _ in range(num_products):
        vectors = vectors / norms.clamp(min=torch.finfo(points.dtype).tiny)[:, None]
        step = scale * (1 + points.norm(dim=1, keepdim=True))
        _, there = risk(points + step * vectors)
        vectors = (there - here) / step
        norms = torch.linalg.vector_norm(vectors, dim=1)
    return norms


WANTED_STEP = 0.1  # the step times the largest curvature of the sampled density, where the chains are
_LOOKS = 16  # at the curvature during burn-in
StoppedBy = Literal["draws", "time", "interruption"]


@dataclass(frozen=True)
class Draws:
    """n beta times the excess loss (chains, steps), where the chains are at the end, and what ended them."""

    energies: Floats
    num_burn_in: int
    points: Tensor
    settings: ChainSettings
    stopped_by: StoppedBy

    @property
    def kept_energies(self) -> Floats:
        return self.energies[:, self.num_burn_in :]


class Langevin:
    """Chains that all begin at the weights of the problem, or where other chains have come to."""

    def __init__(self, risk: ChainRisk, settings: ChainSettings, deadline: float, shown: Progress) -> None:
        self.risk = risk
        self.settings = settings
        self.deadline = deadline
        self.shown = shown
        self.generator = torch.Generator().manual_seed(settings.seed)
        self.start_risk = risk(risk.start[None])[0]

    def draws(self, step: str, points: Tensor | None = None, adapts: bool = False) -> Draws:
        """Burn-in, in which the step may adapt to the curvature that is met, then draws with a fixed step."""
        settings = self.settings
        total = settings.num_burn_in + settings.num_draws
        points = self.risk.start.repeat(settings.num_chains, 1) if points is None else points.clone()
        energies = np.zeros((settings.num_chains, total))
        each = max(1, settings.num_burn_in // _LOOKS)
        stopped_by: StoppedBy = "draws"
        self.shown.start(step, total)
        done = 0
        try:
            for done in range(total):
                if adapts and done < settings.num_burn_in and done % each == 0:
                    settings = replace(settings, step_size=self._fitting_step(settings, points, is_first=done == 0))
                energies[:, done] = self._move(points, settings, done)
                if time.monotonic() > self.deadline:
                    stopped_by = "time"
                    break
                if done % 50 == 0:
                    self.shown.advance(done)
        except KeyboardInterrupt:
            stopped_by = "interruption"
            done -= 1
        kept = energies[:, : done + 1]
        burn_in = min(settings.num_burn_in, kept.shape[1] // 3) if stopped_by != "draws" else settings.num_burn_in
        return Draws(kept, burn_in, points, settings, stopped_by)

    def _move(self, points: Tensor, settings: ChainSettings, step: int) -> Floats:
        """The excess energies of the points, which then make one step."""
        size, n_beta = settings.step_size, settings.num_observations * settings.inverse_temperature
        chosen = self._batch(settings)
        values, gradients = self.risk(points, chosen)
        below = self.start_risk if chosen is None else self.risk(self.risk.start[None], chosen)[0]
        energies: Floats = (n_beta * (values - below)).cpu().double().numpy()
        if not np.isfinite(energies).all():
            must = f"the chains must stay where the loss is finite; one left after {step} steps of {size:.3g}"
            raise InvalidInput(sentence(must, "its loss is inf or nan", f"Use step_size={size / 10:.2g} or less"))
        pull = n_beta * gradients + settings.localisation * (points - self.risk.start)
        noise = torch.randn(points.shape, generator=self.generator, dtype=torch.float64).to(points)
        points += sqrt(size) * noise - size / 2 * pull
        return energies

    def _batch(self, settings: ChainSettings) -> Tensor | None:
        if settings.batch_size is None:
            return None
        chosen = torch.randperm(self.risk.problem.num_samples, generator=self.generator)[: settings.batch_size]
        return chosen.to(self.risk.problem.device)

    def largest_curvature(self, points: Tensor) -> float:
        return float(largest_curvatures(self.risk, points, self.generator).max())

    def _fitting_step(self, settings: ChainSettings, points: Tensor, is_first: bool) -> float:
        """What is wanted at the largest curvature that was met; at the start no more than one kick of noise shows."""
        n_beta = settings.num_observations * settings.inverse_temperature
        size = WANTED_STEP / (n_beta * self.largest_curvature(points) + settings.localisation)
        if not is_first:
            return min(size, 2 * settings.step_size)
        noise = torch.randn(points.shape, generator=self.generator, dtype=torch.float64).to(points)
        most = WANTED_STEP * points.shape[1] / 2
        for _ in range(60):
            excess = float((n_beta * (self.risk(points + sqrt(size) * noise)[0] - self.start_risk)).max())
            if excess <= most:
                break
            size /= 2
        return size


def deadline_of(seconds: float | None) -> float:
    return inf if seconds is None else time.monotonic() + seconds


def split_r_hat(chains: Floats) -> float:
    """sqrt of (variance of all half chains together) / (variance within half chains); 1 where they agree.

    ``chains`` has a row for each chain. Both halves of a chain count as chains, so that a common trend shows too.
    Reference: Gelman et al. 2013, Bayesian Data Analysis, section 11.4.

    >>> round(split_r_hat(np.array([[0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]])), 3)
    0.707
    """
    chains = _checked_chains(chains, 4)
    length = chains.shape[1] // 2
    halves = np.concatenate([chains[:, :length], chains[:, -length:]])
    within = float(halves.var(axis=1, ddof=1).mean())
    between = float(halves.mean(axis=1).var(ddof=1))
    if within == 0:
        return 1.0 if between == 0 else inf
    return sqrt((length - 1) / length + between / within)


def block_means(chains: Floats, num_blocks: int = NUM_BLOCKS) -> Floats:
    """The mean of each chain over consecutive blocks of equal length; draws that are left over at the end count to
    the last.

    >>> block_means(np.array([[1.0, 3.0, 5.0, 7.0]]), 2)
    array([[2., 6.]])
    """
    chains = _checked_chains(chains, num_blocks)
    return np.stack([part.mean(axis=1) for part in np.array_split(chains, num_blocks, axis=1)], axis=1)


def trend(chains: Floats) -> tuple[float, float]:
    """How far the mean of all chains moves from the first to the last block by a straight line, and its standard error.

    Each chain has a slope of its own over the blocks; the error is that of the mean of these slopes, inf for one chain.

    >>> trend(np.array([[0.0, 1, 2, 3, 4, 5, 6, 7], [0.0, 1, 2, 3, 4, 5, 6, 7]]))
    (7.0, 0.0)
    """
    means = block_means(chains)
    times = np.arange(NUM_BLOCKS) - (NUM_BLOCKS - 1) / 2
    moved = means @ times / (times @ times) * (NUM_BLOCKS - 1)
    error = float(moved.std(ddof=1)) / sqrt(len(moved)) if len(moved) > 1 else inf
    return float(moved.mean()), error


def _checked_chains(chains: Floats, at_least: int) -> Floats:
    chains = np.asarray(chains, dtype=np.float64)
    is_table = chains.ndim == 2 and chains.shape[1] >= at_least
    require(is_table, f"chains must be rows of at least {at_least} draws", f"they have shape {chains.shape}")
    return chains


R_HAT = 1.02
CHANGE = 0.05  # of the value, when a setting changes
_TREND = 0.1  # of the value, from the first to the last block
_STEP = 0.2  # times the largest curvature where the chains are
_TRAVEL = 0.4  # step times draws times localisation


@dataclass(frozen=True)
class Measured:
    """A value with its standard error."""

    value: float
    error: float


def chain_checks(
    kept: Floats, found: Measured, settings: ChainSettings, sharpness: float, num_parameters: int
) -> list[LearningCheck]:
    """The checks that one run answers."""
    return [
        _minimum_check(found),
        _parameters_check(found, num_parameters),
        _agreement_check(kept),
        _trend_check(kept, found),
        _step_size(settings, sharpness),
        _length_check(settings),
        *([] if settings.batch_size is None else [_batch_check(settings, sharpness)]),
    ]


def setting_check(
    name: str, what: str, found: Measured, other: Measured | None, remedy: str, is_settled: bool = True
) -> LearningCheck:
    """Whether the value stays when one setting changes; chains that have not settled cannot tell why it does not."""
    if other is None:
        return LearningCheck(name, "not run", None, CHANGE, f"{what} was not tried")
    scale = max(abs(found.value), 0.05)
    change = (other.value - found.value) / scale
    noise = 2 * (found.error**2 + other.error**2) ** 0.5 / scale
    text = f"{what} changes the value by {change:+.1%} (noise {noise:.1%})"
    if abs(change) <= CHANGE and noise <= 2 * CHANGE:
        return LearningCheck(name, "passed", change, CHANGE, text)
    if abs(change) <= max(noise, CHANGE):
        return LearningCheck(name, "inconclusive", change, CHANGE, f"{text}: more chains or draws are needed")
    if not is_settled:
        text += ": the chains have not converged, which may be the cause; use more draws first"
        return LearningCheck(name, "inconclusive", change, CHANGE, text)
    return LearningCheck(name, "failed", change, CHANGE, f"{text}: {remedy}")


def verdict(checks: Sequence[LearningCheck]) -> EstimateVerdict:
    """What all of them say together."""
    outcomes = {check.outcome for check in checks}
    if "failed" in outcomes:
        return "unreliable"
    return "reliable" if outcomes == {"passed"} else "inconclusive"


def _outcome(passed: bool) -> CheckOutcome:
    return "passed" if passed else "failed"


def _minimum_check(found: Measured) -> LearningCheck:
    passed = found.value > -3 * found.error or abs(found.value) < 1e-9
    text = "the loss of the draws lies above that of the weights"
    failed = (
        "the draws have a lower loss than the weights, which are not a minimum: train further, or raise localisation"
    )
    return LearningCheck("minimum", _outcome(passed), found.value, 0.0, text if passed else failed)


def _parameters_check(found: Measured, num_parameters: int) -> LearningCheck:
    half = num_parameters / 2
    passed = found.value - 3 * found.error <= half
    text = f"the value is at most half the number of parameters, {half:g}"
    failed = f"the value is above half the number of parameters, {half:g}: the step is too large"
    return LearningCheck("parameters", _outcome(passed), found.value, half, text if passed else failed)


def _agreement_check(kept: Floats) -> LearningCheck:
    value = split_r_hat(kept)
    text = f"split R-hat is {value:.3f}" + ("" if value < R_HAT else ": more draws, or a longer burn-in")
    return LearningCheck("agreement", _outcome(value < R_HAT), value, R_HAT, text)


def _trend_check(kept: Floats, found: Measured) -> LearningCheck:
    moved, error = trend(kept)
    scale = max(abs(found.value), 0.05)
    text = f"from the first to the last of 8 blocks the draws move by {moved / scale:+.1%}"
    is_real = abs(moved) > 3 * error if isfinite(error) else abs(moved) > _TREND * scale
    if is_real and abs(moved) > _TREND * scale:
        return LearningCheck("trend", "failed", moved / scale, _TREND, f"{text}: a longer burn-in")
    is_clear = abs(moved) + 2 * error <= 3 * _TREND * scale if isfinite(error) else True
    return LearningCheck("trend", "passed" if is_clear else "inconclusive", moved / scale, _TREND, text)


def _step_size(settings: ChainSettings, sharpness: float) -> LearningCheck:
    n_beta = settings.num_observations * settings.inverse_temperature
    measured = settings.step_size * (n_beta * sharpness + settings.localisation)
    factor = 1 / (1 - measured / 4) if measured < 4 else inf
    text = f"the step makes the value at most {factor - 1:.0%} too large, by the largest curvature along the chains"
    if measured > _STEP:
        text += f": step_size={0.1 / measured * settings.step_size:.2g}"
    return LearningCheck("step", _outcome(measured <= _STEP), measured, _STEP, text)


def _length_check(settings: ChainSettings) -> LearningCheck:
    """A chain of T steps does not leave w0 further than a pull of about 1 / (step T) would let it."""
    if settings.localisation == 0:
        return LearningCheck(
            "length", "inconclusive", None, _TRAVEL, "without localisation no length is certain to be enough"
        )
    measured = settings.step_size * settings.num_draws * settings.localisation
    text = f"step x draws x localisation is {measured:.2g}"
    if measured < _TRAVEL:
        enough = _TRAVEL / (settings.step_size * settings.localisation)
        text += f", below {_TRAVEL}: short chains act like a stronger pull; num_draws={enough:.2g} or more"
        text += ", or a larger localisation, which makes the value smaller"
    return LearningCheck("length", _outcome(measured >= _TRAVEL), measured, _TRAVEL, text)


def _batch_check(settings: ChainSettings, sharpness: float) -> LearningCheck:
    assert settings.batch_size is not None
    n_beta = settings.num_observations * settings.inverse_temperature
    wanted = 5 * settings.step_size * n_beta**2 * sharpness
    text = f"batches of {settings.batch_size} for at least {wanted:.3g}, from which on their noise adds 5 % or less"
    return LearningCheck("batch", _outcome(settings.batch_size >= wanted), settings.batch_size, wanted, text)


def default_inverse_temperature(num_observations: float) -> float:
    """beta = 1 / log n, at which the estimator is defined (Lau et al. 2023; Watanabe 2013)."""
    return 1 / log(num_observations)


_FEWEST = 16  # draws of a chain, below which nothing is said
_TRACE = 200  # blocks of a trace
_NO_STEP = 0.0  # before one is chosen


def learning_coefficient_estimate(
    problem: Problem,
    *,
    num_chains: int = 8,
    num_draws: int = 10_000,
    num_burn_in: int | None = None,
    step_size: float | None = None,
    localisation: float = 1.0,
    inverse_temperature: float | None = None,
    num_observations: float | None = None,
    batch_size: int | None = None,
    check_settings: bool = True,
    seconds: float | None = None,
    seed: int = 0,
) -> LearningCoefficientEstimate:
    """Estimate the local learning coefficient at the weights of a problem by stochastic gradient Langevin dynamics.

    Args:
        problem: The problem. Its loss must be a negative log-likelihood, as cross-entropy and the squared loss (noise
            of variance 1) are, and its weights a minimum of it.
        num_chains: Number of chains. Defaults to 8.
        num_draws: Draws of each chain. Defaults to 10,000.
        num_burn_in: Steps before the first draw. Default: half as many as draws.
        step_size: Step of the dynamics. Default: chosen during burn-in from the curvature along the chains.
        localisation: gamma, the pull back to the weights w0, which makes values too small; 0 for none. Defaults to 1.
        inverse_temperature: beta. Default: 1 / log n.
        num_observations: n, for data whose rows each represent many samples. Default: the samples of the problem.
        batch_size: Samples of a step. Default: all, the only choice without bias.
        check_settings: Continue with half the step and with a tenth of the localisation, to see whether the value
            changes. Defaults to True.
        seconds: Stop after this time, with the draws made by then; the same seed then need not give the same draws.
            Default: no limit.
        seed: Seed of the chains. Defaults to 0.

    Returns:
        LearningCoefficientEstimate: The value with its standard error, the checks, and ``verdict``, "unreliable" if one
        of them fails.

    Notes:
        It is n beta (E[L(w)] - L(w0)) for w from exp(-n beta L(w) - gamma |w - w0|^2 / 2), L the mean loss: half the
        number of directions in which the loss rises, where w0 is a smooth optimum. No check detects that at singular
        optima the value is low by about (m - 1) / log(n beta), m the multiplicity. Reference: Lau et al. 2023.

    Example:
        >>> import torch
        >>> line = torch.nn.Linear(2, 1, bias=False)
        >>> inputs = torch.eye(2, dtype=torch.float64).repeat(50, 1)
        >>> problem = Problem(line, "squared", inputs, line.double()(inputs).detach())
        >>> found = learning_coefficient_estimate(problem, num_draws=400, num_observations=1000, check_settings=False)
        >>> 0.8 < found.value < 1.2, found.num_parameters
        (True, 2)
    """
    require_problem(problem)
    settings = _checked_settings(
        problem, num_chains, num_draws, num_burn_in, step_size, localisation, inverse_temperature,
        num_observations, batch_size, seed,
    )  # fmt: skip
    if seconds is not None:
        require(checked_number("seconds", seconds) > 0, "seconds must be positive", f"got {seconds}")
    shown = new_progress()
    try:
        return _estimate(problem, settings, step_size is None, check_settings, deadline_of(seconds), shown)
    finally:
        shown.finish()


def _estimate(
    problem: Problem, settings: ChainSettings, adapts: bool, checks_settings: bool, deadline: float, shown: Progress
) -> LearningCoefficientEstimate:
    risk = ChainRisk(problem, settings.num_chains)
    chains = Langevin(risk, settings, deadline, shown)
    drawn = chains.draws(f"{settings.num_chains} chains around the weights", adapts=adapts)
    num_kept = drawn.kept_energies.shape[1]
    must = f"a chain must have at least {_FEWEST} draws"
    require(num_kept >= _FEWEST, must, f"{drawn.stopped_by} ended them after {num_kept}", "Allow more seconds")
    used = replace(drawn.settings, num_draws=num_kept, num_burn_in=drawn.num_burn_in)
    found, by_chain = _mean_energy(drawn)
    sharpness = chains.largest_curvature(drawn.points)
    checks = chain_checks(drawn.kept_energies, found, used, sharpness, problem.num_parameters)
    is_settled = all(check.outcome != "failed" for check in checks if check.name in ("agreement", "trend"))
    checks += _setting_checks(risk, drawn, found, deadline, shown, is_wanted=checks_settings, is_settled=is_settled)
    half = found.error * float(stdtrit(max(1, len(by_chain) - 1), 0.975))
    return LearningCoefficientEstimate(
        value=found.value,
        standard_error=found.error,
        interval=(found.value - half, found.value + half),
        by_chain=by_chain,
        split_r_hat=split_r_hat(drawn.kept_energies),
        verdict=verdict(checks),
        checks=tuple(checks),
        settings=used,
        num_parameters=problem.num_parameters,
        sharpness=sharpness,
        traces=block_means(drawn.energies, min(_TRACE, drawn.energies.shape[1])),
        burn_in_share=drawn.num_burn_in / drawn.energies.shape[1],
        stopped_by=drawn.stopped_by,
        provenance=provenance(_format(problem), settings.seed, problem.data_hash, (*problem.notes, *_notes(risk))),
    )


def _mean_energy(drawn: Draws) -> tuple[Measured, Floats]:
    """The mean over the chains and its standard error: of the chains where there are several, else of its blocks."""
    by_chain: Floats = drawn.kept_energies.mean(axis=1)
    means = by_chain if len(by_chain) > 1 else block_means(drawn.kept_energies)[0]
    return Measured(float(by_chain.mean()), float(np.std(means, ddof=1)) / math.sqrt(len(means))), by_chain


def _setting_checks(
    risk: ChainRisk,
    drawn: Draws,
    found: Measured,
    deadline: float,
    shown: Progress,
    is_wanted: bool,
    is_settled: bool,
) -> list[LearningCheck]:
    """The same chains, a little further with another setting."""
    goes_on = is_wanted and drawn.stopped_by == "draws"
    settings = drawn.settings
    shorter = replace(settings, num_draws=max(_FEWEST, settings.num_draws // 2), seed=settings.seed + 1)
    shorter = replace(shorter, num_burn_in=settings.num_burn_in // 2)
    tried: dict[str, Measured | None] = {"step": None, "pull": None}
    if goes_on:
        tried["step"] = _energy_with_settings(
            risk, drawn, replace(shorter, step_size=settings.step_size / 2), deadline, shown
        )
    if goes_on and settings.localisation:
        weaker = replace(shorter, localisation=settings.localisation / 10)
        tried["pull"] = _energy_with_settings(risk, drawn, weaker, deadline, shown)
    checks = [setting_check("half step", "half the step", found, tried["step"], "take a smaller step_size", is_settled)]
    if settings.localisation:
        what = "a tenth of the localisation"
        checks.append(
            setting_check("weaker pull", what, found, tried["pull"], "take a smaller localisation", is_settled)
        )
    return checks


def _energy_with_settings(
    risk: ChainRisk, drawn: Draws, settings: ChainSettings, deadline: float, shown: Progress
) -> Measured | None:
    """The value with other settings, from where the chains are; None if the time was over."""
    step = f"with step {settings.step_size:.2g} and localisation {settings.localisation:g}"
    more = Langevin(risk, settings, deadline, shown).draws(step, drawn.points)
    return _mean_energy(more)[0] if more.stopped_by == "draws" else None


def _checked_settings(
    problem: Problem,
    num_chains: int,
    num_draws: int,
    num_burn_in: int | None,
    step_size: float | None,
    localisation: float,
    inverse_temperature: float | None,
    num_observations: float | None,
    batch_size: int | None,
    seed: int,
) -> ChainSettings:
    draws = checked_count("num_draws", num_draws, _FEWEST)
    burn_in = draws // 2 if num_burn_in is None else checked_count("num_burn_in", num_burn_in, 0)
    observations = (
        problem.normaliser if num_observations is None else checked_number("num_observations", num_observations)
    )
    must, remedy = "an estimate needs more than e = 2.7 observations, for log n > 1", "Give num_observations"
    require(math.e < observations < math.inf, must, f"there are {observations:g}", remedy)
    beta = default_inverse_temperature(observations)
    numbers = {
        "step_size": _NO_STEP if step_size is None else checked_number("step_size", step_size),
        "localisation": checked_number("localisation", localisation),
        "inverse_temperature": beta
        if inverse_temperature is None
        else checked_number("inverse_temperature", inverse_temperature),
    }
    for name, value in numbers.items():
        may_be_zero = name == "localisation" or (name == "step_size" and step_size is None)
        is_right = math.isfinite(value) and (value > 0 or (value == 0 and may_be_zero))
        require(
            is_right, f"{name} must be finite and {'not negative' if may_be_zero else 'positive'}", f"got {value:g}"
        )
    if batch_size is not None:
        batch_size = checked_count("batch_size", batch_size, 1)
        must, got = "batch_size must be at most the number of samples", f"{batch_size} for {problem.num_samples}"
        require(batch_size <= problem.num_samples, must, got)
    return ChainSettings(
        num_observations=float(observations),
        num_chains=checked_count("num_chains", num_chains, 1),
        num_burn_in=burn_in,
        num_draws=draws,
        batch_size=None if batch_size == problem.num_samples else batch_size,
        seed=checked_seed(seed),
        **numbers,
    )


def _format(problem: Problem) -> str:
    return str(problem.dtype).removeprefix("torch.")


def _notes(risk: ChainRisk) -> tuple[str, ...]:
    loss = risk.problem.loss
    together = () if risk.is_parallel else ("the chains were run one after the other",)
    if loss.is_log_likelihood:
        return together
    return (*together, f"the loss '{loss.name}' is not known to be a negative log-likelihood")
