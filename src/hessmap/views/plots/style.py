"""One look for all figures: colours that colour-blind readers can tell apart, few lines, and text as it is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cbook import is_math_text
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser

from hessmap.errors import InvalidInput, require, sentence

INK = "#222222"
FAINT = "#8a8a8a"
GRID = "#e6e6e6"
PAPER = "#ffffff"
SHADE = "#f4f4f4"
# The colours of Okabe and Ito, legible on white and on black.
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8e7cc3", "#8a8a8a")
# Ten kinds of points, as of ten classes, with a colour each.
KIND_COLOURS = (*SERIES_COLOURS, "#7f4a1d", "#a5c715")
_MARKERS = ("o", "s", "^", "D")
_STROKES = ("-", "-.", ":")
# Darkest first: H_L, H_o, H_f.
HESSIAN_COLOURS = {"loss": INK, "outer_product": SERIES_COLOURS[0], "functional": SERIES_COLOURS[1]}
BAR_COLOURS = ("#c9d6df", "#0072b2")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")


def series_colour(place: int) -> str:
    return SERIES_COLOURS[place % len(SERIES_COLOURS)]


def kind_colour(place: int) -> str:
    return KIND_COLOURS[place % len(KIND_COLOURS)]


def marker(place: int) -> str:
    """Circles first; other shapes for what has a colour that another has."""
    return _MARKERS[place % len(_MARKERS)]


def stroke(place: int) -> str:
    """Solid first; others for what has a colour that another has. Dashes are bounds, and not among them."""
    return _STROKES[place % len(_STROKES)]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure (inches) on the Agg canvas; nothing of pyplot is touched."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    return figure


def literal(text: object) -> str:
    """A name from outside (a layer, a file, a case) as matplotlib must be given it to show it as it is.

    Between two dollars matplotlib reads mathematics, which a name is not; control characters would break an SVG.

    >>> literal("$a$"), literal("a\\x00b")
    ('\\\\$a\\\\$', 'a�b')
    """
    shown = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in str(text))
    return shown.replace("$", r"\$")


def without_mathematics(text: str) -> str:
    """Text for a page, where nothing reads what stands between dollars.

    >>> without_mathematics("$H_o$, $s_{k+1} / s_k$"), without_mathematics("costs 5 $")
    ('H_o, s_(k+1) / s_k', 'costs 5 $')
    >>> without_mathematics(r"$|\\lambda_i|\\;/\\;\\|H_L\\|$")
    '|λ_i| / ‖H_L‖'
    """
    if not is_math_text(text):
        return text
    for written, sign in ((r"\lambda", "λ"), (r"\;", " "), (r"\|", "‖")):
        text = text.replace(written, sign)
    return re.sub(r"[\\$]", "", text).replace("{", "(").replace("}", ")")


def mathematics(text: str) -> str:
    """Text in which ``$..$`` is meant as mathematics; where that cannot be read it is shown as it is."""
    if not is_math_text(text):
        return literal(text)
    try:
        MathTextParser("path").parse(text)
    except ValueError:
        return literal(text)
    return text


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


def legend_below(axes: Axes, handles: Sequence[Artist] | None = None, num_columns: int = 1) -> None:
    """The legend under the axis and its label, where there are no data; of all that has a label, or of ``handles``."""
    found = axes.get_legend_handles_labels()[0] if handles is None else handles
    if found:
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.17), "borderaxespad": 0.0}
        axes.legend(handles=list(found), ncols=num_columns, frameon=False, fontsize=8, labelcolor=INK, **place)


def save_figure(figure: Figure, folder: Path, name: str, formats: Iterable[str] = ("png", "svg")) -> list[Path]:
    """Write a figure once per format; no date is written into the files.

    Args:
        figure: The figure.
        folder: Folder, created if it does not exist.
        name: File name without suffix.
        formats: Suffixes. Defaults to PNG and SVG.

    Returns:
        list[Path]: The files.
    """
    return [write_figure(figure, folder / f"{name}.{suffix}", salt=name, dpi=200) for suffix in formats]


def write_figure(figure: Figure, path: Path, salt: str, dpi: int = 160) -> Path:
    """Write a figure as PNG, SVG or PDF, by the suffix of the path; equal figures give equal files.

    Args:
        figure: The figure.
        path: The file.
        salt: Enters the inner names of an SVG, so that two on one page do not collide.
        dpi: Resolution of a PNG. Defaults to 160.

    Returns:
        Path: The file.
    """
    suffixes = ", ".join(FIGURE_SUFFIXES)
    require(path.suffix in FIGURE_SUFFIXES, f"a figure file must end in {suffixes}", f"got {path.name!r}")
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[path.suffix]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with rc_context({"svg.hashsalt": salt}):
            figure.savefig(path, dpi=dpi, metadata=undated)
    except OSError as error:
        got = f"{path} is not ({error.strerror})"
        raise InvalidInput(sentence("a figure must have a writable file", got)) from error
    return path
