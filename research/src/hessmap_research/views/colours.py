"""One colour for one name in all panels of a study; those of the three Hessians are theirs alone."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.colors import to_hex

from hessmap.views.plots.style import FAINT, HESSIAN_COLOURS, KIND_COLOURS, SERIES_COLOURS
from hessmap_research.runner.view import Cloud, Histogram, Lines
from hessmap_research.views.panels import Panel, curves, kind_label, kinds_of, sort_key

# So that several marks of a panel differ, also from its series; grey with dashes first.
MARK_STROKES = (
    (FAINT, (4.0, 3.0)),
    ("#8e7cc3", (1.0, 2.0)),
    ("#e69f00", (6.0, 2.0, 1.0, 2.0)),
    ("#56b4e9", (10.0, 3.0)),
)


def shades(opened: Sequence[Panel]) -> dict[str, str]:
    """One colour for each label of all panels, none of them that of a Hessian, a histogram or a cloud beside them.

    Nor that of a reference line, where enough are left. Where there are more labels than colours, those that no panel
    has together may share one.
    """
    drawn = [curves(panel.figure, panel.rows) for panel in opened if isinstance(panel.figure, Lines)]
    labels = list(dict.fromkeys(curve.label for some in drawn for curve in some if not curve.part))
    has_hessians = any(curve.part for some in drawn for curve in some) or any(panel.figure.part for panel in opened)
    taken = set(HESSIAN_COLOURS.values()) if has_hessians else set()
    taken.update(*(_colours_of_no_lines(panel) for panel in opened))
    free = [colour for colour in SERIES_COLOURS if colour not in taken]
    marked = _colours_of_marks(opened)
    unmarked = [colour for colour in free if colour not in marked]
    clouds = _cloud_shades(opened)
    for enough in (unmarked, free):
        if len(labels) <= len(enough):
            return clouds | dict(zip(labels, enough, strict=False))
    together = [{curve.label for curve in some} for some in drawn]
    return clouds | (_reused(labels, together, free) or _graded(labels))


def _colours_of_marks(opened: Sequence[Panel]) -> set[str]:
    """Those of the reference lines; that of a value of a field is the value's own."""
    numbers = [sum(not mark.by for mark in panel.figure.marks) for panel in opened]
    return {colour for colour, _ in MARK_STROKES[: max(numbers, default=0)]}


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
    taken = set(HESSIAN_COLOURS.values()) if any(panel.figure.part for panel in opened) else set()
    free = [colour for colour in KIND_COLOURS if colour not in taken]
    found: dict[str, str] = {}
    for parts in fields.values():
        named = {kind: label for part in parts for kind, label in part.items()}
        labels = [named[kind] for kind in sorted(named, key=sort_key)]
        if taken or any(len(part) < len(labels) for part in parts):
            found |= dict(zip(labels, free, strict=False)) if len(labels) <= len(free) else _graded(labels)
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
