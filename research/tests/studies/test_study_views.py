"""Figures, tables and pages from declarations: the numbers that are drawn, and what a page must be."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toy_studies
from matplotlib.figure import Figure

from hessmap.errors import InvalidInput, UnknownName
from hessmap.views.plots import write_figure
from hessmap.views.plots.style import HESSIAN_COLOURS, literal, mathematics
from hessmap_research.runner.collection import Collection, StoredRecords
from hessmap_research.runner.store import Failure
from hessmap_research.studies import (
    INDEX,
    Check,
    Claim,
    Cloud,
    Column,
    Heatmap,
    Histogram,
    Lines,
    Mark,
    Row,
    Series,
    Study,
    View,
)
from hessmap_research.views.figure import draw, inline_drawings, study_figure, write_study_figure
from hessmap_research.views.panels import Panel, curves, panels
from hessmap_research.views.table import study_table
from hessmap_research.views.text import study_page

ROWS = [
    Row(
        {"width": width, "seed": seed, "activation": activation},
        {
            "predicted": {"value": 10 * width, "kind": "exact"},
            "measured": {"value": 10 * width + seed, "decidable": width != 4, "gap": 2.0},
            "bound": 20 * width,
            "eigenvalues": np.array([4.0, 2.0, 1.0])[: 3 - seed] * width,
            "matrix": np.eye(2) * width,
            "points": np.array([1.0, 2.0]),
            "labels": np.array([0, 1]),
            "is_sure": True,
        },
    )
    for activation in ("relu", "tanh")
    for width in (4, 2, 3)
    for seed in (0, 1)
]
LINES = Lines(
    title="rank",
    x="width",
    series=(Series("$H_{L}$", line="predicted", points="measured", dashed="bound"),),
    split="activation",
    marks=(Mark(3.0, "here"), Mark("bound", axis="y")),
)
SPECTRUM = Lines(
    title="spectrum", x=INDEX, series=(Series("width {width}", points="eigenvalues"),), facet="width", y_scale="log"
)
EVERY_KIND = (
    LINES,
    SPECTRUM,
    Heatmap(title="matrix", value="matrix", where={"width": 2}, colours="diverging"),
    Heatmap(title="grid", value="measured", x="width", y="activation"),
    Histogram(title="density", values="eigenvalues", density="points", density_at="points", bins=4),
    Cloud(title="cloud", x="points", y="points", colour="labels"),
    Cloud(title="scatter", x="width", y="measured", colour="activation", x_scale="symlog"),
)


def collection_of(*figures: Any, rows: Any = ROWS, **more: Any) -> Collection:
    study = Study(
        name="toy/seen",
        question="Is <this> seen?",
        reference="none",
        cases=(),
        measure=toy_studies.square,
        view=View(figures, table=more.pop("table", ("width", "measured")), group_by=more.pop("group_by", ())),
        **more,
    )
    failures = (Failure('{"width":9}', "ValueError: <b>bold</b>\nTraceback", 1),)
    stored = StoredRecords(tuple(rows), failures, ({"versions": {"hessmap": "0.1.0"}},))
    return Collection(study, stored, "a test", Path("/home/someone/a test"))


def test_numbers_over_a_field_are_averaged_over_seeds_and_sorted() -> None:
    drawn = curves(LINES, ROWS)
    assert [(curve.label, curve.style) for curve in drawn] == [
        (f"$H_{{L}}$, {activation}", style) for activation in ("ReLU", "tanh") for style in ("dashed", "line", "points")
    ]
    measured = drawn[2]
    assert list(measured.x) == [2.0, 3.0, 4.0]
    np.testing.assert_array_equal(measured.y, [20.5, 30.5, 40.5])
    np.testing.assert_array_equal(measured.low, [20.0, 30.0, 40.0])
    np.testing.assert_array_equal(measured.high, [21.0, 31.0, 41.0])
    assert measured.has_band
    assert not drawn[1].has_band
    assert len({curve.colour for curve in drawn[:3]}) == 1
    assert drawn[3].colour != drawn[0].colour


def test_arrays_are_drawn_over_their_index_to_the_shortest() -> None:
    opened = panels([SPECTRUM], ROWS)
    assert [panel.title for panel in opened] == [f"spectrum, width {width}" for width in (4, 2, 3)]
    (curve,) = curves(SPECTRUM, opened[1].rows)
    assert list(curve.x) == [1, 2]
    np.testing.assert_array_equal(curve.y, [8.0, 4.0])
    assert curve.label == "width 2"


def test_where_keeps_rows_and_a_figure_without_rows_gives_no_panel() -> None:
    some, none = ({"width": 2, "seed": 0}, {"width": 7})
    (panel,) = panels([Lines(title="", x="", series=(), where=some)], ROWS)
    assert [row["activation"] for row in panel.rows] == ["relu", "tanh"]
    assert panels([Lines(title="", x="", series=(), where=none)], ROWS) == []


def test_words_are_categories_in_the_order_of_the_rows() -> None:
    figure = Lines(title="", x="activation", series=(Series("a", points="bound"),))
    (curve,) = curves(figure, ROWS)
    assert list(curve.x) == ["relu", "tanh"]


def test_a_name_that_no_row_has_is_an_error_and_one_that_some_have_is_not() -> None:
    with pytest.raises(UnknownName, match="the line of series 'a' must be one of"):
        curves(Lines(title="", x="width", series=(Series("a", line="boundd"),)), ROWS)
    rows = [*ROWS, Row({"width": 9}, {"other": 1.0})]
    (curve,) = curves(Lines(title="", x="width", series=(Series("a", line="other"),)), rows)
    assert list(curve.x) == [9.0]


@pytest.mark.parametrize("figure", EVERY_KIND, ids=lambda figure: figure.title)
def test_every_kind_of_figure_draws_something(figure: Any) -> None:
    (panel, *_) = panels([figure], ROWS)
    axes = Figure().add_subplot()
    draw(axes, panel, has_title=True)
    assert axes.lines or axes.images or axes.patches
    assert axes.get_title(loc="left") == panel.title


def test_predictions_are_lines_measurements_points_and_marks_dashes() -> None:
    axes = Figure().add_subplot()
    draw(axes, Panel(LINES, tuple(row for row in ROWS if row["activation"] == "relu")))
    colour, bound, predicted, measured, *strokes, here = axes.lines[:9]
    at_bounds = axes.lines[9:]
    assert (bound.get_linestyle(), predicted.get_linestyle(), measured.get_linestyle()) == ("--", "-", "None")
    assert measured.get_marker() == "o"
    said = ["circles measured", "lines predicted", "dashes bounds", "bands over seeds"]
    assert [line.get_label() for line in strokes] == said
    assert [line.get_linestyle() for line in strokes] == ["None", "-", "--", "-"]
    assert colour.get_color() == bound.get_color() == predicted.get_color() == measured.get_color()
    assert list(here.get_xdata()) == [3.0, 3.0]  # type: ignore[arg-type]
    assert [line.get_ydata()[0] for line in at_bounds] == [40.0, 60.0, 80.0]  # type: ignore[index]


def test_the_density_of_a_histogram_counts_what_lies_outside_its_limits() -> None:
    figure = Histogram(title="", values="values", bins=1, x_limits=(0.0, 2.0))
    axes = Figure().add_subplot()
    draw(axes, Panel(figure, (Row({}, {"values": np.array([1.0, 1.0, 5.0, 9.0])}),)))
    assert max(axes.patches[0].get_path().vertices[:, 1]) == pytest.approx(2 / 4 / 2.0)  # type: ignore[index, call-overload]


def test_a_logarithmic_axis_without_positive_values_stays_linear() -> None:
    figure = Lines(title="", x="width", series=(Series("a", line="zero"),), y_scale="log", x_scale="log")
    axes = Figure().add_subplot()
    draw(axes, Panel(figure, (Row({"width": 1}, {"zero": 0.0}), Row({"width": 10}, {"zero": 0.0}))))
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "linear")


def test_all_panels_go_into_one_figure() -> None:
    figure = study_figure(collection_of(*EVERY_KIND))
    assert len([axes for axes in figure.axes if axes.get_title(loc="left")]) == 9


def test_a_figure_is_written_in_the_format_of_its_suffix_and_always_the_same(tmp_path: Path) -> None:
    collection = collection_of(LINES)
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        path = write_study_figure(collection, tmp_path / "deep" / f"a{suffix}")
        content = path.read_bytes()
        assert content.startswith(start)
        assert write_study_figure(collection, path).read_bytes() == content
    with pytest.raises(InvalidInput, match=r"must end in \.png, \.svg, \.pdf; got 'a\.gif'"):
        write_study_figure(collection, tmp_path / "a.gif")


def test_a_table_has_a_line_for_each_row_or_group() -> None:
    table = study_table(collection_of(table=("activation", Column("measured", "rank", ".1f"), "is_sure", "matrix")))
    assert table.labels == ("activation", "rank", "is sure", "matrix")
    assert table.lines[:2] == (("relu", "40", "yes", "2 x 2 numbers"), ("relu", "41", "yes", "2 x 2 numbers"))
    assert table.is_number == (False, True, True, False)
    grouped = study_table(collection_of(table=("width", "activation", "measured", "nothing"), group_by=("width",)))
    assert grouped.lines[1] == ("2", "relu, tanh", "20.5 (20 to 21)", "")


def test_rows_that_lack_a_field_are_a_group_of_their_own() -> None:
    rows = [Row({"width": 2} | size, {"measured": 3.0}) for size in ({}, {"size": "long"}, {})]
    table = study_table(collection_of(rows=rows, table=("width", "size", "measured"), group_by=("width", "size")))
    assert table.lines == (("2", "", "3"), ("2", "long", "3"))


class Page(HTMLParser):
    """What a page loads, what it says, and whether its tags close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def study_with_everything() -> Collection:
    def claims(rows: Any) -> list[Claim]:
        return [Claim("grow", "widths grow", False, "they do not"), Claim("shrink", "widths shrink", None, "too few")]

    return collection_of(*EVERY_KIND, checks=(Check("measured", "predicted"),), claims=claims)


