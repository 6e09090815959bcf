"""What is certified as it is, and what is refused in a sentence."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from certificate_cases import QUICK
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hessmap.certificates import certify
from hessmap.datasets import Data
from hessmap.errors import HessmapError
from hessmap.networks import FullyConnected


def altered(problem, **changes):
    model, initial, data = problem
    return {"model": model, "initial_model": initial, "data": data, **QUICK, **changes}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"initial_model": None}, "needs the weights that training started from; got none. Keep a copy"),
        ({"initial_model": FullyConnected((5, 7, 3), bias=True).build()}, "have the same parameters; .* has shape"),
        ({"data": Data(torch.zeros(3, 5), torch.tensor([0, 1, 3]))}, "labels must lie in 0..2.*they lie in 0..3"),
        ({"data": Data(torch.zeros(1, 5), torch.tensor([0]))}, "at least two samples; got 1"),
        ({"data": Data(torch.zeros(3, 5), torch.tensor([0, 1]))}, "as many inputs as labels; got 3 and 2"),
        ({"data": Data(torch.full((3, 5), torch.nan), torch.tensor([0, 1, 2]))}, "must be finite"),
        ({"data": Data(torch.zeros(3, 5), torch.zeros(3))}, "must be a vector of labels"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1; got 0.0"),
        ({"sampling_delta": 1.5}, "sampling_delta must lie strictly between 0 and 1"),
        ({"num_draws": 0}, "num_draws must be at least 1"),
        ({"basis": "iterativ"}, "basis.*iterative"),
        ({"basis": {"0": (torch.ones(6, 6), torch.eye(5))}}, "output basis of 0 must be orthonormal; U\\^T U differs"),
        ({"basis": {"0": (torch.eye(5), torch.eye(5))}}, r"output basis of 0 must have shape \(6, 6\)"),
        ({"basis": {"9": (torch.eye(5), torch.eye(5))}}, "layer must be one of 0, 2; got '9'"),
        ({"basis": None}, "basis must be one of standard, .*; got None"),
        ({"delta": 0.6, "sampling_delta": 0.4}, "must leave a confidence above 0; together they are 1.0"),
        ({"learning_rate": -1.0}, "learning_rate must be finite and not negative; got -1.0"),
        ({"deviation_learning_rate": float("nan")}, "deviation_learning_rate must be finite and not negative"),
        ({"basis_samples": 0}, "basis_samples must be at least 1; got 0"),
        ({"progress_every": 0}, "progress_every must be at least 1; got 0"),
        ({"data": TensorDataset(torch.zeros(3, 5))}, "must be tensors or a loader; got a TensorDataset"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(problem, changes, words: str) -> None:
    with pytest.raises(HessmapError, match=words):
        certify(**altered(problem, **changes))


TINY = QUICK | {"iterations": 4, "num_draws": 100, "refresh_every": 2}


def images(num_samples: int = 30) -> Data:
    inputs = torch.randn(num_samples, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return Data(inputs, (inputs.mean((1, 2, 3)) > 0).long())


def started(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Weights that do not depend on the tests before, and the same a little further."""
    generator = torch.Generator().manual_seed(1)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter, other in zip(model.parameters(), moved.parameters(), strict=True):
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
            other.copy_(parameter + 0.1)
    return moved, model


class Images(nn.Module):
    """Flattens by itself, and names its layers from the last to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.first = nn.Linear(36, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(inputs.flatten(1)).relu())


class Doubled(nn.Module):
    """The first layer does not see the samples as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(36, 4)
        self.last = nn.Linear(4, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(inputs.mul_(2).flatten(1)).relu())


ORDINARY = {
    "flattens first": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.ReLU(), nn.Linear(4, 2)),
    "a module of its own": Images,
    "writes into its inputs": Doubled,
    "same padding": lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(72, 2)),
    "no bias": lambda: nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten(), nn.Linear(32, 2, bias=False)),
    "pooling": lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_networks_have_certificates_that_verify(name: str) -> None:
    model, initial = started(ORDINARY[name]())
    data = images()
    before = data.inputs.clone()

    found = certify(model, initial, data, **TINY)

    assert 0 < found.bound <= 1
    assert found.verify(model, data) == found
    assert torch.equal(before, data.inputs)


