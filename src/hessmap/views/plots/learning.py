"""Chains around the weights of a model: what each draws along its steps, and what is made of it."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from hessmap.records import LearningCoefficientEstimate
from hessmap.views.plots.style import FAINT, INK, SERIES_COLOURS, SHADE, dress, new_figure


def chains_figure(found: LearningCoefficientEstimate, exact: float | None = None) -> Figure:
    """n beta times the excess loss of every chain in blocks of steps, the estimate as a line, burn-in shaded; the
    ``exact`` coefficient as a dashed line where it is known."""
    figure = new_figure(width=6.4, height=3.4)
    axes = figure.subplots()
    settings = found.settings
    total = settings.num_burn_in + settings.num_draws
    steps = (np.arange(found.traces.shape[1]) + 0.5) * total / found.traces.shape[1]
    axes.axvspan(0, found.burn_in_share * total, color=SHADE, zorder=0)
    axes.plot(steps, found.traces.T, color=SERIES_COLOURS[0], linewidth=0.6, alpha=0.45)
    axes.plot(steps, found.traces.mean(axis=0), color=INK, linewidth=1.2, label="mean of the chains")
    axes.axhline(found.value, color=SERIES_COLOURS[1], linewidth=1.4, label=f"estimate {found.with_error}")
    axes.axhspan(*found.interval, color=SERIES_COLOURS[1], alpha=0.15, linewidth=0)
    if exact is not None:
        axes.axhline(exact, color=FAINT, linestyle="--", linewidth=1.2, label=f"exact {exact:g}")
    axes.set_xlim(0, total)
    axes.set_xlabel("step (burn-in shaded)", fontsize=9, color=INK)
    axes.set_ylabel(r"$n\beta\,(L(w) - L(w_0))$", fontsize=9, color=INK)
    axes.legend(fontsize=8, frameon=False)
    dress(axes, f"{settings.num_chains} chains, {found.verdict}")
    return figure
