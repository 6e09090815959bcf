"""Figures draw what the records hold; nothing of pyplot's global state is touched."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from synthetic_map import RANKS, SIZE, curvature_map

from hessmap.views.plots import layers_figure, save_figure, spectrum_figure
from hessmap.views.plots.layers import layers_data
from hessmap.views.plots.spectrum import spectrum_data

PNG = b"\x89PNG"


def test_spectrum_has_a_panel_per_network_and_a_curve_per_hessian() -> None:
    figure = spectrum_figure(curvature_map())
    assert [panel.get_title(loc="left") for panel in figure.axes] == [
        "network  (8-12-4-4 relu)",
        "network without activations  (8-12-4-4 relu)",
    ]
    curves = [line for line in figure.axes[1].lines if len(line.get_xdata()) == SIZE]
    assert len(curves) == 3
    assert len(spectrum_figure(curvature_map(with_counterpart=False)).axes) == 1


def test_spectrum_draws_sorted_magnitudes_over_their_index() -> None:
    made = curvature_map()
    part = made.network["loss"]
    flipped = replace(part.spectrum, eigenvalues=-part.spectrum.eigenvalues[::-1])
    network = replace(made.network, parts=(*made.network.parts[:2], replace(part, spectrum=flipped)))
    curve = spectrum_figure(replace(made, network=network)).axes[0].lines[0]
    drawn = np.asarray(curve.get_ydata(), dtype=float)
    assert np.array_equal(curve.get_xdata(), np.arange(1, SIZE + 1))
    assert np.array_equal(drawn, np.sort(np.abs(part.spectrum.eigenvalues))[::-1])


def test_dashed_lines_stand_at_the_predicted_ranks() -> None:
    panel = spectrum_figure(curvature_map()).axes[1]
    dashed = {int(line.get_xdata()[0]) for line in panel.lines if len(line.get_xdata()) == 2}
    assert dashed == set(RANKS.values())


def test_zero_eigenvalues_are_not_drawn() -> None:
    made = curvature_map(with_counterpart=False)
    part = replace(made.network["loss"], spectrum=replace(made.network["loss"].spectrum, eigenvalues=np.zeros(SIZE)))
    network = replace(made.network, parts=(*made.network.parts[:2], part))
    curve = spectrum_figure(replace(made, network=network)).axes[0].lines[0]
    assert np.isnan(np.asarray(curve.get_ydata(), dtype=float)).all()


def test_no_legend_and_no_word_lies_on_a_spectrum() -> None:
    figure = spectrum_figure(curvature_map())
    figure.canvas.draw()
    for axes in figure.axes:
        legend = axes.get_legend()
        assert legend is not None
        assert legend.get_window_extent().y1 < axes.get_window_extent().y0
        assert [text.get_text() for text in legend.get_texts()][-1] == "counted as zero"
        assert not axes.texts


def test_layers_have_a_bar_for_parameters_and_one_for_curvature() -> None:
    made = curvature_map()
    axes = layers_figure(made).axes[0]
    widths = [[bar.get_width() for bar in bars] for bars in axes.containers]
    assert widths[0] == [layer.num_parameters / SIZE for layer in made.network.layers]
    assert widths[1] == [layer.curvature_share for layer in made.network.layers]


def test_figures_are_written_as_png_and_svg(tmp_path: Path) -> None:
    paths = save_figure(layers_figure(curvature_map()), tmp_path, "layers")
    assert [path.name for path in paths] == ["layers.png", "layers.svg"]
    assert paths[0].read_bytes().startswith(PNG)
    assert "<svg" in paths[1].read_text()


def test_drawing_does_not_load_pyplot() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from synthetic_map import curvature_map;"
        "from hessmap.views.plots import layers_figure, spectrum_figure;"
        "spectrum_figure(curvature_map()); layers_figure(curvature_map());"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    here = str(Path(__file__).parent)
    done = subprocess.run([sys.executable, "-c", program, here], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_is_drawn_is_what_a_browser_is_sent() -> None:
    made = curvature_map(with_counterpart=False)
    sent = spectrum_data(made.network).to_dict()
    curves = [line for line in spectrum_figure(made).axes[0].lines if len(line.get_xdata()) == SIZE]
    for trace, curve in zip(sent["traces"], curves, strict=True):
        assert trace["x"] == list(curve.get_xdata())
        assert np.array_equal(np.array(trace["y"], dtype=float), curve.get_ydata(), equal_nan=True)
    assert sent["y"]["label"] == "|λ_i| / ‖H_L‖"
    odd = replace(made.network.layers[0], name="$a$ $b$", curvature_share=0.25, share_error=0.1)
    bars = layers_data(replace(made.network, layers=(odd, *made.network.layers[1:]))).to_dict()
    assert bars["traces"][1]["keys"][0] == bars["traces"][1]["y"][0] == bars["y"]["names"][0] == "$a$ $b$"
    assert (bars["traces"][1]["low"][0], bars["traces"][1]["high"][0]) == (0.15, 0.35)
    named = replace(made.network, name="$x$")
    assert spectrum_data(named).to_dict()["title"] == "Spectra of the $x$"


def test_a_long_curve_is_thinned_for_a_browser_alone() -> None:
    network = curvature_map(with_counterpart=False).network
    thinned = spectrum_data(network, most=40)
    assert "of 160 points are drawn" in thinned.note
    for part, trace in zip(("loss", "outer_product", "functional"), thinned.traces, strict=True):
        assert len(trace.x) < SIZE
        rank = network[part].measurement.value  # type: ignore[index]
        assert {rank, rank + 1} <= {*trace.x}
    assert not spectrum_data(network).note
