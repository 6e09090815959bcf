"""A tracker with an optimiser: step reports in its points, thresholds, crossings, logs, subsets, ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from tracked import network, samples

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.maps.comparison import track_summary
from hessmap.maps.track import QUANTITIES, logged_values, tensorboard_log
from hessmap.maps.track.point import FEWEST, SMALL, chosen_data, passes_of_a_point
from hessmap.records import CurvatureTrack
from hessmap.records.store import Store, load_track
from hessmap.views.plots import track_figure


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HESSMAP_STORE", str(tmp_path / "runs.sqlite"))
    return tmp_path / "runs.sqlite"


def run(optimizer_of: Any, rates: list[float], **options: Any) -> tuple[nn.Module, Any, hm.Tracker]:
    """A track with a point at each of some learning rates; the weights stay."""
    model = network()
    optimizer = optimizer_of(model)
    tracker = hm.Tracker(model, "cross_entropy", samples(), optimizer=optimizer, share=None, name="run", **options)
    for step, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        tracker(10 * step)
    return model, optimizer, tracker


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.1)


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters(), lr=1e-3)


def test_points_have_the_report_of_the_next_step(store: Path) -> None:
    model, optimizer, tracker = run(adam, [1e-3], tolerance=1e-9)
    (point,) = tracker.track.points
    problem = hm.Problem(model.eval(), "cross_entropy", *samples())
    expected = hm.step_report(problem, optimizer, tolerance=1e-9)
    assert point.step_report is not None
    assert point.step_report.preconditioned_sharpness is not None
    assert expected.preconditioned_sharpness is not None
    found = point.step_report.preconditioned_sharpness.value
    assert found == pytest.approx(expected.preconditioned_sharpness.value, rel=1e-7)
    assert point.learning_rate == 1e-3
    assert point.stability_ratio == pytest.approx(found / 38e3, rel=1e-12)
    assert point.sharpness_threshold is None  # it is not that of the plain sharpness
    with Store(store) as opened:
        assert load_track(opened, "run") == tracker.track
    assert CurvatureTrack.from_json(tracker.track.to_json()) == tracker.track


def test_descent_takes_its_sharpness_from_the_eigenvalues() -> None:
    _, _, tracker = run(sgd, [0.1])
    (point,) = tracker.track.points
    assert point.step_report is not None
    assert point.step_report.num_products == 0
    assert point.sharpness_threshold == pytest.approx(20)
    assert point.stability_ratio == (point.sharpness or 0) / point.sharpness_threshold


def test_every_quantity_of_a_step_can_be_tracked() -> None:
    _, _, tracker = run(adam, [1e-3], quantities=QUANTITIES, batch_size=8)
    for name in ("batch_sharpness", "gradient_noise_scale", "directional_sharpness", "measured_change"):
        assert np.isfinite(tracker.track.column(name)).all()
    report = tracker.track.points[0].step_report
    assert report is not None
    assert report.layer_terms is not None
    with pytest.raises(InvalidInput, match="batch_sharpness of a tracker need its optimiser"):
        hm.Tracker(network(), "cross_entropy", samples(), quantities=["batch_sharpness"])(0)


def test_crossings_are_marked_in_figure_and_text() -> None:
    sharpness = run(sgd, [0.1])[2].track.points[0].sharpness
    assert sharpness is not None
    stable, unstable = 1.9 / sharpness, 2.1 / sharpness
    _, _, tracker = run(sgd, [stable, unstable, unstable, stable, unstable], replace=True)
    track = tracker.track
    assert track.crossings == ((10, True), (30, False), (40, True))
    text = " ".join(track_summary(track))
    assert "At step 10 and 1 more time the preconditioned sharpness rises above the stability threshold of SGD" in text
    assert "at 3 of 5 points a step is unstable" in text
    axes = track_figure(track).axes[1]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["threshold of SGD"].get_ydata() == pytest.approx(track.column("stability_threshold"))
    assert list(lines["rises above it"].get_xdata()) == [10, 40]
    assert list(lines["falls below it"].get_xdata()) == [30]
    _, _, calm = run(sgd, [stable, stable], replace=True)
    assert "stays below the stability threshold of SGD, 2 / lr" in " ".join(track_summary(calm.track))


def test_adam_has_a_panel_of_its_own_and_its_own_line() -> None:
    _, _, tracker = run(adam, [1e-3, 1e-3])
    figure = track_figure(tracker.track)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert "Preconditioned sharpness" in titles
    axes = figure.axes[titles.index("Preconditioned sharpness")]
    lines = {line.get_label(): line for line in axes.lines}
    assert set(lines["threshold of Adam"].get_ydata()) == {38000.00000000001}
    eigenvalues = figure.axes[titles.index("Largest eigenvalues")]
    assert not any("threshold" in str(line.get_label()) for line in eigenvalues.lines)


def test_without_an_optimiser_there_is_no_threshold() -> None:
    tracker = hm.Tracker(network(), "cross_entropy", samples(), share=None)
    tracker(0, learning_rate=10.0)
    tracker(1, learning_rate=10.0)
    assert "threshold" not in " ".join(track_summary(tracker.track))
    labels = [str(line.get_label()) for axes in track_figure(tracker.track).axes for line in axes.lines]
    assert not any("threshold" in label or "learning rate" in label for label in labels)


def test_the_frame_has_a_column_of_sharpness() -> None:
    pytest.importorskip("pandas", reason="frames are those of pandas")
    _, _, tracker = run(adam, [1e-3, 1e-3])
    frame = tracker.track.to_frame()
    assert frame["sharpness"].tolist() == [point.sharpness for point in tracker.track.points]
    assert frame["stability_ratio"].tolist() == [point.stability_ratio for point in tracker.track.points]
    assert "step_report.preconditioned_sharpness.value" in frame.columns


def test_every_point_is_logged() -> None:
    seen: list[tuple[dict[str, float], int]] = []
    _, _, tracker = run(adam, [1e-3, 1e-3], log=lambda values, step: seen.append((values, step)))
    assert [step for _, step in seen] == [0, 10]
    values, _ = seen[1]
    point = tracker.track.points[1]
    assert values == logged_values(point)
    assert values["curvature/sharpness"] == point.sharpness
    assert values["curvature/stability_threshold"] == pytest.approx(38e3)
    assert all(isinstance(value, float) for value in values.values())
    with pytest.raises(InvalidInput, match="log must be a function"):
        hm.Tracker(network(), "cross_entropy", samples(), log="wandb")  # type: ignore[arg-type]


def test_tensorboard_gets_scalars(tmp_path: Path) -> None:
    tensorboard = pytest.importorskip("torch.utils.tensorboard", reason="tensorboard is not installed")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with tensorboard.SummaryWriter(str(tmp_path / "logs")) as writer:
        _, _, tracker = run(sgd, [0.1, 0.1], log=tensorboard_log(writer))
    events = accumulator.EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("curvature/sharpness")]
    assert found == [(point.step, pytest.approx(point.sharpness, rel=1e-6)) for point in tracker.track.points]


def test_other_ranks_neither_measure_nor_write(monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    logged: list[Any] = []
    with hm.Tracker(
        network(), "cross_entropy", samples(), name="run", log=lambda *given: logged.append(given)
    ) as tracker:
        assert tracker(0) is None
        assert tracker.measure(1).sharpness is not None
    assert not logged
    assert not store.exists()
    assert tracker.track.num_points == 1


SETTINGS = hm.maps.track.TrackSettings()


@pytest.mark.parametrize("count", [2_000, 100_000, 400_000])
def test_the_first_point_takes_at_most_a_twentieth_of_an_epoch(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 6, generator=generator)
    labels = torch.randint(3, (count,), generator=generator)
    model = network()
    tracker = hm.Tracker(model, "cross_entropy", (inputs, labels), optimizer=adam(model), share=None)
    point = tracker(0)
    assert point is not None
    size = tracker.track.num_samples
    assert tracker.track.settings["num_available"] == count
    passes = size * (2 * point.num_products + 2)  # a product is about two gradients
    assert size == FEWEST or passes <= 0.05 * count
    assert size >= FEWEST
    if count == 400_000:
        assert size > FEWEST


def test_the_choice_of_samples_is_fixed_by_the_seed() -> None:
    inputs = torch.arange(5000.0)[:, None]
    passes = passes_of_a_point(SETTINGS, False)
    first, again, other = (chosen_data((inputs, inputs), None, 100, seed, passes) for seed in (0, 0, 1))
    assert torch.equal(first.data[0], again.data[0])
    assert not torch.equal(first.data[0], other.data[0])
    assert torch.equal(first.data[0], first.data[1])
    assert len(set(first.data[0].flatten().tolist())) == 100


def test_samples_of_every_kind_of_data_are_chosen() -> None:
    inputs, labels = torch.randn(1000, 6), torch.randint(3, (1000,))
    data_set = TensorDataset(inputs, labels)
    loader = DataLoader(data_set, batch_size=64, shuffle=True)
    given: list[Any] = [(inputs, labels), (inputs.numpy(), labels.numpy()), [inputs, labels], data_set, loader]
    for data in given:
        tracker = hm.Tracker(network(), "cross_entropy", data, num_samples=70)
        assert (tracker.track.num_samples, tracker.track.settings["num_available"]) == (70, 1000)
    found = chosen_data({"input": inputs, "labels": labels}, torch.arange(1000), 30, 0, 100)
    assert len(found.data["input"]) == len(found.data["labels"]) == len(found.weights) == 30
    for data in ((inputs[:SMALL], labels[:SMALL]), [(inputs[:700], labels[:700]), (inputs[700:], labels[700:])]):
        assert chosen_data(data, None, "auto", 0, 100).data is data
    assert chosen_data((inputs, labels), None, "all", 0, 100).num_available is None
    for wrong in ("some", 2.5, True):
        with pytest.raises(InvalidInput, match="num_samples must be a number of samples, 'auto' or 'all'"):
            chosen_data((inputs, labels), None, wrong, 0, 100)  # type: ignore[arg-type]


def test_streams_are_used_whole() -> None:
    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from zip(*samples(), strict=True)

    stream = DataLoader(Stream(), batch_size=8)
    assert chosen_data(stream, None, 10, 0, 100).data is stream
