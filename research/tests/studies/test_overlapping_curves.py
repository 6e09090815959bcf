"""Curves that lie on each other, that are long, or that fall below the axis: all of them are seen."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from hessmap_research.studies import INDEX, Cloud, Lines, Row, Series
from hessmap_research.views.figure import draw
from hessmap_research.views.panels import Panel


def drawn(figure: Lines | Cloud, rows: tuple[Row, ...], colours: dict[str, str] | None = None) -> Axes:
    axes = Canvas().add_subplot()
    draw(axes, Panel(figure, rows), colours=colours)
    return axes


def xy(line: Line2D) -> NDArray[np.float64]:
    """The points of a line, one in a row."""
    return np.asarray(line.get_xydata(), dtype=np.float64)


def sizes_at(axes: Axes, x: float) -> list[float]:
    """The sizes of the circles at a place, in the order in which they are drawn."""
    points = [line for line in axes.lines if line.get_marker() == "o" and xy(line).size]
    finite = [{place for place, height in xy(line) if np.isfinite(height)} for line in points]
    return [line.get_markersize() for line, places in zip(points, finite, strict=True) if x in places]


ROWS = tuple(Row({"n": n}, {"a": 1.0, "b": 1.0 if n < 3 else 9.0, "c": 5.0}) for n in (1, 2, 3))


def test_circles_under_others_are_rings_around_them() -> None:
    axes = drawn(Lines(title="", x="n", series=tuple(Series(name, points=name) for name in "abc")), ROWS)
    under, over, apart = sizes_at(axes, 1.0)
    assert under > over == apart
    assert len(set(sizes_at(axes, 3.0))) == 1


def test_a_line_under_another_is_wider_where_it_lies_under_it() -> None:
    axes = drawn(Lines(title="", x="n", series=tuple(Series(name, line=name) for name in "abc")), ROWS)
    first, wide, second, third = axes.lines
    assert first.get_color() == wide.get_color()
    assert wide.get_linewidth() > first.get_linewidth() == second.get_linewidth() == third.get_linewidth()
    assert wide.get_zorder() < second.get_zorder()
    assert np.isfinite(xy(wide)[:, 1]).tolist() == [True, True, False]


def test_what_is_below_a_logarithmic_axis_is_a_triangle_at_its_floor() -> None:
    rows = tuple(Row({"n": n}, {"p": value}) for n, value in enumerate((1e-3, 1e-12, 0.0)))
    series = (Series("error", points="p", line="p"),)
    axes = drawn(Lines(title="", x="n", series=series, y_scale="log", y_limits=(1e-10, 1.0)), rows)
    (triangles,) = [line for line in axes.lines if line.get_marker() == "v" and xy(line).size]
    np.testing.assert_allclose(xy(triangles), [[1.0, 1e-10], [2.0, 1e-10]])
    assert axes.get_legend_handles_labels()[1] == ["error", "triangles below the axis"]
    joined = axes.lines[0]
    np.testing.assert_allclose(xy(joined)[:, 1], [1e-3, 1e-10, 1e-10])
    free = drawn(Lines(title="", x="n", series=series, y_scale="log"), rows)
    assert "triangles below the axis" in free.get_legend_handles_labels()[1]
    assert (
        "triangles below the axis"
        not in drawn(Lines(title="", x="n", series=series, y_scale="log"), rows[:2]).get_legend_handles_labels()[1]
    )


def test_markers_of_long_curves_keep_their_size_and_are_thinned() -> None:
    rows = (Row({}, {"few": np.full(60, 9.0), "many": np.linspace(1.0, 2.0, 500)}),)
    axes = drawn(Lines(title="", x=INDEX, series=(Series("few", points="few"), Series("many", points="many"))), rows)
    few, many = axes.lines
    assert few.get_markersize() == many.get_markersize()
    assert few.get_markevery() is None
    assert isinstance(many.get_markevery(), float)


@pytest.mark.parametrize("has_colours", [True, False])
def test_a_series_with_a_colour_of_its_own_has_circles_and_solid_lines(has_colours: bool) -> None:
    rows = tuple(Row({"n": n, "inputs": inputs}, {"p": n * inputs}) for n in (1, 2) for inputs in range(1, 11))
    lines = Lines(title="", x="n", series=(Series("inputs {inputs}", line="n", points="p"),), split="inputs")
    colours = {f"inputs {inputs}": f"#0000{inputs:02d}" for inputs in range(1, 11)} if has_colours else None
    axes = drawn(lines, rows, colours)
    shown = [line for line in axes.lines if xy(line).size]
    assert {line.get_marker() for line in shown} == ({"o", "None"} if has_colours else {"o", "s", "None"})
    assert {line.get_linestyle() for line in shown} == ({"-", "None"} if has_colours else {"-", "-.", "None"})


def test_no_kind_of_a_crowd_is_drawn_over_all_others() -> None:
    values = np.arange(400.0)
    rows = (Row({}, {"x": values, "y": values, "kind": values % 2}),)
    axes = drawn(Cloud(title="", x="x", y="y", colour="kind"), rows)
    colours = [line.get_color() for line in axes.lines]
    assert len(set(colours)) == 2
    assert colours[:4] == [colours[0], colours[1]] * 2
    assert sum(len(xy(line)) for line in axes.lines) == 400
    assert axes.get_legend_handles_labels()[1] == ["kind 0", "kind 1"]
