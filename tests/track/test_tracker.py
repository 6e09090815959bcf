"""The tracker in a plain training loop: right numbers, nothing of the user's changed, nothing lost."""

from __future__ import annotations

import random
import sqlite3
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tracked import network, samples, train

import hessmap as hm
from hessmap.errors import InvalidInput, UnknownName
from hessmap.maps.comparison import track_summary
from hessmap.maps.track.tracker import Pace
from hessmap.records import CurvatureTrack, Record
from hessmap.records.store import Store, StoreError, load_track, track_summaries


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HESSMAP_STORE", str(tmp_path / "runs.sqlite"))
    return tmp_path / "runs.sqlite"


def stored(path: Path, name: str) -> CurvatureTrack:
    with Store(path) as opened:
        return load_track(opened, name)


def test_a_point_is_what_the_dense_hessian_says(store: Path) -> None:
    model = network()
    point = hm.Tracker(model, "cross_entropy", samples(), name="run", tolerance=1e-6)(7, learning_rate=0.3)
    assert point is not None
    problem = hm.Problem(model.eval(), "cross_entropy", *samples())
    dense = hm.loss_hessian(problem).to_dense()
    eigenvalues, eigenvectors = torch.linalg.eigh(dense)
    gradient = problem.gradient()
    top = eigenvectors[:, -5:]
    assert point.converged
    assert point.eigenvalues == pytest.approx(eigenvalues.flip(0)[:5].numpy(), rel=1e-5)
    assert point.sharpness == point.eigenvalues[0]
    assert point.largest_stable_step == pytest.approx(2 / float(eigenvalues[-1]), rel=1e-5)
    assert point.risk == pytest.approx(problem.risk(), rel=1e-6)
    assert point.gradient_norm == pytest.approx(float(gradient.norm()), rel=1e-5)
    share = float((top.T @ gradient).square().sum() / gradient.square().sum())
    assert point.gradient_overlap is not None
    assert point.gradient_overlap.value == pytest.approx(share, rel=1e-3)
    assert point.trace is not None
    trace = float(dense.trace())
    assert abs(point.trace.value - trace) <= 4 * point.trace.standard_error + 1e-12 * abs(trace)
    assert (point.step, point.learning_rate, point.is_warm) == (7, 0.3, False)


def test_a_loop_fills_the_store_and_the_store_gives_the_track_back(store: Path) -> None:
    model = network()
    with hm.Tracker(model, "cross_entropy", samples(), name="run", share=None) as tracker:
        for step in range(4):
            train(model, 5)
            assert tracker(step) is not None
        assert stored(store, "run").points == tracker.track.points
    found = stored(store, "run")
    assert found == tracker.track
    assert [point.step for point in found.points] == [0, 1, 2, 3]
    assert [point.is_warm for point in found.points] == [False, True, True, True]
    assert found.points[-1].risk < found.points[0].risk
    assert found.seconds >= found.spent > 0
    assert found.column("sharpness").tolist() == [point.sharpness for point in found.points]
    assert Record.from_json(found.to_json()) == found
    with Store(store) as opened:
        (summary,) = track_summaries(opened)
    assert (summary.name, summary.num_points, summary.last_step, summary.share) == ("run", 4, 3, None)


class Clock:
    """Every look at it takes a moment, and a training what the test says."""

    now = 100.0

    def __call__(self) -> float:
        self.now += 0.25
        return self.now


def test_the_share_of_the_time_is_kept_and_said(store: Path) -> None:
    model, clock = network(), Clock()
    tracker = hm.Tracker(model, "cross_entropy", samples(), name="run", share=0.05, count=2, max_probes=16)
    tracker.pace = Pace(0.05, clock=clock)
    step = 0
    while tracker.track.num_points < 4:
        train(model, 10)
        clock.now += 0.5
        tracker(step)
        step += 1
    tracker.close()
    found = stored(store, "run")
    costs = [point.cost for point in found.points]
    # Each was expected to cost what the one before did: only what it cost more can exceed the share.
    excess = sum(max(0.0, cost - before) for before, cost in pairwise(costs))
    assert 0 < found.spent <= 0.05 * found.seconds + excess
    assert step > 4
    assert found.share_reached == pytest.approx(tracker.share_reached, rel=0.2)
    assert "at most 5%" in repr(tracker)


