"""Every record that has a picture draws it when it is asked; the others say that they have none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from synthetic_map import curvature_map
from torch import nn

import hessmap as hm
import hessmap.records
from hessmap.errors import InvalidInput, UnknownName
from hessmap.maps.comparison import compare_maps
from hessmap.records import CurvatureTrack, RankValue, Record, Spectrum, TrackPoint
from hessmap.views.plots import track_figure, write_figure

POINT = TrackPoint(
    0,
    0.8,
    1.8,
    np.array([8.0, 5.0]),
    np.zeros(2),
    True,
    None,
    None,
    0.1,
    61,
    True,
    "a",
    seconds=1.0,
    cost=0.1,
    spent=0.1,
)
TRACK = CurvatureTrack(
    "run1",
    "64-10-10 relu",
    "cross_entropy",
    "loss",
    740,
    500,
    "b",
    None,
    2.0,
    0.2,
    {},
    (POINT, replace(POINT, step=40)),
)


def made_records() -> Iterator[Record]:
    """One record of each kind that has a picture."""
    inputs, _ = hm.datasets.digits(num_samples=60)
    network = hm.FullyConnected((64, 8, 6, 10), activation="relu").build(seed=0)
    yield curvature_map()
    yield compare_maps(curvature_map(), curvature_map(with_counterpart=False))
    yield TRACK
    yield hm.spectrum(np.diag([3.0, 2.0, -1.0]))
    yield hm.density_estimate(np.diag([3.0, 2.0, 1.0]), num_probes=2)
    yield hm.top_eigenpairs(np.diag(np.arange(1.0, 30.0)), 3)
    yield hm.maps.functions.bottleneck_view(network, inputs)
    labels = torch.arange(60) % 10
    small = hm.FullyConnected((64, 3, 10), activation="tanh").build(seed=0)
    problem = hm.Problem(small, "cross_entropy", inputs, labels)
    yield hm.compression_plan(problem, (3, 4), 3.5)
    yield hm.pruning_plan(problem, 0.3)
    yield hm.loss_plane(problem, "random", num_points=4)
    yield hm.curvature_projection(problem, "2")
    yield hm.kronecker_error(problem, hm.kronecker_curvature(problem))
    corner = nn.Linear(2, 3, bias=False)
    corner.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    yield hm.maps.functions.class_regions(corner, (-1.0, 1.0, -1.0, 1.5), grid_size=8)


RECORDS = {type(record).__name__: record for record in made_records()}
PICTURED = {
    "CurvatureMap": ("spectrum", "layers", "density"),
    "MapComparison": ("layers",),
    "CurvatureTrack": ("steps",),
    "Spectrum": ("eigenvalues",),
    "DensityEstimate": ("density",),
    "EigenpairsMeasurement": ("eigenvalues",),
    "BottleneckView": ("layers",),
    "KroneckerError": ("layers",),
    "ClassRegions": ("regions",),
    "CompressionPlan": ("costs", "bits"),
    "PruningPlan": ("costs",),
    "LossPlane": ("loss",),
    "CurvatureProjection": ("mass",),
}
TRIED_ELSEWHERE = {"DensityCurve", "LearningCoefficientEstimate", "NetworkCurvature", "StepReport", "WholeCurvature"}
WITHOUT_PICTURE = sorted(
    name
    for name in hessmap.records.__all__
    if isinstance(kind := getattr(hessmap.records, name), type)
    and issubclass(kind, Record)
    and kind is not Record
    and name not in {*PICTURED, *TRIED_ELSEWHERE}
)


@pytest.mark.parametrize("name", PICTURED)
def test_a_record_with_a_picture_draws_it(name: str, tmp_path: Path) -> None:
    record = RECORDS[name]
    for which in (None, *PICTURED[name]):
        figure = record.plot(which)
        assert isinstance(figure, Figure)
        assert any(axes.has_data() for axes in figure.axes)
        assert write_figure(figure, tmp_path / "a.png", salt="").stat().st_size > 2000
    with pytest.raises(UnknownName, match=f"picture of a {name} must be one of {', '.join(PICTURED[name])}"):
        record.plot("portrait")


@pytest.mark.parametrize("name", WITHOUT_PICTURE)
def test_a_record_without_a_picture_says_so(name: str) -> None:
    record = object.__new__(getattr(hessmap.records, name))  # its kind decides, before any field is read
    with pytest.raises(InvalidInput, match=f"must have a picture to be drawn; a {name} has none. These have one: .*Sp"):
        record.plot()


def test_a_network_of_a_map_has_the_pictures_of_the_map() -> None:
    network = curvature_map().network
    assert len(network.plot().axes) == 1
    assert network.plot("layers").axes[0].containers


def test_options_go_to_the_drawing() -> None:
    assert len(RECORDS["BottleneckView"].plot(count=2).axes[0].lines) == 3  # two curves and the tolerance
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        RECORDS["Spectrum"].plot(colour="red")


def test_a_record_draws_without_anything_of_views_being_imported_first() -> None:
    program = (
        "import sys, numpy; from hessmap.records import Spectrum;"
        "made = Spectrum(numpy.array([2.0, -1.0]), 'dense', True, numpy.array([]), 2.0);"
        "assert not [name for name in sys.modules if name.startswith(('hessmap.views', 'matplotlib'))];"
        "print(type(made.plot()).__name__, 'matplotlib.pyplot' in sys.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["Figure", "False", "False"]


def test_eigenvalues_are_drawn_by_magnitude_and_negative_ones_apart() -> None:
    spectrum = Spectrum(np.array([3.0, 1.0, 1e-16, 0.0, -1e-17, -2.0]), "dense", True, np.array([]), 3.0)
    positive, negative, rounding = spectrum.plot().axes[0].lines
    assert list(rounding.get_xdata()) == [4, 5]  # type: ignore[arg-type]
    named = spectrum.plot().axes[0].get_legend_handles_labels()[1]
    assert named == ["positive: 2", "negative: 1", "within the error: 2"]
    known = replace(spectrum, eigenvalue_error=1.5).plot().axes[0].get_legend_handles_labels()[1]
    assert known == ["positive: 1", "negative: 1", "within the error: 3"]
    assert (list(positive.get_xdata()), list(positive.get_ydata())) == ([1, 3], [3.0, 1.0])  # type: ignore[arg-type]
    assert (list(negative.get_xdata()), list(negative.get_ydata())) == ([2], [2.0])  # type: ignore[arg-type]
    nothing = replace(spectrum, eigenvalues=np.zeros(3), converged=False)
    assert not nothing.plot().axes[0].lines
    assert "NOT converged" in nothing.plot().axes[0].get_title(loc="left")


def test_a_line_to_another_model_shows_its_barrier() -> None:
    inputs, labels = hm.datasets.digits(num_samples=30)
    models = [hm.FullyConnected((64, 3, 10), activation="tanh").build(seed=seed) for seed in (0, 1)]
    line = hm.loss_plane(hm.Problem(models[0], "cross_entropy", inputs, labels), models[1], num_points=5)
    axes = line.plot().axes[0]
    assert line.barrier is not None
    assert f"barrier {line.barrier.height:.3g}" in axes.get_title(loc="left")
    named = axes.get_legend_handles_labels()[1]
    assert named == ["loss", "quadratic model at 0", "straight line between both models"]
    assert list(axes.lines[0].get_ydata()) == list(line.loss)  # type: ignore[arg-type]


def test_names_that_look_like_mathematics_are_shown_as_they_are(tmp_path: Path) -> None:
    made = curvature_map()
    names = (r"$\frac$", "$a$ $b$", "c\x00$")
    layers = tuple(replace(layer, name=name) for layer, name in zip(made.network.layers, names, strict=True))
    odd = replace(made, network=replace(made.network, layers=layers, description=r"$\frac$ relu", name="$_$"))
    for figure in (odd.plot(), odd.plot("layers"), compare_maps(odd, odd, "$x", "x$").plot()):
        svg = write_figure(figure, tmp_path / "a.svg", salt="").read_text()
        assert "\x00" not in svg
    view = RECORDS["BottleneckView"]
    renamed = replace(view, bottlenecks=(r"$\frac$",))  # type: ignore[call-arg, type-var]
    assert r"\$\frac\$" in renamed.plot().axes[0].get_title(loc="left")
    write_figure(renamed.plot(), tmp_path / "b.png", salt="")


def track(steps: list[int]) -> CurvatureTrack:
    return replace(TRACK, points=tuple(replace(POINT, step=step) for step in steps))


def test_a_track_draws_gaps_as_gaps() -> None:
    steps = [0, 640, 700, 760, 1500, 1560]
    assert track(steps).gaps == ((0, 640), (760, 1500))
    for axes in track_figure(track(steps)).axes:
        for line in axes.lines:
            if line.get_linestyle() == "-":
                x, y = (np.asarray(values, dtype=float) for values in line.get_data())
                assert np.isnan(y[np.isin(x, [320, 1130])]).all()
                assert np.isfinite(y[np.isin(x, steps)]).all()
                assert sorted({*x.tolist()} - {320.0, 1130.0}) == steps
        assert "not measured" in axes.get_legend_handles_labels()[1]


def test_a_track_without_gaps_is_drawn_through() -> None:
    for steps in ([0], [0, 500], [0, 10, 20, 35, 50]):
        for axes in track_figure(track(steps)).axes:
            assert not any(np.isnan(np.asarray(line.get_ydata(), dtype=float)).any() for line in axes.lines)
            assert "not measured" not in axes.get_legend_handles_labels()[1]


def test_a_value_with_a_picture_of_its_own_kind_only() -> None:
    with pytest.raises(InvalidInput, match="a RankValue has none"):
        RankValue(3, "exact", "a theorem").plot()


def test_the_panels_of_a_track_say_what_they_show_and_keep_their_legends_off_it() -> None:
    made = track([0, 10, 20, 30])
    three = tuple(replace(point, eigenvalues=np.array([9.0, 5.0, 4.0])) for point in made.points)
    figure = track_figure(replace(made, points=three))
    figure.canvas.draw()
    for axes in figure.axes:
        assert axes.get_ylabel()
        legend = axes.get_legend()
        assert legend is None or legend.get_window_extent().y1 < axes.get_window_extent().y0
    (eigenvalues,) = [axes for axes in figure.axes if axes.get_title(loc="left") == "Largest eigenvalues"]
    assert eigenvalues.get_ylim()[0] == 0.0
    curves = [line for line in eigenvalues.lines if len(np.asarray(line.get_xdata())) == 4 and line.get_marker() == "o"]
    assert len({line.get_color() for line in curves}) == len(curves) == 3
