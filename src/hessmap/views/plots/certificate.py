"""A certificate as a gauge: what is promised, what was seen and what test data show, on one axis from 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hessmap.views.plots.style import FAINT, INK, SERIES_COLOURS, dress, new_figure

if TYPE_CHECKING:
    from hessmap.certificates import Certificate

_PROMISED = "#c9d6df"
_ROOM = 1.18  # of the axis behind the largest number


def gauge_figure(certificate: Certificate) -> Figure:
    """Draw the bound as a bar, errors on certified samples and test data as marks, the held-out bound as a line.

    Args:
        certificate: The certificate.

    Returns:
        Figure: A matplotlib figure.
    """
    figure = new_figure(7.2, 2.6)
    axes = figure.subplots()
    marks = error_marks(certificate)
    axes.set_xlim(0, gauge_end(certificate))
    axes.barh([0], [certificate.bound], height=0.5, color=_PROMISED, zorder=1)
    is_near = (certificate.held_out_bound or 0.0) > 0.5 * certificate.bound  # the line would cross the words
    place = (0.0, "left") if is_near else (certificate.bound, "right")
    words = f" bound {certificate.bound:.4f} "
    axes.text(place[0], 0.3, words, fontsize=9, color=INK, ha=place[1], va="bottom")
    if certificate.held_out_bound is not None:
        axes.axvline(certificate.held_out_bound, color=INK, linestyle="--", linewidth=1.2, label=_held_out(certificate))
    for rank, (label, value) in enumerate(marks):
        height = 0.12 - 0.24 * (rank % 2)
        named = f"{label} {value:.4f}"
        axes.plot([value], [height], "o", color=SERIES_COLOURS[rank], markersize=7, label=named, zorder=3)
    _finish(axes, certificate)
    return figure


def gauge_end(certificate: Certificate) -> float:
    """Where the axis ends: behind the largest number, at most at 1."""
    measured = (value for _, value in error_marks(certificate))
    largest = max(certificate.bound, certificate.held_out_bound or 0.0, *measured)
    return min(1.0, _ROOM * largest) if largest > 0 else 1.0


def error_marks(certificate: Certificate) -> list[tuple[str, float]]:
    """The errors that were measured, by what erred and where."""
    values = {
        "stochastic network, certified samples": certificate.sampled_error,
        "mean weights, certified samples": certificate.training_error,
        "stochastic network, test": certificate.stochastic_test_error,
        "mean weights, test": certificate.test_error,
    }
    return [(label, value) for label, value in values.items() if value is not None]


def _held_out(certificate: Certificate) -> str:
    return f"held-out bound of the prior's mean network {certificate.held_out_bound:.4f}"


def _finish(axes: Axes, certificate: Certificate) -> None:
    what = "squared error, clipped at 1" if certificate.loss == "squared" else "error"
    dress(axes, f"Certified with confidence {certificate.confidence:.1%}, KL {certificate.kl:,.1f}")
    axes.set_xlabel(f"{what} (the marks stand apart in height to be told from each other)", fontsize=9, color=INK)
    axes.set_yticks([])
    axes.set_ylim(-0.4, 0.62)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2, frameon=False, labelcolor=INK)
    axes.spines["left"].set_color(FAINT)
