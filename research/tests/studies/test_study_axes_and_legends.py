"""What a reader takes from axes and legends: no mark is cut, a colour and a stroke mean one thing in all panels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_studies
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from hessmap.records import PARTS, Part
from hessmap.views.plots.style import HESSIAN_COLOURS, SERIES_COLOURS
from hessmap_explorer.figures.studies import panel_data
from hessmap_research.runner.collection import Collection, StoredRecords
from hessmap_research.runner.view import Figure
from hessmap_research.studies import Cloud, Histogram, Lines, Mark, Reading, Row, Series, Slope, Study, View
from hessmap_research.views.figure import draw, study_figure
from hessmap_research.views.panels import Panel


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
    assert labels == ["norm", "next", "loss"]
    strokes = [(handle.get_linestyle(), handle.get_marker()) for handle in handles]
    assert strokes == [("-", "o"), ("None", "o"), ("--", "None")]


ONE_STROKE_EACH = (Series("exact", line="p"), Series("estimate", points="q"))
TWO_STROKES = (Series("width", line="p", points="q"),)


@pytest.mark.parametrize(
    ("series", "reading", "said"),
    [
        (ONE_STROKE_EACH, Reading(points="estimated", line="exact"), ["exact", "estimate"]),
        (ONE_STROKE_EACH[1:], Reading(points="measured"), ["estimate"]),
        (ONE_STROKE_EACH[1:], Reading(points="enclosed to 1e-6"), ["estimate", "circles enclosed to 1e-6"]),
        (TWO_STROKES, Reading(points="exact", line="claimed"), ["width", "circles exact", "lines claimed"]),
        (TWO_STROKES, Reading(points="exact", bands="over teachers"), ["width", "circles exact"]),
    ],
)
def test_a_legend_says_nothing_twice(series: tuple[Series, ...], reading: Reading, said: list[str]) -> None:
    axes = drawn(Lines(title="", x="n", series=series, reading=reading), rows_of(1.0, 2.0, q=3.0))
    assert axes.get_legend_handles_labels()[1] == said


def test_a_legend_says_what_bands_go_over() -> None:
    rows = tuple(
        Row({"n": n, "init": init, "seed": seed}, {"p": n + init + seed})
        for n in (1, 2)
        for init in (0, 1)
        for seed in (0, 1)
    )
    lines = Lines(title="", x="n", series=(Series("a", points="p"),))
    assert drawn(lines, rows).get_legend_handles_labels()[1] == ["a", "bands over initialisations and seeds"]
    one_init = tuple(row for row in rows if row["init"] == 0)
    assert drawn(lines, one_init).get_legend_handles_labels()[1] == ["a", "bands over seeds"]
    said = Lines(title="", x="n", series=lines.series, reading=Reading(bands="over teachers"))
    assert drawn(said, one_init).get_legend_handles_labels()[1] == ["a", "bands over teachers"]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("label", ["$H_o$", "$H_f$, measured", "rank", "the Hessian of {n} units"])
def test_the_colour_of_a_hessian_comes_from_the_part_of_a_series_and_not_from_its_label(label: str, part: Part) -> None:
    (axes,) = canvas_of(Lines(title="", x="n", series=(Series(label, points="p", part=part),)), rows=rows_of(1.0)).axes
    assert {line.get_color() for line in axes.lines} == {HESSIAN_COLOURS[part]}
    (axes,) = canvas_of(Lines(title="$H_L$", x="n", series=(Series(label, points="p"),)), rows=rows_of(1.0)).axes
    assert {line.get_color() for line in axes.lines} == {SERIES_COLOURS[0]}


@pytest.mark.parametrize("said", ["measured, and once more", "lines of text", "bands, dashes"])
def test_the_text_of_a_reading_chooses_no_stroke(said: str) -> None:
    axes = drawn(Lines(title="", x="n", series=TWO_STROKES, reading=Reading(points=said)), rows_of(1.0, q=3.0))
    handles, labels = axes.get_legend_handles_labels()
    assert labels == ["width", f"circles {said}"]
    assert handles[1].get_marker() == "o"


@pytest.mark.parametrize("part", PARTS)
def test_in_a_panel_of_one_hessian_no_series_has_the_colour_of_another(part: Part) -> None:
    lines = Lines(title="ranks", part=part, x="n", series=(Series("full", line="p"), Series("local", points="p")))
    (axes,) = canvas_of(lines, rows=rows_of(1.0, 2.0)).axes
    assert not set(HESSIAN_COLOURS.values()) & {line.get_color() for line in axes.lines}


def test_reference_lines_have_none_of_the_colours_of_series() -> None:
    marks = tuple(Mark(float(place), f"m{place}") for place in range(3))
    series = tuple(Series(f"s{place}", line="p") for place in range(5))
    (axes,) = canvas_of(Lines(title="", x="n", series=series, marks=marks), rows=rows_of(1.0, 2.0)).axes
    colours = {line.get_label(): line.get_color() for line in axes.lines}
    assert len(set(colours.values())) == 8


def test_a_mark_of_each_value_of_a_field_has_the_colour_of_its_series() -> None:
    rows = tuple(
        Row({"activation": name}, {"at": np.array([1.0, 2.0]), "rank": rank})
        for name, rank in (("relu", 5), ("tanh", 7))
    )
    mark = Mark("rank", "rank", by="activation")
    lines = Lines(title="", x="index", series=(Series("{activation}", line="at"),), split="activation", marks=(mark,))
    (axes,) = canvas_of(lines, rows=rows).axes
    colours = {line.get_label(): line.get_color() for line in axes.lines}
    at = {line.get_xdata()[0]: line.get_color() for line in axes.lines if list(line.get_ydata()) == [0, 1]}  # type: ignore[index, arg-type]
    assert at == {5.0: colours["ReLU"], 7.0: colours["tanh"]}
    assert axes.get_legend_handles_labels()[1] == ["ReLU", "tanh", "rank"]
    assert colours["rank"] not in at.values()


def test_a_slope_goes_through_a_point_of_its_rows() -> None:
    rows = tuple(Row({"n": n, "kind": kind}, {"p": n * n}) for kind in "ab" for n in (1, 10, 100))
    slope = Slope(0.5, "slope 1/2", y="p", where={"kind": "b"})
    series = (Series("{kind}", points="p"),)
    lines = Lines(title="", x="n", series=series, split="kind", slopes=(slope,), x_scale="log", y_scale="log")
    drawn_slope = drawn(lines, rows).lines[-1]
    assert drawn_slope.get_label() == "slope 1/2"
    assert np.asarray(drawn_slope.get_xydata()) == pytest.approx(np.array([[1, 1000], [100, 10000]]))
    first = Lines(title="", x="n", series=series, split="kind", slopes=(replace(slope, through="first", exponent=2.0),))
    assert np.asarray(drawn(first, rows).lines[-1].get_xydata()) == pytest.approx(np.array([[1, 1], [100, 10000]]))


@pytest.mark.parametrize(("places", "ticks"), [((1, 2, 4, 8), [1, 2, 4, 8]), ((4, 50, 53, 400), [4, 50, 400])])
def test_a_logarithmic_axis_over_few_numbers_has_its_ticks_at_them(places: tuple[int, ...], ticks: list[int]) -> None:
    lines = Lines(title="", x="n", series=(Series("a", points="p"),), x_scale="log")
    axes = drawn(lines, tuple(Row({"n": n}, {"p": 1.0}) for n in places))
    assert axes.get_xticks().tolist() == ticks
    assert axes.xaxis.get_minorticklocs().size == 0


def test_differences_that_are_all_zero_have_the_axis_of_others() -> None:
    cloud = Cloud(title="", x="n", y="p - q", y_scale="symlog", y_limits=(-0.3, 300.0))
    shown, none = (drawn(cloud, rows_of(*values, q=3)) for values in ((3, 5), (3, 3)))
    assert shown.get_yscale() == none.get_yscale() == "symlog"
    assert shown.get_ylim() == none.get_ylim()
    assert [line.get_ydata().tolist() for line in none.lines] == [[0.0, 0.0]]  # type: ignore[union-attr]


def test_lines_that_differ_in_their_dashes_share_a_legend() -> None:
    marks = tuple(Slope(exponent, f"slope {exponent}", y="p") for exponent in (0.5, 1.0))
    lines = Lines(title="", x="n", series=(Series("a", points="p"),), slopes=marks)
    canvas = canvas_of(lines, lines, rows=rows_of(1.0, 2.0))
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "slope 0.5", "slope 1.0"]


def test_titles_and_labels_spell_names() -> None:
    rows = tuple(
        Row({"n": n, "data": "fashion_mnist", "num_hidden": 1, "layer_norm": norm}, {"p": 1.0})
        for n in (1, 2)
        for norm in (False, True)
    )
    lines = Lines(title="relu, cifar10", x="n", series=(Series("{data}", points="p"),), facet="num_hidden")
    (axes,) = canvas_of(lines, rows=rows).axes
    assert axes.get_title(loc="left") == "ReLU, CIFAR-10, 1 hidden layer"
    assert axes.get_legend_handles_labels()[1][0] == "Fashion-MNIST"
    cloud = Cloud(title="a", x="n", y="p", facet="layer_norm", colour="num_hidden")
    first, _ = canvas_of(cloud, rows=rows).axes
    assert first.get_title(loc="left") == "a, without layer norm"
    assert first.get_legend_handles_labels()[1] == ["1 hidden layer"]


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
        assert len({line.get_color() for line in axes.lines}) == 10


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


def test_a_browser_leaves_the_colours_of_the_hessians_to_them() -> None:
    rows = tuple(Row({"n": n, "activation": kind}, {"p": float(n)}) for kind in ("identity", "relu") for n in (1, 2))
    slope = Slope(0.5, "slope 1/2", y="p", where={"activation": "relu"})
    twice = Lines(title="", x="n", series=(Series("$H_L$, {activation}", points="p", part="loss"),), split="activation")
    traces = panel_data(Panel(replace(twice, slopes=(slope,)), rows)).to_dict()["traces"]
    assert [(trace["label"], trace["colour"]) for trace in traces] == [
        ("H_L, linear", "series2"),
        ("H_L, ReLU", "series3"),
        ("slope 1/2", "faint"),
    ]
    once = Lines(title="", x="n", series=(Series("$H_o$", points="p", part="outer_product"), Series("a", points="p")))
    assert [trace.colour for trace in panel_data(Panel(once, rows)).traces] == ["outer_product", "series3"]
    plain = Lines(title="", x="n", series=(Series("a", points="p"),))
    assert [trace.colour for trace in panel_data(Panel(plain, rows)).traces] == ["series0"]
