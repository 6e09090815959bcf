"""Checkpoints: a training that is interrupted and taken up again ends with the same bits."""

import os

import pytest
import torch
from torch import nn

from hessmap.datasets import gaussian_mixture
from hessmap.errors import DataFileError, InvalidInput
from hessmap.networks import FullyConnected
from hessmap.training import load_checkpoint, save_checkpoint, train
from tagged_device import tag_device

MIXTURE = gaussian_mixture(50, 4, num_classes=3, separation=2.0)


class Stop(Exception):
    pass


def noisy():
    """A model with everything that has a state of its own: batch statistics, dropout."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3)).double()


def states_equal(first, second):
    return all(
        torch.equal(one, two)
        for one, two in zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("stop_after", [1, 4, 5, 9])
def test_an_interrupted_training_taken_up_again_ends_with_the_same_bits(tmp_path, optimiser, stop_after):
    settings = {"optimiser": optimiser, "learning_rate": 0.01, "epochs": 10, "batch_size": 8, "weight_decay": 0.01}
    whole = noisy()
    expected = train(whole, MIXTURE, **settings)

    def interrupt(moment):
        if moment.done == stop_after:
            raise Stop("by the user")

    path = tmp_path / "folder" / "state.pt"
    with pytest.raises(Stop, match="by the user"):
        train(noisy(), MIXTURE, **settings, checkpoint=path, checkpoint_every=2, progress=interrupt)
    torch.manual_seed(99)
    resumed = noisy()
    calls = []
    found = train(resumed, MIXTURE, **settings, checkpoint=path, checkpoint_every=2, progress=calls.append)
    assert states_equal(whole, resumed)
    assert found == expected
    saved = (stop_after - 1) // 2 * 2
    assert [moment.done for moment in calls] == list(range(saved + 1, 11))


def test_a_finished_training_is_not_repeated_and_can_be_lengthened(tmp_path):
    path = tmp_path / "state.pt"
    first = train(noisy(), MIXTURE, epochs=3, checkpoint=path)
    again = noisy()
    calls = []
    assert train(again, MIXTURE, epochs=3, checkpoint=path, progress=calls.append) == first
    assert calls == []
    longer, whole = noisy(), noisy()
    assert train(longer, MIXTURE, epochs=5, checkpoint=path) == train(whole, MIXTURE, epochs=5)
    assert states_equal(longer, whole)


def test_a_checkpoint_of_another_training_is_refused_by_the_setting_that_differs(tmp_path):
    path = tmp_path / "state.pt"
    train(noisy(), MIXTURE, epochs=1, checkpoint=path)
    with pytest.raises(InvalidInput, match=r"learning_rate was 0\.05 and is 0\.1\. Use these settings"):
        train(noisy(), MIXTURE, epochs=2, learning_rate=0.1, checkpoint=path)
    with pytest.raises(InvalidInput, match="data was"):
        train(noisy(), gaussian_mixture(50, 4, num_classes=3, seed=5), epochs=2, checkpoint=path)
    with pytest.raises(InvalidInput, match=r"model was .*1\.running_mean"):
        train(FullyConnected((4, 3)).build(), MIXTURE, epochs=2, checkpoint=path)


@pytest.mark.parametrize("content", [b"", b"no checkpoint", "half"])
def test_a_damaged_checkpoint_is_said_to_be_one(tmp_path, content):
    path = tmp_path / "state.pt"
    train(noisy(), MIXTURE, epochs=1, checkpoint=path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    with pytest.raises(DataFileError, match=r"state\.pt is not .*truncated or was not written by torch.save: restore"):
        train(noisy(), MIXTURE, epochs=2, checkpoint=path)


def states():
    """What is kept in checkpoints: weights, an optimiser with its memory, random states, plain values."""
    model = FullyConnected((4, 3)).build(seed=0)
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.zeros(2, 4, dtype=torch.float64)).sum().backward()
    optimiser.step()
    return {
        "weights": model.state_dict(),
        "an optimiser": {"optimiser": optimiser.state_dict(), "epoch": 3},
        "views of one storage": dict(zip("ab", torch.arange(6.0).reshape(2, 3), strict=True)),
        "a half and an integer": {"half": torch.ones(3, dtype=torch.float16), "order": torch.arange(4)},
    }


@pytest.mark.parametrize("device", ["cuda:0", "cuda:7", "mps"])
@pytest.mark.parametrize("name", states())
def test_a_checkpoint_of_another_device_is_read_on_the_cpu(tmp_path, name, device):
    state = states()[name]
    save_checkpoint(tmp_path / "state.pt", state)
    tag_device(tmp_path / "state.pt", device)
    found = load_checkpoint(tmp_path / "state.pt")
    torch.testing.assert_close(found, state, rtol=0, atol=0)


def test_a_training_goes_on_from_a_checkpoint_of_another_device(tmp_path):
    first, second = noisy(), noisy()
    train(first, MIXTURE, epochs=2, checkpoint=tmp_path / "here.pt")
    train(second, MIXTURE, epochs=1, checkpoint=tmp_path / "there.pt")
    tag_device(tmp_path / "there.pt", "cuda:0")
    train(second, MIXTURE, epochs=2, checkpoint=tmp_path / "there.pt")
    assert states_equal(first, second)


class Own:
    """An object that is not unpickled."""


@pytest.mark.parametrize("content", [{"model": torch.nn.Linear(2, 2)}, {"settings": Own()}, torch.nn.ReLU()])
def test_a_whole_file_is_not_called_damaged(tmp_path, content):
    torch.save(content, tmp_path / "whole.pt")
    with pytest.raises(DataFileError, match=r"whole\.pt is not \(.*Save tensors and plain values alone") as raised:
        load_checkpoint(tmp_path / "whole.pt")
    assert not any(word in str(raised.value).lower() for word in ("delete", "truncated", "start anew"))


def test_memory_that_runs_out_is_no_fault_of_the_file(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory")

    save_checkpoint(tmp_path / "state.pt", {"epoch": 1})
    monkeypatch.setattr(torch, "load", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_checkpoint(tmp_path / "state.pt")


def test_a_file_of_something_else_is_no_checkpoint(tmp_path):
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(DataFileError, match="contains a list"):
        load_checkpoint(tmp_path / "list.pt")
    save_checkpoint(tmp_path / "other.pt", {"epoch": 3})
    with pytest.raises(InvalidInput, match="loss was None and is 'cross_entropy'"):
        train(noisy(), MIXTURE, checkpoint=tmp_path / "other.pt")


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_failing_write_leaves_the_old_checkpoint_whole_and_no_rest(tmp_path, monkeypatch, fails):
    path = tmp_path / "state.pt"
    save_checkpoint(path, {"epoch": 1})

    def broken(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(os, fails, broken)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint(path, {"epoch": 2})
    assert load_checkpoint(path) == {"epoch": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["state.pt"]


def test_the_content_is_on_the_disk_before_the_name_is_given(tmp_path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, original=original: (order.append(name), original(*args)))
    save_checkpoint(tmp_path / "state.pt", {"epoch": 1})
    assert order == ["fsync", "replace", "fsync"]