def test_nothing_of_the_user_changes() -> None:
    model = nn.Sequential(network(), nn.BatchNorm1d(3)).train()
    model[0][2].eval()  # modes may differ from part to part
    model(samples()[0]).sum().backward()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    modes = [module.training for module in model.modules()]
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    with torch.no_grad():
        hm.Tracker(model, "cross_entropy", samples())(0)
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(map(torch.equal, gradients, [parameter.grad for parameter in model.parameters()]))
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])


def test_a_training_is_the_same_with_and_without_a_tracker() -> None:
    weights = []
    for is_tracked in (False, True):
        model = network()
        loader = DataLoader(TensorDataset(*samples()), batch_size=8, shuffle=True)
        tracker = hm.Tracker(model, "cross_entropy", loader, share=None) if is_tracked else None
        torch.manual_seed(3)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for step, (inputs, labels) in enumerate(loader):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimiser.step()
            if tracker is not None:
                tracker(step)
        weights.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    assert torch.equal(*weights)


def test_an_interrupted_training_goes_on_where_its_checkpoint_is(store: Path) -> None:
    model = network()
    tracker = hm.Tracker(model, "cross_entropy", samples(), name="run", share=None)
    for step in (0, 10, 20, 30):
        tracker(step)
    with pytest.raises(InvalidInput, match="has 'run' with 4 points, the last at step 30. Choose another name, or"):
        hm.Tracker(model, "cross_entropy", samples(), name="run")
    again = hm.Tracker(model, "cross_entropy", samples(), name="run", share=None, resume=True)
    assert again.pace.spent == stored(store, "run").spent
    assert again(15) is not None  # the checkpoint was of step 14: 20 and 30 belong to what was lost
    assert [point.step for point in stored(store, "run").points] == [0, 10, 15]
    again(16)
    assert [point.step for point in stored(store, "run").points] == [0, 10, 15, 16]
    restarted = hm.Tracker(model, "cross_entropy", samples(), name="run", resume=True)
    with pytest.raises(InvalidInput, match="step 0 was given, and the first point is at step 0. Pass replace=True"):
        restarted(0)
    assert stored(store, "run").num_points == 4
    hm.Tracker(model, "cross_entropy", samples(), name="run", replace=True)
    assert stored(store, "run").num_points == 0


def test_a_track_goes_on_only_with_what_it_was_begun_with() -> None:
    hm.Tracker(network(), "cross_entropy", samples(), name="run")(0)
    for changed, word in (
        ({"data": samples(39)}, "another num_samples; it was 40 and is 39"),
        ({"loss": "squared"}, "another loss; it was cross_entropy and is squared"),
        ({"count": 2}, 'another settings; it was .*"count":5'),
        ({"model": nn.Linear(6, 3)}, "another network"),
    ):
        given = {"model": network(), "loss": "cross_entropy", "data": samples(), **changed}
        with pytest.raises(InvalidInput, match=f"'run' is of {word}"):
            hm.Tracker(name="run", resume=True, **given)


