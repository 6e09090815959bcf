"""One look for all figures: colours that colour-blind readers can tell apart, and few lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from hessmap.errors import require

INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e6e6e6"
PAPER = "#ffffff"
SHADE = "#f4f4f4"
# The order of Okabe and Ito, darkest first: H_L, H_o, H_f.
HESSIAN_COLOURS = {"loss": "#222222", "outer_product": "#0072b2", "functional": "#d55e00"}
BAR_COLOURS = ("#c9d6df", "#0072b2")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) on the Agg canvas; nothing of pyplot is touched."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes, title: str = "") -> None:
    """Open frame, faint grid behind the data, title to the left."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=8.5, which="both", length=3)
    axes.grid(visible=True, which="major", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    if title:
        axes.set_title(title, loc="left", fontsize=10, color=INK)


def save_figure(
    figure: Figure, folder: Path, name: str, formats: Iterable[str] = ("png", "svg")
) -> list[Path]:
    """Write the figure once per format and return the paths; no date is written into the files."""
    paths = [folder / f"{name}.{suffix}" for suffix in formats]
    for path in paths:
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=200, metadata=metadata)
    return paths


def write_figure(figure: Figure, path: Path, salt: str) -> Path:
    """Write the figure as PNG, SVG or PDF, by the suffix of the path; equal figures give equal files.

    ``salt`` goes into the inner names of an SVG.
    """
    suffixes = ", ".join(FIGURE_SUFFIXES)
    require(path.suffix in FIGURE_SUFFIXES, f"a figure file must end in {suffixes}", f"got {path.name!r}")
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[path.suffix]
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": salt}):
        figure.savefig(path, dpi=160, metadata=undated)
    return path
