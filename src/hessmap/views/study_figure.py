"""The figures of a study: all panels in one file, or each as a drawing inside a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from hessmap.errors import require
from hessmap.studies.collection import Collection
from hessmap.views.page import inline_svg
from hessmap.views.plots.style import new_figure
from hessmap.views.study_panels import draw, panels

FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
_MAX_COLUMNS = 3
_PANEL_INCHES = (4.4, 3.3)


@dataclass(frozen=True)
class Drawing:
    """A panel as inline SVG, which takes the ink and the grid of the page that it stands in, and its title."""

    title: str
    svg: str


def study_figure(collection: Collection) -> Figure:
    """All panels of a study in one matplotlib figure."""
    opened = panels(collection.study.view.figures, collection.stored.rows)
    num_columns = max(1, min(_MAX_COLUMNS, len(opened)))
    num_lines = max(1, -(-len(opened) // num_columns))
    width, height = _PANEL_INCHES
    figure = new_figure(width * num_columns, height * num_lines)
    for place, panel in enumerate(opened, start=1):
        draw(figure.add_subplot(num_lines, num_columns, place), panel, panel.title)
    return figure


def save_study_figure(collection: Collection, path: Path) -> Path:
    """Write the figure of a study as PNG, SVG or PDF, by the suffix of the path; equal records give equal files."""
    suffixes = ", ".join(FIGURE_SUFFIXES)
    require(path.suffix in FIGURE_SUFFIXES, f"a figure file must end in {suffixes}", f"got {path.name!r}")
    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}[path.suffix]
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": collection.study.name}):
        study_figure(collection).savefig(path, dpi=160, metadata=undated)
    return path


def inline_drawings(collection: Collection) -> list[Drawing]:
    """Every panel as a drawing of its own, so that a narrow page shows them one below the other."""
    drawings: list[Drawing] = []
    for place, panel in enumerate(panels(collection.study.view.figures, collection.stored.rows)):
        figure = new_figure(*_PANEL_INCHES)
        draw(figure.add_subplot(), panel)
        drawings.append(Drawing(panel.title, inline_svg(figure, salt=f"panel{place}")))
    return drawings