@pytest.fixture(scope="module")
def text() -> str:
    return study_page(study_with_everything(), "toy_studies:SEEN")


def test_a_page_is_whole_self_contained_light_and_dark_and_fits_a_phone(text: str) -> None:
    page = Page(text)
    assert page.open == []
    assert all(target.startswith(("#", "data:")) for target in page.loads)
    assert not re.search(r"url\((?!#)|@import|<script", text)
    assert "prefers-color-scheme: dark" in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert text.count("<svg") == 9
    assert not re.search(r"<svg[^>]*\swidth=", text)


def test_a_page_says_verdict_disagreements_failures_and_how_to_reproduce(text: str) -> None:
    assert "4 of 12 cases agree with the prediction, 4 disagree, 4 undecidable, 1 failed" in text
    assert 'class="verdict fails"' in text
    assert "Does not hold: widths grow (they do not)" in text
    assert "Inconclusive: widths shrink (too few)" in text
    assert "Cases that disagree" in text
    assert "Cases that cannot be decided" in text
    assert "hessmap study run toy_studies:SEEN" in text
    assert "Made with hessmap 0.1.0" in text


def test_a_page_says_nothing_of_the_machine_it_was_made_on() -> None:
    collection = study_with_everything()
    failure = Failure('{"width":9}', "OSError: no file '/home/someone/data/x.npz'\nTraceback", 1)
    text = study_page(replace(collection, stored=replace(collection.stored, failures=(failure,))), "toy_studies:SEEN")
    assert "Drawn from a test." in text
    assert "OSError: no file &#39;x.npz&#39;" in text
    assert "/home" not in text