def test_an_interrupt_loses_the_point_under_way_and_nothing_else(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network().train()
    tracker = hm.Tracker(model, "cross_entropy", samples(), name="run", share=None)
    tracker(0)

    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("hessmap.maps.track.point.trace_estimate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tracker(1)
    assert all(module.training for module in model.modules())
    assert [point.step for point in stored(store, "run").points] == [0]
    assert tracker(1) is not None
    assert tracker.track == stored(store, "run")


def test_a_store_that_cannot_be_written_leaves_the_track_as_it_was(store: Path) -> None:
    tracker = hm.Tracker(network(), "cross_entropy", samples(), name="run", share=None)
    tracker(0)
    client = sqlite3.connect(store)
    client.execute("CREATE TRIGGER no BEFORE INSERT ON track_point BEGIN SELECT raise(ABORT, 'refused'); END")
    client.commit()
    with pytest.raises(StoreError, match="refused"):
        tracker(1)
    client.execute("DROP TRIGGER no")
    client.commit()
    client.close()
    assert tracker.track.num_points == 1
    assert tracker(2) is not None
    assert [point.step for point in stored(store, "run").points] == [0, 2]


@pytest.mark.parametrize(
    ("steps", "gaps"),
    [
        ((0, 640, 700, 760, 820), ((0, 640),)),
        ((0, 10, 20, 100, 110, 400, 410), ((20, 100), (110, 400))),
        ((0, 10, 20, 50), ()),
        ((0, 640), ()),
        ((5,), ()),
    ],
)
def test_what_was_not_measured_is_a_gap_and_is_said(steps: tuple[int, ...], gaps: tuple[tuple[int, int], ...]) -> None:
    tracker = hm.Tracker(network(), "cross_entropy", samples(), share=None, quantities=())
    for step in steps:
        tracker(step)
    assert tracker.track.gaps == gaps
    said = [text for text in track_summary(tracker.track) if text.startswith("Nothing was measured between")]
    assert len(said) == (1 if gaps else 0)
    assert all(f"{left:,} and {right:,}" in said[0] for left, right in gaps)


def test_fewer_quantities_cost_fewer_products() -> None:
    model = network()
    plain = hm.Tracker(model, "cross_entropy", samples(), quantities=("trace",)).measure(0)
    assert (plain.eigenvalues.size, plain.sharpness, plain.gradient_overlap) == (0, None, None)
    assert plain.converged
    assert plain.trace is not None
    bare = hm.Tracker(model, "cross_entropy", samples(), quantities=()).measure(0)
    assert (bare.num_products, bare.trace) == (0, None)
    assert bare.risk == plain.risk


def test_a_model_in_a_narrow_format_is_measured_in_the_one_asked_for() -> None:
    model = network().to(torch.bfloat16)
    inputs, labels = samples()
    with pytest.raises(InvalidInput, match="dtype must be torch.float32 or torch.float64; got torch.bfloat16"):
        hm.Tracker(model, "cross_entropy", (inputs, labels), dtype=torch.bfloat16)
    assert hm.Tracker(model, "cross_entropy", (inputs, labels)).track.settings["dtype"] == "float64"
    tracker = hm.Tracker(model, "cross_entropy", (inputs, labels), dtype=torch.float32)
    assert tracker.measure(0).converged
    assert tracker.track.settings["dtype"] == "float32"
    assert next(model.parameters()).dtype == torch.bfloat16


def test_data_that_change_are_refused() -> None:
    inputs, labels = samples()
    tracker = hm.Tracker(network(), "cross_entropy", (inputs, labels), share=None)
    tracker(0)
    inputs.mul_(2)
    with pytest.raises(InvalidInput, match="all points of a track must be measured on the same data; 40 samples"):
        tracker(1)


def test_bad_questions_get_a_sentence() -> None:
    model, data = network(), samples()
    with pytest.raises(UnknownName, match="quantities must be one of eigenvalues, .*; got 'rank'"):
        hm.Tracker(model, "cross_entropy", data, quantities=("rank",))
    with pytest.raises(InvalidInput, match="the overlap of the gradient needs eigenvectors; 'eigenvalues' is not"):
        hm.Tracker(model, "cross_entropy", data, quantities=("gradient_overlap",))
    with pytest.raises(InvalidInput, match="share must be above 0"):
        hm.Tracker(model, "cross_entropy", data, share=0)
    with pytest.raises(InvalidInput, match="a track name must consist of letters, .*; got 'a/b'"):
        hm.Tracker(model, "cross_entropy", data, name="a/b")
    with pytest.raises(InvalidInput, match="resume and replace need the name of a track; got none"):
        hm.Tracker(model, "cross_entropy", data, resume=True)
    with pytest.raises(InvalidInput, match="model must be a torch.nn.Module; got str"):
        hm.Tracker("model", "cross_entropy", data)
    loader = DataLoader(TensorDataset(*data), num_workers=1, persistent_workers=True)
    with pytest.raises(
        InvalidInput, match="must not keep its worker processes; .* Pass a separate loader to the tracker"
    ):
        hm.Tracker(model, "cross_entropy", loader)
    tracker = hm.Tracker(model, "cross_entropy", data, share=None)
    tracker(5)
    with pytest.raises(InvalidInput, match="the steps of a track must increase; step 5 follows step 5"):
        tracker.measure(5)
