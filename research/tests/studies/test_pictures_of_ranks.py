"""What pictures of fully connected and convolutional networks declare: bounds are dashed, nothing is cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hessmap.records import PARTS
from hessmap_research.runner.collection import collection_from_results
from hessmap_research.runner.registry import find, listing
from hessmap_research.studies import Cloud, Lines, Row
from hessmap_research.studies.cnn import (
    growth,
    lenet,
    locality,
    rank_vs_channels,
    rank_vs_filter,
    rank_vs_samples,
)
from hessmap_research.studies.cnn import training as cnn_training
from hessmap_research.studies.fcn import nonlinear_record, relu_bounds
from hessmap_research.studies.fcn import training as fcn_training
from hessmap_research.studies.random_networks.convolutional import DEEP_LAW
from hessmap_research.views.marks import lowest_shown
from hessmap_research.views.panels import curves, panels

RESULTS = Path(__file__).parents[2] / "results"


def lines_of(study: Any, **where: Any) -> list[Lines]:
    """The figures of a study that keep rows with these values."""
    return [
        figure
        for figure in study.view.figures
        if isinstance(figure, Lines) and all(figure.where.get(name) == value for name, value in where.items())
    ]


@pytest.mark.parametrize("study", [rank_vs_filter.STUDY, rank_vs_samples.STUDY, rank_vs_channels.STUDY, locality.STUDY])
def test_dashes_beside_relu_networks_are_said_to_be_of_the_linear_network(study: Any) -> None:
    shown = lines_of(study, activation="relu")
    assert shown
    for figure in shown:
        assert all(series.dashed for series in figure.series if series.points)
        assert figure.reading.dashed.endswith("of the linear network")
    for figure in lines_of(lenet.STUDY):
        for said in (figure.reading.line, figure.reading.dashed):
            assert said.startswith("bounds of the linear network")


def test_what_is_only_bounded_is_dashed() -> None:
    rows = collection_from_results(rank_vs_samples.STUDY, RESULTS, "cifar10").stored.rows
    for figure in lines_of(rank_vs_samples.STUDY, activation="identity", data="cifar10"):
        shown = [row for row in rows if all(row.get(name) == value for name, value in figure.where.items())]
        is_reached = all(
            row.number(f"measured.{part}") == row.number(f"predicted.{part}") for row in shown for part in PARTS
        )
        assert is_reached == all(series.line and not series.dashed for series in figure.series)
    for figure in lines_of(growth.STUDY):
        assert [bool(series.dashed) for series in figure.series] == [True, True, True, False]
    bounds = {series.label: series.dashed for figure in lines_of(relu_bounds.STUDY) for series in figure.series}
    assert all(bool(dashed) == label.startswith("bound") for label, dashed in bounds.items())


def test_the_picture_of_channels_begins_with_the_growth_and_both_slopes() -> None:
    for data in ("digits", "cifar10"):
        first = lines_of(rank_vs_channels.STUDY, data=data)[0]
        assert first.x == "num_parameters"
        assert [(slope.exponent, slope.where["activation"]) for slope in first.slopes] == [
            (0.5, "identity"),
            (1.0, "relu"),
        ]


def test_samples_bound_the_rank_of_the_outer_product_alone() -> None:
    marks = {part: nonlinear_record.rank_marks(part) for part in PARTS}
    assert {part for part, found in marks.items() if any(mark.at == "sample_bound" for mark in found)} == {
        "outer_product"
    }
    for found in marks.values():
        by_activation = {str(mark.at).split(".")[0] for mark in found if mark.by == "activation"}
        assert by_activation == {"measured", "certified"}


@pytest.mark.parametrize("study", [cnn_training.STUDY, fcn_training.STUDY])
def test_trainings_are_shown_over_one_unit_each_data_set_in_a_row(study: Any) -> None:
    along = [figure for figure in lines_of(study) if figure.x == "gradient_norms"]
    assert len(along) >= 6
    for start in range(0, len(along), 3):
        assert len({str(figure.where) for figure in along[start : start + 3]}) == 1
    assert not any(series.line for figure in along for series in figure.series)


@pytest.mark.parametrize("name", ["cnn/training", "fcn/training", "cnn/reconstruction"])
def test_no_measured_point_is_outside_the_axes(name: str) -> None:
    study = find(name)
    for panel in panels(study.view.figures, collection_from_results(study, RESULTS).stored.rows):
        figure = panel.figure
        assert isinstance(figure, Lines)
        drawn = curves(figure, panel.rows)
        low, high = figure.y_limits or (None, None)
        ends = sorted(figure.x_limits or (0.0, float("inf")), key=float)
        for curve in (curve for curve in drawn if curve.style == "points"):
            assert high is None or curve.y.max() <= high
            assert low is None or curve.y.min() >= low or lowest_shown(figure, drawn) == low
            assert ends[0] <= min(curve.x) <= max(curve.x) <= ends[1]


def test_both_sides_of_the_deep_law_have_the_same_axes() -> None:
    clouds = DEEP_LAW.view.figures
    assert len({figure.y_limits for figure in clouds}) == 1
    row = Row({}, {"exact": {"loss": (3, 4)}, "bounds": {"ours": {"loss": (3, 6)}}})
    (ours,) = [figure for figure in clouds if getattr(figure, "y", "") == "bounds.ours.loss - exact.loss"]
    assert row.array(ours.y).tolist() == [0.0, 2.0]  # type: ignore[attr-defined]


def test_what_is_called_by_the_symbol_of_a_hessian_says_which_part_it_is() -> None:
    """The colours come from the parts: of a series, or of a figure whose title names one Hessian."""
    parts = {"$H_L$": "loss", "$H_o$": "outer_product", "$H_f$": "functional"}
    for listed in listing():
        for figure in find(listed.name).view.figures:
            if isinstance(figure, Lines | Cloud):
                assert figure.part == parts.get(figure.title[:5], figure.part), f"{listed.name}: {figure.title}"
            if isinstance(figure, Lines):
                wrong = [one.label for one in figure.series if one.part != parts.get(one.label[:5], "")]
                assert not wrong, f"{listed.name}: {wrong}"