ODD_NAMES = (r"$\frac$", "$x$ and $", "a$b$c", "<b>&", "[bold]x[/]", "a\x00b\x07", "{width}", r"\$", "%s", "#222222")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_whatever_a_case_is_called_can_be_drawn_and_paged(name: str, tmp_path: Path) -> None:
    rows = [Row({"width": width, "kind": name}, {"value": float(width)}) for width in (1, 2)]
    series = (Series("{kind}", points="value"), Series(name, line="value"))
    collection = collection_of(
        Lines(title=name, x="width", series=series, facet="kind", x_label=name, marks=(Mark(1.5, name),)),
        Lines(title="categories", x="kind", series=(Series("", points="value"),)),
        Lines(title="split", x="width", series=(Series("", points="value"),), split="kind"),
        Heatmap(title="heat", value="value", x="kind", y="width"),
        Cloud(title="cloud", x="width", y="value", colour="kind"),
        rows=rows,
        table=("kind", "value"),
    )
    page = study_page(collection, "toy_studies:SEEN")
    assert Page(page).open == []
    assert "<b>&" not in page
    assert not name.startswith("#") or f">{name}<" in page  # a name in the colour of the ink stays a name
    figure = study_figure(collection)
    assert write_figure(figure, tmp_path / "a.png", salt="").stat().st_size > 1000
    texts = [label.get_text() for axes in figure.axes for label in axes.get_xticklabels()]
    assert literal(name) in texts


def test_mathematics_of_a_study_is_drawn_as_mathematics_and_broken_mathematics_as_it_is() -> None:
    assert mathematics("$H_L$ and $H_o$") == "$H_L$ and $H_o$"
    assert mathematics(r"$\frac$") == r"\$\frac\$"
    assert mathematics("3 $") == r"3 \$"


def test_a_page_escapes_what_it_is_given(text: str) -> None:
    assert "Is &lt;this&gt; seen?" in text
    assert "ValueError: &lt;b&gt;bold&lt;/b&gt;" in text
    assert "<b>bold" not in text
    assert "Traceback" not in text


def test_the_ink_of_inline_drawings_is_the_ink_of_the_page() -> None:
    for drawing in inline_drawings(collection_of(LINES, EVERY_KIND[2])):
        assert "currentColor" in drawing.svg
        assert "#222222" not in drawing.svg
        identifiers = re.findall(r' id="([^"]*)"', drawing.svg)
        assert not [name for name in identifiers if re.fullmatch(r"[a-z0-9]+_\d+", name)]


