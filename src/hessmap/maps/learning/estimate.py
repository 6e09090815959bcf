"""The local learning coefficient of any model, from chains around its weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy.special import stdtrit

from hessmap.errors import checked_count, checked_number, checked_seed, require
from hessmap.maps.learning.chain_risk import ChainRisk
from hessmap.maps.learning.checks import Measured, chain_checks, default_inverse_temperature, setting_check, verdict
from hessmap.maps.learning.convergence import block_means, split_r_hat
from hessmap.maps.learning.langevin import Draws, Langevin, deadline_of
from hessmap.measurement import Floats
from hessmap.problem import Problem, require_problem
from hessmap.progress import Progress, new_progress
from hessmap.records import ChainSettings, LearningCheck, LearningCoefficientEstimate, provenance

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
    """The local learning coefficient at the weights w0 of a problem, by stochastic gradient Langevin dynamics.

    It is n beta (E[L(w)] - L(w0)) for w from exp(-n beta L(w) - gamma |w - w0|^2 / 2), L the mean loss: half the number
    of directions in which the loss rises, where w0 is a smooth optimum. The loss must be minus a log-likelihood, as
    cross-entropy and the squared loss (noise of variance 1) are, and the weights a minimum of it.

    num_chains, num_draws, num_burn_in: chains, draws of each, and steps before (half as many as draws).
    step_size: of the dynamics; unless given, chosen during burn-in from the curvature that the chains meet.
    localisation: gamma, the pull back to w0, which makes values too small; 0 is none.
    inverse_temperature: beta, 1 / log n unless given.
    num_observations: n, the samples of the problem unless given, as for data whose rows stand for many samples.
    batch_size: samples of a step; all unless given, which is the only choice without a bias of its own.
    check_settings: go on with half the step, and with a tenth of the localisation, to see whether the value stays.
    seconds: stop after that time, with what there is by then; the same seed then need not give the same draws.

    Every check of the result says what it looked at; one that fails makes the verdict "unreliable". What none of them
    sees: at singular optima the value is low by about (m - 1) / log(n beta), m the multiplicity.

    Reference: Lau et al. 2023.

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
    observations = problem.mass if num_observations is None else checked_number("num_observations", num_observations)
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
    together = () if risk.is_parallel else ("the chains went through the model one after the other",)
    if loss.is_log_likelihood:
        return together
    return (*together, f"the loss '{loss.name}' is not known to be minus a log-likelihood")
