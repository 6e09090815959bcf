"""What a reader takes from axes and legends: no mark is cut, a colour and a stroke mean one thing in all panels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_studies
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from hessmap.runs.collection import Collection, StoredRecords
from hessmap.runs.view import Figure
from hessmap.studies import Cloud, Histogram, Lines, Row, Series, Study, View
from hessmap.views.study.figure import draw, study_figure
from hessmap.views.study.panels import Panel


def rows_of(*values: float, **more: Any) -> tuple[Row, ...]:
    return tuple(Row({"n": place + 1}, {"p": value, **more}) for place, value in enumerate(values))


def drawn(figure: Figure, rows: tuple[Row, ...]) -> Axes:
    axes = Canvas().add_subplot()
    draw(axes, Panel(figure, rows))
    return axes


def canvas_of(*figures: Figure, rows: tuple[Row, ...]) -> Canvas:
    study = Study("toy/seen", "Is it seen?", "none", cases=(), measure=toy_studies.square, view=View(figures, ("n",)))
    return study_figure(Collection(study, StoredRecords(rows, (), ()), "a test", Path("results")))


FREE = Cloud(title="", x="n", y="p")
FROM_ZERO = Cloud(title="", x="n", y="p", x_limits=(0.0, None), y_limits=(0.0, None))


@pytest.mark.parametrize("figure", [FREE, FROM_ZERO])
@pytest.mark.parametrize("values", [(0.74, 0.75, 0.83), (0.1, 0.2, 0.9)])
def test_an_axis_from_zero_has_room_for_the_largest_values(figure: Cloud, values: tuple[float, ...]) -> None:
    axes = drawn(figure, rows_of(*values))
    low, high = axes.get_ylim()
    assert low == 0.0
    assert high - max(values) > 0.04 * high
    left, right = axes.get_xlim()
    assert right - len(values) > 0.04 * (right - left)


@pytest.mark.parametrize("ends", [(0.0024, 0.055), (1.0, 24.0)])
def test_a_logarithmic_axis_with_one_power_of_ten_or_little_more_has_plain_numbers(ends: tuple[float, float]) -> None:
    lines = Lines(title="", x="n", series=(Series("a", points="p"),), y_scale="log")
    axes = drawn(lines, rows_of(*ends))
    low, high = axes.get_ylim()
    shown = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert len(shown) >= 4


def test_a_stroke_is_explained_only_for_series_that_have_several() -> None:
    series = (Series("norm", line="p", points="p"), Series("next", points="q"), Series("loss", dashed="q"))
    axes = drawn(Lines(title="", x="n", series=series), rows_of(1.0, 2.0, q=3.0))
    handles, labels = axes.get_legend_handles_labels()
    assert labels == ["norm", "next", "loss", "circles measured"]
    strokes = [(handle.get_linestyle(), handle.get_marker()) for handle in handles[:3]]
    assert strokes == [("-", "None"), ("None", "o"), ("--", "None")]


def test_lines_beside_a_histogram_have_none_of_its_colours() -> None:
    rows = rows_of(1.0, 2.0, at=np.array([0.0, 1.0]), density=np.ones(2))
    histogram = Histogram(title="", values="at", density="density", density_at="at")
    lines = Lines(title="", x="n", series=(Series("a", line="p"), Series("b", points="p")))
    canvas = canvas_of(histogram, lines, rows=rows)
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == ["measured", "predicted", "a", "b"]
    first, second = canvas.axes
    taken = {first.lines[0].get_color(), "#0072b2"}
    assert not taken & {line.get_color() for line in second.lines}


@pytest.mark.parametrize("num_kinds", [4, 11])
def test_a_kind_of_points_has_one_colour_in_all_panels(num_kinds: int) -> None:
    rows = tuple(
        Row({"data": data, "kernel": kernel}, {"p": 1.0 + kernel})
        for data, kernels in (("a", range(num_kinds - 1)), ("b", range(1, num_kinds)))
        for kernel in kernels
    )
    canvas = canvas_of(Cloud(title="", x="kernel", y="p", colour="kernel", facet="data"), rows=rows)
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"kernel {kind}" for kind in range(num_kinds)]
    colours = [{line.get_label(): line.get_color() for line in axes.lines} for axes in canvas.axes]
    assert all(colours[0][label] == colours[1][label] for label in colours[0].keys() & colours[1].keys())
    assert len(set((colours[0] | colours[1]).values())) == num_kinds


def test_kinds_of_two_fields_do_not_share_out_the_colours() -> None:
    rows = tuple(Row({"logit": one, "label": (one + 1) % 10}, {"p": 1.0 + one}) for one in range(10))
    clouds = (Cloud(title="", x="p", y="p", colour=field) for field in ("logit", "label"))
    for axes in canvas_of(*clouds, rows=rows).axes:
        assert len({line.get_color() for line in axes.lines}) == 8
        assert len({(line.get_color(), line.get_marker()) for line in axes.lines}) == 10


def test_a_label_shows_the_words_of_a_case() -> None:
    rows = (Row({"n": 1, "way": "output_zero"}, {"p": 1.0}),)
    axes = drawn(Lines(title="", x="n", series=(Series("{way}", points="p"),), split="way"), rows)
    assert axes.get_legend_handles_labels()[1] == ["output zero"]


def test_a_name_keeps_its_colour_where_there_are_more_names_than_colours() -> None:
    """Nine names: "s3" stands second in one panel and fourth in the other."""
    first, second = (
        Lines(title="", x="n", series=tuple(Series(f"s{place}", points="p") for place in places))
        for places in ((0, 3, 1, 2, 4), (5, 6, 7, 3, 8))
    )
    canvas = canvas_of(first, second, rows=rows_of(1.0, 2.0))
    colours = [{line.get_label(): line.get_color() for line in axes.get_lines()} for axes in canvas.axes]
    assert [len(set(some.values())) for some in colours] == [5, 5]
    assert colours[0]["s3"] == colours[1]["s3"]