def test_a_legend_says_what_circles_and_lines_are_and_hessians_have_their_colours() -> None:
    rows = [Row({"n": n}, {"p": n, "m": n, "q": 2 * n}) for n in (1, 2, 3)]
    series = (
        Series("$H_o$", line="p", points="m", part="outer_product"),
        Series("$H_L$", line="q", points="q", part="loss"),
    )
    axes = Figure().add_subplot()
    draw(axes, Panel(Lines(title="", x="n", series=series), tuple(rows)))
    handles, labels = axes.get_legend_handles_labels()
    assert labels == ["$H_o$", "$H_L$", "circles measured", "lines predicted"]
    assert handles[0].get_color() == HESSIAN_COLOURS["outer_product"]
    assert handles[1].get_color() == HESSIAN_COLOURS["loss"]
    measured_only = Figure().add_subplot()
    draw(measured_only, Panel(Lines(title="", x="n", series=series[1:]), tuple(rows)))
    assert measured_only.get_legend_handles_labels()[1] == ["$H_L$"]


def test_one_hessian_under_two_activations_has_one_colour_and_two_shapes() -> None:
    rows = tuple(
        Row({"n": n, "activation": kind}, {"m": n, "p": n}) for kind in ("identity", "relu") for n in (1.0, 2.0)
    )
    one = Lines(title="", x="n", series=(Series("$H_L$, {activation}", points="m", part="loss"),), split="activation")
    (axes,) = study_figure(collection_of(one, rows=rows)).axes
    assert {line.get_color() for line in axes.lines} == {HESSIAN_COLOURS["loss"]}
    assert [line.get_marker() for line in axes.get_legend_handles_labels()[0]] == ["o", "s"]
    both = replace(one, series=(Series("$H_L$, {activation}", points="m", line="p", part="loss"),))
    (axes,) = study_figure(collection_of(both, rows=rows)).axes
    handles, labels = axes.get_legend_handles_labels()
    assert labels == ["$H_L$, linear", "$H_L$, ReLU", "markers measured", "lines predicted"]
    assert [(line.get_marker(), line.get_linestyle()) for line in handles[:2]] == [("o", "-"), ("s", "-.")]


def test_panels_with_the_same_entries_share_one_legend() -> None:
    rows = tuple(Row({"n": n, "kind": kind}, {"p": n, "m": n}) for kind in "ab" for n in (1, 2))
    one = Lines(title="rank", x="n", series=(Series("a", line="p", points="m"),), facet="kind")
    shared = study_figure(collection_of(one, rows=rows))
    assert len(shared.legends) == 1
    assert all(axes.get_legend() is None for axes in shared.axes)


def test_legends_that_contradict_each_other_stand_below_their_own_panels() -> None:
    rows = tuple(Row({"n": n}, {"p": n, "q": 2 * n}) for n in (1, 2))
    first, second = (Lines(title="", x="n", series=(Series("loss", **{kind: "p"}),)) for kind in ("line", "points"))
    alone = study_figure(collection_of(first, second, rows=rows))
    assert not alone.legends
    for axes in alone.axes:
        legend = axes.get_legend()
        assert legend is not None
        alone.canvas.draw()
        assert legend.get_window_extent().y1 < axes.get_window_extent().y0


def test_a_label_has_one_colour_in_all_panels_and_many_series_do_not_repeat_colours() -> None:
    rows = tuple(Row({"n": n, "kind": str(kind)}, {"p": n + kind, "q": n}) for kind in range(10) for n in (1, 2))
    first = Lines(title="", x="n", series=(Series("a", line="p"), Series("b", line="q")))
    second = replace(first, series=(Series("b", line="q"),))
    axes, others = study_figure(collection_of(first, second, rows=rows)).axes
    assert axes.lines[1].get_color() == others.lines[0].get_color() != axes.lines[0].get_color()
    many = study_figure(collection_of(replace(second, split="kind"), rows=rows)).axes[0]
    assert len({line.get_color() for line in many.lines}) == 10


def test_whole_numbers_have_whole_ticks_and_an_axis_starts_at_zero_unless_all_is_far_from_it() -> None:
    figure = Lines(title="", x="n", series=(Series("a", points="p"),))
    axes, other = (Figure().add_subplot() for _ in range(2))
    draw(axes, Panel(figure, tuple(Row({"n": n}, {"p": n / 2}) for n in (3, 4, 5))))
    assert axes.get_ylim()[0] == 0.0
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    draw(other, Panel(figure, tuple(Row({"n": n}, {"p": 100.0 + n}) for n in (3, 4, 5))))
    assert other.get_ylim()[0] > 90.0
