"""Chains of stochastic gradient Langevin dynamics around trained weights, and the loss along them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, func

from hessmap.errors import InvalidInput, sentence
from hessmap.linalg import full_precision
from hessmap.measurement import Floats
from hessmap.problem import Inputs, Problem, bytes_per_sample, take_rows
from hessmap.progress import Progress
from hessmap.records import ChainSettings

_AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-3}


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