@pytest.mark.parametrize("num_samples", [2, 3])
def test_few_samples_and_large_batches_are_no_obstacle(num_samples: int) -> None:
    model, initial = started(Images())

    found = certify(model, initial, images(num_samples), **TINY | {"batch_size": 100})

    assert found.num_samples == num_samples
    assert 0 < found.bound <= 1


def test_one_class_is_never_wrong_and_still_pays() -> None:
    inputs, labels = images()
    model, initial = started(nn.Sequential(nn.Flatten(), nn.Linear(36, 1)))

    found = certify(model, initial, Data(inputs, 0 * labels), **TINY)

    assert found.sampled_error == 0
    assert found.bound > 0


@pytest.mark.parametrize("kind", ["arrays", "loader", "labels of another type", "gradients"])
def test_samples_are_taken_in_other_wrappings(kind: str) -> None:
    inputs, labels = images()
    given: Any = {
        "arrays": (inputs.numpy(), labels.numpy()),
        "loader": DataLoader(TensorDataset(inputs, labels), batch_size=15),
        "labels of another type": (inputs, labels.byte()),
        "gradients": (inputs.clone().requires_grad_(), labels),
    }[kind]
    model, initial = started(Images())

    assert certify(model, initial, given, **TINY).bound == certify(model, initial, (inputs, labels), **TINY).bound


def test_own_basis_may_be_arrays() -> None:
    model, initial = started(Images())

    found = certify(model, initial, images(), {"first": (np.eye(4), np.eye(36))}, **TINY)

    assert found.bound == certify(model, initial, images(), "standard", **TINY).bound


def test_test_data_may_be_one_sample() -> None:
    model, initial = started(Images())

    assert certify(model, initial, images(), test_data=images(1), **TINY).test_error in (0.0, 1.0)


def test_networks_are_evaluated_without_dropout_and_stay_in_training() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(36, 4), nn.Dropout(0.0), nn.ReLU(), nn.Linear(4, 2))
    dropping = copy.deepcopy(plain)
    dropping[2] = nn.Dropout(0.9)
    (model, initial), (expected, start) = started(dropping.train()), started(plain.eval())
    state = torch.get_rng_state()

    found = certify(model, initial, images(), **TINY)

    assert found == certify(expected, start, images(), **TINY)
    assert model.training
    assert initial.training
    assert torch.equal(state, torch.get_rng_state())


class Centred(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs - inputs.mean(0)


class Scaled(nn.Linear):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(inputs)


class Normalised(nn.Module):
    """Statistics of the data in buffers, as training finds them."""

    def __init__(self, mean: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1) - self.mean


def headed(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules, nn.Linear(36, 2))


@pytest.mark.parametrize(
    ("model", "initial", "words"),
    [
        (headed(nn.Flatten(), Centred()), None, "answer every sample by itself; its outputs depend on the other"),
        (nn.Sequential(nn.Flatten(), Scaled(36, 2)), None, "plain linear and convolutional layers; 1 is a Scaled"),
        (
            headed(Normalised(0.3)),
            headed(Normalised(0.0)),
            "must be the same; the buffer 0.mean differs",
        ),
        (headed(nn.Flatten(), nn.BatchNorm1d(36)), None, "must not depend on the data; 1 is a batch-norm"),
        (nn.Flatten(), None, "linear and convolutional layers; it has none"),
        (nn.Conv2d(1, 2, 1), None, r"one vector of outputs a sample; it gave shape \(1, 2, 6, 6\)"),
        (nn.Linear(35, 2), None, r"accept the inputs of data; for shape \(1, 1, 6, 6\) it raised mat1 and mat2"),
    ],
)
def test_networks_without_a_promise_are_refused_and_left_alone(
    model: nn.Module, initial: nn.Module | None, words: str
) -> None:
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(HessmapError, match=words):
        certify(model.train(), initial or copy.deepcopy(model), images(), **TINY)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_answers_that_are_no_numbers_are_wrong() -> None:
    class Broken(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs * torch.nan

    from hessmap.certificates.evaluation import classification_error

    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 2), Broken())
    inputs, labels = images()
    assert classification_error(network, Data(inputs, 0 * labels)) == 1
