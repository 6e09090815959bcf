"""Problems that are too small for a device are computed on the host, state it, and accept what is on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from test_public_functions import CALLS, MODELS, halved, mlp, numbers, outcome, problem_of, stepped
from torch import Tensor, nn

import hessmap as hm

MOVED = "to the CPU, because"


def ones_like(problem: hm.Problem, device: torch.device | str) -> Tensor:
    return torch.ones(problem.num_parameters, dtype=torch.float64, device=device)


@pytest.mark.parametrize("model", MODELS)
def test_a_small_problem_is_moved_to_the_host_and_its_records_state_it(model: str, device: torch.device) -> None:
    moved, kept = problem_of(model, device, may_move=True), problem_of(model, device)
    assert moved.device == torch.device("cpu")
    assert moved.notes[0].startswith(
        f"moved from {device} to the CPU, because {moved.num_parameters} parameters are few"
    )
    assert moved.notes[0] in hm.sharpness(hm.loss_hessian(moved)).provenance.notes
    assert kept.device == device
    assert not any(MOVED in note for note in kept.notes)


def test_a_problem_on_the_host_has_no_such_note() -> None:
    assert not any(MOVED in note for note in problem_of("mlp", "cpu", may_move=True).notes)


@pytest.mark.parametrize("case", ["parameters", "data", "stream"])
def test_larger_problems_stay_on_the_device(case: str, device: torch.device) -> None:
    torch.manual_seed(0)
    inputs, width = (2**13 + 1, 2**7) if case == "data" else (8, 10), 1_000 if case == "parameters" else 4
    model = nn.Sequential(nn.Linear(inputs[1], width), nn.Tanh(), nn.Linear(width, 2)).to(device)
    data = torch.randn(inputs).to(device), torch.randint(2, inputs[:1]).to(device)
    given: Any = torch.utils.data.TensorDataset(*data) if case == "stream" else data
    problem = hm.Problem(model, "cross_entropy", given)
    assert problem.device == device
    assert not any(MOVED in note for note in problem.notes)


class Shifted(nn.Module):
    """A model with a tensor that is no buffer, so that it computes on one device only."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3).to(device)
        self.shift = [torch.ones(3, device=device, dtype=torch.float64)]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(inputs) + self.shift[0]


def test_a_model_that_only_its_device_computes_stays_there(device: torch.device) -> None:
    inputs, labels = torch.randn(6, 5).to(device), torch.randint(3, (6,)).to(device)
    problem = hm.Problem(Shifted(device), "cross_entropy", inputs, labels)
    assert problem.device == device
    assert problem.notes[0].startswith(f"computed on {device}, because on the CPU it raised: ")
    assert problem.gradient().device == device


def test_an_error_of_the_problem_is_raised_once(device: torch.device) -> None:
    model, inputs = mlp()
    with pytest.raises(hm.errors.InvalidInput, match="the inputs must fit the model") as raised:
        hm.Problem(model.to(device), "cross_entropy", inputs[:, 1:].to(device), torch.zeros(24).long().to(device))
    assert raised.value.__context__ is raised.value.__cause__


def original(problem: hm.Problem) -> nn.Module:
    found = problem.original_model
    assert found is not None
    return found


# What users have on the device beside the problem: vectors, models, optimisers, data.
BESIDE: dict[str, Callable[[hm.Problem, nn.Module, torch.device | str], Any]] = {
    "product": lambda problem, model, device: hm.loss_hessian(problem) @ ones_like(problem, device),
    "solve": lambda problem, model, device: hm.solve(hm.ggn(problem), ones_like(problem, device), shift=1.0).solution,
    "risk": lambda problem, model, device: problem.risk(ones_like(problem, device)),
    "kronecker_curvature": lambda problem, model, device: hm.kronecker_curvature(problem) @ ones_like(problem, device),
    "its solve": lambda problem, model, device: hm.kronecker_curvature(problem, "ekfac").solve(
        ones_like(problem, device), damping=0.1
    ),
    "sample_gradients": lambda problem, model, device: hm.sample_gradients(problem) @ ones_like(problem, device),
    "ewc_penalty": lambda problem, model, device: hm.ewc_penalty(problem, "kfac")(halved(model)),
    "merge": lambda problem, model, device: list(
        hm.merge([model, halved(model)], [hm.kronecker_curvature(problem)] * 2, damping=0.1).parameters()
    ),
    "loss_plane": lambda problem, model, device: hm.loss_plane(problem, halved(model), num_points=3).loss,
    "laplace": lambda problem, model, device: hm.laplace(problem).predict(torch.ones(2, 5, device=device)).covariance,
    "step_report": lambda problem, model, device: stepped(problem, model),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_moved_problem_accepts_what_is_on_the_device(name: str, device: torch.device) -> None:
    found = []
    for place in ("cpu", device):
        torch.manual_seed(0)
        model, inputs = mlp()
        model, data = model.to(place), (inputs.to(place), torch.randint(3, (24,)).to(place))
        problem = hm.Problem(model, "cross_entropy", *data)
        assert problem.device == torch.device("cpu")
        found.append(BESIDE[name](problem, model, place))
    if name in ("product", "kronecker_curvature", "its solve", "sample_gradients"):
        assert found[1].device == device  # where the vector is
    expected, numbers_found = (numbers(each) for each in found)
    np.testing.assert_allclose(numbers_found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("call", CALLS)
def test_a_moved_problem_gives_the_numbers_of_the_host(call: str, device: torch.device) -> None:
    expected = outcome(CALLS[call], problem_of("mlp", "cpu"))
    found = outcome(CALLS[call], problem_of("mlp", device, may_move=True))
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
    else:
        np.testing.assert_array_equal(found, expected)
