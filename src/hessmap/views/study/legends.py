"""What the legends of a study say and where: beside the data, never on them; one colour for one name in all panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from hessmap.runs.view import Cloud, Histogram, Lines
from hessmap.views.plots.style import HESSIAN_COLOURS, INK, SERIES_COLOURS, mathematics
from hessmap.views.study.panels import Curve, Panel, curves, kind_label, kinds_of, sort_key

_SIGNS_AN_INCH = 15  # of a legend
_SHARE_OF_AXES = 0.85  # of the width of a panel
_LINE_INCHES = 0.19  # of a legend
_MOST_SHARED = 14  # entries of a legend for all panels
_STYLE: dict[str, Any] = {"frameon": False, "fontsize": 8.5, "labelcolor": INK}
_NEUTRAL = "#555555"  # of entries that are about strokes of any colour; reference lines have another grey
_STROKES: dict[str, dict[str, Any]] = {
    "circles": {"linestyle": "none", "marker": "o", "markersize": 4.5, "markerfacecolor": "none"},
    "line": {"linestyle": "-", "linewidth": 1.5},
    "lines": {"linestyle": "-", "linewidth": 1.5},
    "dashes": {"linestyle": "--", "linewidth": 1.5},
    "bands": {"linestyle": "-", "linewidth": 6.0, "alpha": 0.3},
}

Entries = list[tuple[str, Any]]


def shades(opened: Sequence[Panel]) -> dict[str, str]:
    """One colour for each label of all panels, none of them that of a Hessian, a histogram or a cloud beside them.

    Where there are more labels than colours, those that no panel has together may share one.
    """
    drawn = [curves(panel.figure, panel.rows) for panel in opened if isinstance(panel.figure, Lines)]
    labels = list(dict.fromkeys(curve.label for some in drawn for curve in some if not hessian_of(curve)))
    has_hessians = any(hessian_of(curve) for some in drawn for curve in some)
    taken = set(HESSIAN_COLOURS.values()) if has_hessians else set()
    taken.update(*(_colours_of_no_lines(panel) for panel in opened))
    free = [colour for colour in SERIES_COLOURS if colour not in taken]
    clouds = _cloud_shades(opened)
    if len(labels) <= len(free):
        return clouds | dict(zip(labels, free, strict=False))
    together = [{curve.label for curve in some} for some in drawn]
    return clouds | (_reused(labels, together, free) or _graded(labels))


def _reused(labels: Sequence[str], together: Sequence[set[str]], free: Sequence[str]) -> dict[str, str]:
    """The first colour for each label that no label beside it has; empty where they do not suffice.

    >>> _reused(["a", "b", "c"], [{"a", "b"}, {"b", "c"}], ["red", "blue"])
    {'a': 'red', 'b': 'blue', 'c': 'red'}
    """
    found: dict[str, str] = {}
    for label in labels:
        beside = {other for panel in together if label in panel for other in panel}
        taken = {found[other] for other in beside if other in found}
        left = [colour for colour in free if colour not in taken]
        if not left:
            return {}
        found[label] = left[0]
    return found


def _cloud_shades(opened: Sequence[Panel]) -> dict[str, str]:
    """One colour for each kind of points of a field where panels have different kinds of it."""
    fields: dict[str, list[dict[str, str]]] = {}
    for figure, rows in ((panel.figure, panel.rows) for panel in opened):
        if isinstance(figure, Cloud) and figure.colour:
            kinds = {kind: kind_label(figure, kind) for kind in kinds_of(figure, rows)}
            fields.setdefault(figure.colour, []).append(kinds)
    found: dict[str, str] = {}
    for parts in fields.values():
        named = {kind: label for part in parts for kind, label in part.items()}
        labels = [named[kind] for kind in sorted(named, key=sort_key)]
        if any(len(part) < len(labels) for part in parts):
            is_few = len(labels) <= len(SERIES_COLOURS)
            found |= dict(zip(labels, SERIES_COLOURS, strict=False)) if is_few else _graded(labels)
    return found


def _graded(labels: Sequence[str]) -> dict[str, str]:
    """More colours than can be told by name, from dark to light."""
    scale = colormaps["viridis"]
    return {label: to_hex(scale(0.92 * place / (len(labels) - 1))) for place, label in enumerate(labels)}


def _colours_of_no_lines(panel: Panel) -> tuple[str, ...]:
    """Measured and predicted density, or the one colour of a cloud of one kind."""
    if isinstance(panel.figure, Histogram):
        return SERIES_COLOURS[:2]
    return SERIES_COLOURS[:1] if isinstance(panel.figure, Cloud) and not panel.figure.colour else ()


def hessian_of(curve: Curve) -> str:
    """Which of the three Hessians a curve is of, where its label is the symbol and no more; empty elsewhere.

    Two curves of one Hessian, as of two activations, must have different colours.
    """
    parts = {"$H_L$": "loss", "$H_o$": "outer_product", "$H_f$": "functional"}
    return parts.get(curve.label, "")


def how_to_read(figure: Lines, drawn: Sequence[Curve]) -> str:
    """What circles, lines and dashes are, where a series has more than one of them; empty elsewhere.

    A series of one stroke says by its own label what that is.
    """
    if figure.reading:
        return figure.reading
    several = [one for one in figure.series if one.points and (one.line or one.dashed)]
    if not several:
        return ""
    styles = {curve.style for curve in drawn if curve.has_others}
    if all(one.line in ("", one.points) for one in several):
        styles -= {"line"}  # lines that join circles say nothing of their own
    words_of = {"points": "circles measured", "line": "lines predicted", "dashed": "dashes bounds"}
    return ", ".join(text for style, text in words_of.items() if style in styles)


def explain_strokes(axes: Axes, reading: str) -> None:
    """An entry of the legend for each part of "circles measured, lines predicted", with such a circle and line."""
    for part in filter(None, reading.split(", ")):
        style = _STROKES.get(part.split()[0].rstrip(":"), {"linestyle": "none"})
        axes.plot([], [], color=_NEUTRAL, label=mathematics(part), **style)


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
    return tuple(str(getattr(handle, name)()) for name in names if hasattr(handle, name))


def _draw(owner: Axes | Figure, entries: Entries, width: float, **place: Any) -> int:
    """Draw a legend in as many columns as so many inches hold; how many lines it has."""
    labels, handles = [label for label, _ in entries], [handle for _, handle in entries]
    widest = max(len(label.replace("$", "").replace("\\", "")) for label in labels) + 6
    num_columns = max(1, min(len(labels), int(_SIGNS_AN_INCH * width / widest)))
    owner.legend(handles, labels, ncols=num_columns, **_STYLE, **place)
    return -(-len(labels) // num_columns)


def _grow(figure: Figure, num_lines: int) -> None:
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + _LINE_INCHES * num_lines)
