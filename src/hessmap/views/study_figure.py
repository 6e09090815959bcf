"""The figures of a study: all panels in one file, or each as a drawing inside a page."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from hessmap.runs.collection import Collection
from hessmap.views.page import Drawing, inline_svg
from hessmap.views.plots.style import new_figure, write_figure
from hessmap.views.study_panels import draw, panels

_MAX_COLUMNS = 3
_PANEL_INCHES = (4.4, 3.3)


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
    return write_figure(study_figure(collection), path, salt=collection.study.name)


def inline_drawings(collection: Collection) -> list[Drawing]:
    """Every panel as a drawing of its own, so that a narrow page shows them one below the other."""
    drawings: list[Drawing] = []
    for place, panel in enumerate(panels(collection.study.view.figures, collection.stored.rows)):
        figure = new_figure(*_PANEL_INCHES)
        draw(figure.add_subplot(), panel)
        drawings.append(Drawing(panel.title, inline_svg(figure, salt=f"panel{place}")))
    return drawings
