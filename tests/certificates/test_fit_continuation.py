"""Fits that are stopped, continued or that fail: nothing is lost, mixed up or left half-written."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from certificate_cases import QUICK, TINY
from torch import nn

from hessmap.certificates import FitDiverged, FitMoment, certify
from hessmap.certificates.fit import PosteriorFit
from hessmap.errors import InvalidInput


def stop_at(iteration: int):
    def progress(moment: FitMoment) -> None:
        if moment.iteration == iteration:
            raise KeyboardInterrupt

    return progress


def test_interrupt_certifies_the_best_posterior_so_far(problem) -> None:
    found = certify(*problem, progress=stop_at(30), progress_every=10, **QUICK)

    assert found.ending == "interrupted after 30 of 60 iterations"
    assert 0 < found.bound < 1


def test_continued_fit_ends_with_the_same_certificate(problem, tmp_path: Path) -> None:
    options = QUICK | {"progress_every": 10, "checkpoint": tmp_path / "fit.pt"}
    whole = certify(*problem, **QUICK, progress_every=10)

    certify(*problem, progress=stop_at(30), **options)
    continued = certify(*problem, **options)

    assert continued == whole


def test_checkpoint_of_other_settings_is_refused(problem, tmp_path: Path) -> None:
    options = TINY | {"checkpoint": tmp_path / "fit.pt", "progress_every": 2}
    certify(*problem, **options)
    with pytest.raises(InvalidInput, match="seed was 0 and is 1"):
        certify(*problem, seed=1, **options)


def test_diverging_fit_is_an_error_and_leaves_no_file(problem, tmp_path: Path) -> None:
    options = QUICK | {"learning_rate": 1e30, "checkpoint": tmp_path / "fit.pt", "progress_every": 1000}
    with pytest.raises(FitDiverged, match="keep the objective finite; the objective is .* at iteration"):
        certify(*problem, **options)
    assert list(tmp_path.iterdir()) == []


class Interrupting(nn.Module):
    """Ctrl-C in the middle of a forward pass, once it is armed."""

    countdown = 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if Interrupting.countdown > 0:
            Interrupting.countdown -= 1
            if Interrupting.countdown == 0:
                raise KeyboardInterrupt
        return inputs.relu()


@pytest.mark.parametrize("batch_size", [32, 2000])  # fewer than the draws at a time, and as many
@pytest.mark.parametrize("num_passes", [1, 15])
def test_interrupt_in_the_middle_of_a_step_certifies_the_best_posterior_so_far(
    problem, num_passes: int, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, initial, data = problem
    interrupted = [nn.Sequential(one[0], Interrupting(), one[2]) for one in map(copy.deepcopy, (model, initial))]
    run = PosteriorFit.run

    def armed(fit: PosteriorFit, *arguments: Any) -> str:
        Interrupting.countdown = num_passes
        return run(fit, *arguments)

    monkeypatch.setattr(PosteriorFit, "run", armed)
    options = QUICK | {"basis": "standard", "progress_every": 10, "num_draws": 4000, "batch_size": batch_size}
    found = certify(*interrupted, data, **options)

    assert found.ending == f"interrupted after {num_passes - 1} of 60 iterations"
    assert found.verify(interrupted[0], data, initial_model=interrupted[1], seed=1, num_draws=5000).reasons == ()


def test_step_that_ends_in_no_number_is_never_the_best(problem, tmp_path: Path) -> None:
    # The only step is infinite: its outcome would have to be a posterior.
    options = QUICK | {"iterations": 1, "learning_rate": 1e39, "checkpoint": tmp_path / "fit.pt"}
    with pytest.raises(FitDiverged, match="keep the objective finite; the objective is .* at iteration 1"):
        certify(*problem, **options)
    assert list(tmp_path.iterdir()) == []


def rotation(size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q


@pytest.mark.parametrize("changed", ["basis", "model", "initial_model", "progress_every"])
def test_checkpoint_of_another_start_is_refused(problem, tmp_path: Path, changed: str) -> None:
    model, initial, data = problem
    options = {
        "model": model,
        "initial_model": initial,
        "data": data,
        **QUICK,
        "basis": {"0": (rotation(6, 0), rotation(5, 0))},
        "checkpoint": tmp_path / "fit.pt",
        "progress_every": 20,
    }
    certify(**options)
    others = {
        "basis": {"0": (rotation(6, 1), rotation(5, 0))},
        "model": initial,
        "initial_model": model,
        "progress_every": 30,
    }
    with pytest.raises(InvalidInput, match=f"resumed only with the settings of its checkpoint .*; {changed} was"):
        certify(**options | {changed: others[changed]})


def test_every_setting_that_decides_the_outcome_is_in_the_certificate(problem) -> None:
    found = certify(*problem, progress_every=17, **TINY)

    assert found.settings["progress_every"] == 17
    assert found.settings["batch_size"] == 32


def test_fit_does_not_need_gradients_to_be_on(problem, certificate) -> None:
    with torch.no_grad():
        assert certify(*problem, **QUICK) == certificate
