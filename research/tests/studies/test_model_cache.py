"""Trained models: one training for each setting, whoever asks, and no half of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_processes import SEARCH_PATH

import hessmap.training
from hessmap.datasets import gaussian_mixture
from hessmap.errors import DataFileError
from hessmap.networks import FullyConnected
from hessmap_research.runner.model_cache import cached_model, model_key, models_folder, use_models_folder
from hessmap_research.studies.trained_networks import stored_networks, trained_network
from patience import PATIENCE
from tagged_device import tag_device

SETTINGS = {"architecture": "4-3-2", "seed": 0, "learning_rate": 0.1}


@pytest.fixture(autouse=True)
def models(tmp_path: Path) -> Iterator[Path]:
    use_models_folder(tmp_path / "models")
    yield tmp_path / "models"
    use_models_folder(None)


class Trainer:
    """Counts how often it is asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, checkpoints: Path) -> dict[str, Any]:
        assert checkpoints.is_dir()
        self.calls += 1
        return {"weight": torch.full((2, 2), float(self.calls)), "accuracy": 0.5}


def test_a_model_is_trained_once_and_comes_back_as_it_was() -> None:
    trainer = Trainer()
    first, second = cached_model(SETTINGS, trainer), cached_model(dict(reversed(SETTINGS.items())), trainer)
    assert trainer.calls == 1
    assert torch.equal(first["weight"], second["weight"])
    assert second["accuracy"] == 0.5


def test_any_other_setting_is_another_model() -> None:
    trainer = Trainer()
    for settings in (SETTINGS, {**SETTINGS, "seed": 1}, {**SETTINGS, "learning_rate": 0.2}):
        cached_model(settings, trainer)
    assert trainer.calls == 3


def test_a_training_that_fails_leaves_nothing_behind_but_its_checkpoints(models: Path) -> None:
    def interrupted(checkpoints: Path) -> dict[str, Any]:
        (checkpoints / "half").write_text("half way")
        raise ArithmeticError("diverged")

    with pytest.raises(ArithmeticError, match="diverged"):
        cached_model(SETTINGS, interrupted)

    def resumed(checkpoints: Path) -> dict[str, Any]:
        return {"found": (checkpoints / "half").read_text()}

    assert cached_model(SETTINGS, resumed) == {"found": "half way"}
    left = {path.name for path in (models / model_key(SETTINGS)).iterdir()}
    assert left == {"lock", "model.pt", "settings.json"}


def test_a_damaged_model_is_reported(models: Path) -> None:
    cached_model(SETTINGS, Trainer())
    path = models / model_key(SETTINGS) / "model.pt"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DataFileError, match=r"must be as it was written; .*model\.pt is not\. Delete"):
        cached_model(SETTINGS, Trainer())


def test_the_folder_is_the_runs_else_the_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert models_folder() == tmp_path / "models"
    use_models_folder(None)
    monkeypatch.setenv("HESSMAP_MODELS", str(tmp_path / "mine"))
    assert models_folder() == tmp_path / "mine"
    monkeypatch.delenv("HESSMAP_MODELS")
    assert models_folder() == Path.cwd() / "hessmap-runs" / "models"


def test_of_several_that_want_the_same_model_one_trains_and_the_others_wait() -> None:
    """In threads, because the kernel's lock belongs to an opened file: it parts threads as it parts processes."""
    trainer = Trainer()

    def slowly(checkpoints: Path) -> dict[str, Any]:
        time.sleep(0.3)
        return trainer(checkpoints)

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: cached_model(SETTINGS, slowly), range(3)))
    assert trainer.calls == 1
    assert [model["accuracy"] for model in found] == [0.5] * 3


NETWORK = FullyConnected((4, 6, 2), activation="tanh")
OPTIONS: dict[str, Any] = {"seed": 3, "epochs": 6, "checkpoint_every": 1, "learning_rate": 0.1}


def data() -> Any:
    return gaussian_mixture(60, 4, num_classes=2, separation=3.0)


def test_a_network_is_trained_once_for_its_architecture_data_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    first = trained_network(NETWORK, data(), **OPTIONS)
    monkeypatch.setattr("hessmap.training.train", lambda *arguments, **options: pytest.fail("trained twice"))
    again = trained_network(NETWORK, data(), **OPTIONS)
    for one, other in zip(first.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert first.run == again.run
    assert first.run.final_accuracy is not None
    assert first.run.final_accuracy > 0.9


def test_a_killed_training_goes_on_to_the_same_bits(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = """
        import os, sys
        import test_model_cache as case
        from hessmap_research.runner.model_cache import use_models_folder
        from hessmap_research.studies.trained_networks import stored_networks, trained_network
        import hessmap.training

        use_models_folder(sys.argv[1])
        train = hessmap.training.train

        def killed(*arguments, **options):
            def watch(moment):
                if moment.done == 4:
                    os._exit(9)
            return train(*arguments, **options, progress=watch)

        hessmap.training.train = killed
        trained_network(case.NETWORK, case.data(), **case.OPTIONS)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(models)]
    # As many threads and the same kernels as here: the bits of a training belong to both.
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH, "OMP_NUM_THREADS": str(torch.get_num_threads())}
    done = subprocess.run(command, env=environment, check=False, timeout=PATIENCE)
    assert done.returncode == 9
    (checkpoint,) = models.glob("*/checkpoints/training.pt")
    epochs: list[int] = []
    train = hessmap.training.train

    def watched(*arguments: Any, **options: Any) -> Any:
        return train(*arguments, **options, progress=lambda moment: epochs.append(moment.done))

    monkeypatch.setattr("hessmap.training.train", watched)
    resumed = trained_network(NETWORK, data(), **OPTIONS)
    assert not checkpoint.exists()
    assert epochs == [4, 5, 6]
    use_models_folder(tmp_path / "fresh")
    straight = trained_network(NETWORK, data(), **OPTIONS)
    for one, other in zip(resumed.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_longer_training_goes_on_from_a_kept_state_to_the_same_bits(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = trained_network(NETWORK, data(), **OPTIONS)
    epochs: list[int] = []
    train = hessmap.training.train

    def watched(*arguments: Any, **options: Any) -> Any:
        return train(*arguments, **options, progress=lambda moment: epochs.append(moment.done))

    monkeypatch.setattr("hessmap.training.train", watched)
    use_models_folder(tmp_path / "in parts")
    for length in (4, 2, OPTIONS["epochs"]):
        parts = trained_network(NETWORK, data(), keep_state=True, **{**OPTIONS, "epochs": length})
    assert epochs == [1, 2, 3, 4, 1, 2, 5, 6]
    for one, other in zip(parts.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert parts.run.final_accuracy == straight.run.final_accuracy


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "mps"])
def test_models_and_samples_of_another_device_are_read_on_the_cpu(models: Path, device: str) -> None:
    straight = trained_network(NETWORK, data(), **OPTIONS)
    for path in models.rglob("*.pt"):
        tag_device(path, device)
        about = path.parent / "settings.json"
        if about.exists():
            found = json.loads(about.read_text())
            about.write_text(json.dumps({**found, "sha256": sha256(path.read_bytes()).hexdigest()}))
    again = trained_network(NETWORK, data(), **OPTIONS)
    (stored,) = stored_networks("fully connected")
    assert stored is not None
    for one, other, third in zip(
        straight.model.parameters(), again.model.parameters(), stored.model.parameters(), strict=True
    ):
        assert torch.equal(one, other)
        assert torch.equal(one.double(), third)
