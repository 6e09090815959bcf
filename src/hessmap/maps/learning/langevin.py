"""Stochastic gradient Langevin dynamics around the weights of a problem, in parallel chains."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from hessmap.errors import InvalidInput, sentence
from hessmap.maps.learning.chain_risk import ChainRisk, largest_curvatures
from hessmap.measurement import Floats
from hessmap.progress import Progress
from hessmap.records import ChainSettings

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
