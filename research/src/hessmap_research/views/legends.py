"""What the legends of a study say and where: beside the data, never on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hessmap.views.plots.style import INK, mathematics
from hessmap_research.runner.view import Lines, Reading
from hessmap_research.views.panels import Curve
from hessmap_research.views.table import plurals

_SIGNS_AN_INCH = 15  # of a legend
_SHARE_OF_AXES = 0.85  # of the width of a panel
_LINE_INCHES = 0.19  # of a legend
_MOST_SHARED = 14  # entries of a legend for all panels
_STYLE: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "labelcolor": INK}
NEUTRAL = "#555555"  # of entries that are about strokes of any colour; reference lines have another grey
_CIRCLE: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": 4.5, "markerfacecolor": "none"}
_STROKES: dict[str, dict[str, Any]] = {
    "points": _CIRCLE,
    "line": {"linestyle": "-", "linewidth": 1.5},
    "dashed": {"linestyle": "--", "linewidth": 1.5},
    "bands": {"linestyle": "-", "linewidth": 6.0, "alpha": 0.3},
}
_TRIANGLE: dict[str, Any] = {"linestyle": "none", "marker": "v", "markersize": 5.5}
_NOUNS = {"points": "circles", "line": "lines", "dashed": "dashes", "bands": "bands"}
_ROLES = Reading(points="measured", line="predicted", dashed="bounds")

Entries = list[tuple[str, Any]]


def how_to_read(figure: Lines, drawn: Sequence[Curve]) -> Reading:
    """What circles, lines, dashes and bands are, where the entries of the series do not say it; empty elsewhere.

    A series of one stroke shows and says by its own entry what that is. Lines that join circles say nothing.
    """
    has_roles = any(one.points and {one.line, one.dashed} - {"", one.points} for one in figure.series)
    reading = figure.reading if figure.reading != Reading() else _ROLES if has_roles else Reading()
    unneeded = {stroke: "" for stroke in ("points", "line", "dashed") if not _is_needed(stroke, figure, drawn)}
    has_bands = any(curve.has_band for curve in drawn)
    bands = (reading.bands or f"over {plurals(_differing_fields(drawn))}") if has_bands else ""
    return replace(reading, **unneeded, bands=bands)


def reading_text(reading: Reading) -> str:
    """A reading in one line.

    >>> reading_text(Reading(points="measured", dashed="bounds"))
    'circles measured, dashes bounds'
    """
    return ", ".join(f"{_NOUNS[stroke]} {said}" for stroke, said in asdict(reading).items() if said)


def _is_needed(stroke: str, figure: Lines, drawn: Sequence[Curve]) -> bool:
    """Whether the reading of a stroke says more than the entries of the series.

    That is so of strokes that a series has together with others. Where all series are of one stroke, a reading of the
    figure's own may say something of it, but not that circles are measured.
    """
    if any(_stroke_of(curve) == stroke for curve in drawn if curve.has_others):
        return True
    is_of_all = len({_stroke_of(curve) for curve in drawn}) == 1
    own = str(getattr(figure.reading, stroke))
    return bool(own) and is_of_all and (stroke, own) != ("points", _ROLES.points)


def _stroke_of(curve: Curve) -> str:
    """The stroke that says something: that of circles, where a line joins them."""
    return "points" if curve.is_joined else curve.style


def _differing_fields(drawn: Sequence[Curve]) -> list[str]:
    """The fields of the case in which rows differ that make one point, or one curve of arrays."""
    found: dict[str, None] = {}
    for rows in (rows for curve in drawn if curve.has_band for rows in curve.rows if len(rows) > 1):
        names = [name for name in rows[0].case if len({row.case.get(name) for row in rows}) > 1]
        found.update(dict.fromkeys(names))
    return list(found)


def explain_strokes(axes: Axes, reading: Reading, has_squares: bool = False, has_below: bool = False) -> None:
    """An entry of the legend for each stroke that is read: "circles measured" with a circle, and so on.

    With ``has_squares`` not all markers are circles; with ``has_below`` some stand for what is below the axis.
    """
    nouns = {**_NOUNS, "points": "markers"} if has_squares else _NOUNS
    for stroke, said in asdict(reading).items():
        if said:
            axes.plot([], [], color=NEUTRAL, label=mathematics(f"{nouns[stroke]} {said}"), **_STROKES[stroke])
    if has_below:
        axes.plot([], [], color=NEUTRAL, label="triangles below the axis", **_TRIANGLE)


def place_legends(figure: Figure, drawn: Sequence[Axes], num_columns: int) -> None:
    """One legend below all panels where no two of them contradict each other; else each below its own panel.

    The figure grows by what the legends need, so that panels keep their size.
    """
    found = {axes: list(zip(*reversed(axes.get_legend_handles_labels()), strict=True)) for axes in drawn}
    having = {axes: entries for axes, entries in found.items() if entries}
    shared = _joined(list(having.values()))
    if len(having) > 1 and shared:
        num_lines = _draw(figure, shared, figure.get_figwidth(), loc="outside lower center")
        _grow(figure, num_lines)
        return
    width = _SHARE_OF_AXES * figure.get_figwidth() / num_columns
    lines = [_draw(axes, found[axes], width, **_BELOW) if found[axes] else 0 for axes in drawn]
    rows = [lines[start : start + num_columns] for start in range(0, len(lines), num_columns)]
    _grow(figure, sum(max(row) for row in rows))


_BELOW: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, -0.17), "borderaxespad": 0.0}


def _joined(legends: Sequence[Entries]) -> Entries:
    """All entries once; none where one label has two looks, two labels have one look, or there are too many."""
    looks: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    for label, handle in (entry for legend in legends for entry in legend):
        if looks.setdefault(label, _look(handle)) != _look(handle):
            return []
        entries.setdefault(label, handle)
    is_clear = len(set(looks.values())) == len(looks) and len(looks) <= _MOST_SHARED
    return list(entries.items()) if is_clear else []


def _look(handle: Any) -> tuple[str, ...]:
    """What tells one entry of a legend from another."""
    names = ("get_color", "get_linestyle", "get_linewidth", "get_marker", "get_facecolor")
    dashes = str(getattr(handle, "_unscaled_dash_pattern", ""))  # get_linestyle calls all dashes "--"
    return (dashes, *(str(getattr(handle, name)()) for name in names if hasattr(handle, name)))


def _draw(owner: Axes | Figure, entries: Entries, width: float, **place: Any) -> int:
    """Draw a legend in as many columns as fit into ``width`` inches; return its number of lines."""
    labels, handles = [label for label, _ in entries], [handle for _, handle in entries]
    widest = max(len(label.replace("$", "").replace("\\", "")) for label in labels) + 6
    num_columns = max(1, min(len(labels), int(_SIGNS_AN_INCH * width / widest)))
    owner.legend(handles, labels, ncols=num_columns, **_STYLE, **place)
    return -(-len(labels) // num_columns)


def _grow(figure: Figure, num_lines: int) -> None:
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE_INCHES * num_lines)
