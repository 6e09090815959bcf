"""Tracks from saved checkpoints: of the trainer, of plain state_dicts, interrupted and gone on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from tracked import network, samples, train

import hessmap as hm
from hessmap.datasets import Data
from hessmap.errors import DataFileError, HessmapError, InvalidInput
from hessmap.records import CurvatureTrack, Store, load_track
from tagged_device import tag_device


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HESSMAP_STORE", raising=False)
    return tmp_path


@pytest.fixture
def files(folder: Path) -> list[Path]:
    """Weights after 0, 20 and 100 steps; the names do not sort by number."""
    model, paths = network(), []
    for done, more in ((0, 0), (20, 20), (100, 80)):
        train(model, more)
        paths.append(folder / f"net-{done}.pt")
        torch.save(model.state_dict(), paths[-1])
    return paths


def tracked(files: object, **options: object) -> CurvatureTrack:
    return hm.maps.track.track_checkpoints(network, files, "cross_entropy", samples(), store="runs.sqlite", **options)


def test_checkpoints_give_what_a_tracker_in_the_loop_gives(files: list[Path]) -> None:
    found = tracked(reversed(files))
    assert [point.step for point in found.points] == [0, 20, 100]
    model = network()
    tracker = hm.Tracker(model, "cross_entropy", samples(), store="runs.sqlite", share=None)
    for step, more in ((0, 0), (20, 20), (100, 80)):
        train(model, more)
        tracker(step)
    assert tracker.track.points == found.points


def test_an_interrupted_work_goes_on_and_measures_nothing_twice(files: list[Path]) -> None:
    said: list[str] = []
    first = tracked(files[:2], name="run", progress=said.append)
    again = tracked(files, name="run", progress=said.append)
    assert [text.split()[1] for text in said] == ["0", "20", "100"]
    assert again.points[:2] == first.points
    torch.save(network(5).state_dict(), files[1])  # other weights at the same step
    third = tracked(files, name="run", progress=said.append)
    assert [text.split()[1] for text in said[3:]] == ["20"]
    assert third.points[1] != again.points[1]
    with Store(Path("runs.sqlite")) as opened:
        assert load_track(opened, "run") == third
    assert tracked(files[:1], name="run", replace=True).num_points == 1


def test_files_of_the_trainer_tell_their_epoch(folder: Path) -> None:
    architecture = hm.FullyConnected((6, 5, 3), activation="tanh")
    inputs, labels = samples()
    model, paths = architecture.build(seed=0), []
    for epochs in (1, 3):
        paths.append(folder / f"{'ab'[epochs == 3]}.pt")
        hm.train(model, Data(inputs.double(), labels), epochs=epochs, checkpoint=paths[-1])
    build = architecture.build
    found = hm.maps.track.track_checkpoints(
        build, paths, "cross_entropy", (inputs.double(), labels), store="runs.sqlite"
    )
    assert [point.step for point in found.points] == [1, 3]
    assert found.network == "6-5-3 tanh"


@pytest.mark.parametrize("device", ["cuda:0", "cuda:3", "mps"])
def test_checkpoints_of_another_device_give_the_same_track(files: list[Path], device: str) -> None:
    found = tracked(files)
    for file in files:
        tag_device(file, device)
    moved = tracked(files)
    for one, other in zip(found.points, moved.points, strict=True):
        assert (one.step, one.weights_hash) == (other.step, other.weights_hash)
        assert (one.eigenvalues == other.eigenvalues).all()


def test_weights_are_found_where_programs_keep_them(files: list[Path]) -> None:
    plain = torch.load(files[1], weights_only=True)
    wrapped = {"state_dict": {f"module.{name}": value for name, value in plain.items()}, "global_step": 7}
    torch.save(wrapped, "wrapped.pt")
    by_step = tracked({20: files[1]})
    found = tracked(["wrapped.pt"])
    assert found.points[0].step == 7
    assert (found.points[0].eigenvalues == by_step.points[0].eigenvalues).all()


def test_the_given_model_is_not_changed(files: list[Path]) -> None:
    model = network(9)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hm.maps.track.track_checkpoints(model, files[:1], "cross_entropy", samples(), store="runs.sqlite")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training


def test_bad_checkpoints_get_a_sentence(files: list[Path], folder: Path) -> None:
    with pytest.raises(InvalidInput, match="there must be a checkpoint to measure; the list is empty"):
        tracked([])
    with pytest.raises(DataFileError, match="a checkpoint must be readable; nowhere.pt is not"):
        tracked(["nowhere.pt"])
    torch.save({"loss": 3.0}, "other.pt")
    with pytest.raises(DataFileError, match="must contain the weights of a model by name; other.pt contains loss"):
        tracked({1: "other.pt"})
    torch.save(torch.load(files[0], weights_only=True), "nameless.pt")
    with pytest.raises(InvalidInput, match="must contain its step, or have it in its name; nameless.pt does not"):
        tracked(["nameless.pt"])
    (folder / "copy").mkdir()
    torch.save(torch.load(files[0], weights_only=True), "copy/net-20.pt")
    with pytest.raises(InvalidInput, match="a step of its own; .* are both of step 20. Pass a mapping"):
        tracked([files[1], "copy/net-20.pt"])
    torch.save(torch.nn.Linear(6, 3).state_dict(), "linear-1.pt")
    with pytest.raises(InvalidInput, match=r"must be of the given model; linear-1.pt is not \(Missing key"):
        tracked(["linear-1.pt"])


def each(change: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    return {name: change(value) for name, value in network().state_dict().items()}


ODD_CHECKPOINTS: dict[str, tuple[Callable[[], object], str]] = {
    "a list": (lambda: [1, 2], "must contain a training state; .* contains a list"),
    "a tensor": (lambda: torch.zeros(3), "must contain a training state; .* contains a Tensor"),
    "nothing": (lambda: None, "must contain a training state; .* contains a NoneType"),
    "an empty table": (dict, "must contain the weights of a model by name"),
    "names that are numbers": (lambda: dict(enumerate(network().state_dict().values())), "weights of a model by name"),
    "one name that is a number": (lambda: {**network().state_dict(), 3: torch.zeros(1)}, "weights of a model by name"),
    "texts": (lambda: {"model": {"0.weight": "text"}}, "weights of a model by name"),
    "complex numbers": (lambda: each(lambda value: value + 1j), "0.weight is torch.complex64 and not torch.float32"),
    "whole numbers": (lambda: each(lambda value: value.long()), "0.weight is torch.int64 and not torch.float32"),
    "truths": (lambda: each(lambda value: value > 0), "0.weight is torch.bool and not torch.float32"),
    "NaN": (lambda: each(lambda value: value * float("nan")), "weights must be finite; parameter '0.weight' has NaN"),
    "another shape": (lambda: each(lambda value: value[:1]), "must be of the given model; .*size mismatch"),
    "sparse": (lambda: each(lambda value: value.to_sparse()), "must be of the given model"),
    "a step below zero": (lambda: {"model": network().state_dict(), "step": -3}, "step of .* at least 0; got -3"),
    "a huge step": (lambda: {"model": network().state_dict(), "step": 10**30}, r"step of .* must be below 2\^63"),
}


@pytest.mark.parametrize("name", ODD_CHECKPOINTS)
def test_odd_checkpoints_are_refused_and_stored_points_stay(files: list[Path], name: str) -> None:
    make, words = ODD_CHECKPOINTS[name]
    tracked(files[:1], name="run")
    torch.save(make(), "odd-200.pt")
    with pytest.raises(HessmapError, match=words):
        tracked([files[0], "odd-200.pt"], name="run")
    with Store(Path("runs.sqlite")) as store:
        assert [point.step for point in load_track(store, "run").points] == [0]


@pytest.mark.parametrize(("steps", "words"), [
    ({1.5: "net-0.pt"}, "the step of net-0.pt must be an integer"), ({"a": "net-0.pt"}, "must be an integer"),
    ({True: "net-0.pt"}, "must be an integer"), ({2**70: "net-0.pt"}, r"must be below 2\^63"),
    (3, "checkpoints must be a list; got 3"), ("net-0.pt", "must be a list of files; got the one file net-0.pt"),
    ([3], "a checkpoint must be readable; 3 is not"), (["."], "a checkpoint must be readable; . is not"),
])  # fmt: skip
def test_odd_steps_and_files_are_refused(files: list[Path], steps: object, words: str) -> None:
    with pytest.raises(HessmapError, match=words):
        tracked(steps)


def test_odd_models_are_refused(files: list[Path]) -> None:
    for model in (None, "net"):
        with pytest.raises(HessmapError, match="model must be a torch.nn.Module or a function that builds one"):
            hm.maps.track.track_checkpoints(model, files, "cross_entropy", samples(), store="runs.sqlite")


def test_a_pickle_is_not_run(files: list[Path], folder: Path) -> None:
    class Marker:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (folder / "was-run",)

    torch.save({"model": Marker()}, "odd-1.pt")
    with pytest.raises(DataFileError, match="a checkpoint must be readable; odd-1.pt is not"):
        tracked(["odd-1.pt"])
    assert not (folder / "was-run").exists()
