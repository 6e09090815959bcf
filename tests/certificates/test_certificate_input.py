"""What is certified as it is, and what is refused in a sentence."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from certificate_cases import PLAIN, QUICK, TINY, WHOLE, images, started
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
        ({"data": Data(torch.zeros(3, 5), torch.tensor([0, 1, 3]))}, "labels must be in 0..2.*from 0 to 3"),
        ({"data": Data(torch.zeros(1, 5), torch.tensor([0]))}, "at least two samples; got 1"),
        ({"data": Data(torch.zeros(3, 5), torch.tensor([0, 1]))}, "as many inputs as labels; got 3 and 2"),
        ({"data": Data(torch.full((3, 5), torch.nan), torch.tensor([0, 1, 2]))}, "must be finite"),
        ({"data": Data(torch.zeros(3, 5), torch.zeros(3))}, "must be a vector of labels"),
        ({"delta": 0.0}, "delta must be strictly between 0 and 1; got 0.0"),
        ({"sampling_delta": 1.5}, "delta must be strictly between 0 and 1; got 1.5"),
        ({"num_draws": 0}, "num_draws must be an integer of at least 1"),
        ({"basis": "iterativ"}, "basis.*iterative"),
        ({"basis": {"0": (torch.ones(6, 6), torch.eye(5))}}, "output basis of 0 must be orthonormal; U\\^T U differs"),
        ({"basis": {"0": (torch.eye(5), torch.eye(5))}}, r"output basis of 0 must have shape \(6, 6\)"),
        ({"basis": {"9": (torch.eye(5), torch.eye(5))}}, "layer must be one of 0, 2; got '9'"),
        ({"basis": None}, "basis must be one of standard, .*; got None"),
        ({"delta": 0.6, "sampling_delta": 0.4}, "must leave a confidence above one half; together they are 1"),
        ({"delta": 0.3, "sampling_delta": 0.2}, "must leave a confidence above one half; together they are 0.5"),
        ({"seed": -1}, "seed must be an integer of at least 0; got -1"),
        ({"seed": 2**64}, r"seed must be below 2\^63"),
        ({"iterations": 2.5}, "iterations must be an integer of at least 1; got 2.5"),
        ({"num_draws": "many"}, "num_draws must be an integer of at least 1; got 'many'"),
        ({"learning_rate": "fast"}, "learning_rate must be a number; got 'fast'"),
        ({"delta": "often"}, "delta must be a number; got 'often'"),
        ({"sampling_delta": None}, "delta must be a number; got None"),
        ({"grid": 0.1}, "grid must be a PriorGrid; got 0.1"),
        ({"model": None}, "model must be an nn.Module; got a NoneType"),
        ({"data": (torch.zeros(3, 5) + 0j, torch.tensor([0, 1, 2]))}, "inputs must be real; got torch.complex64"),
        ({"data": (torch.eye(5).to_sparse(), torch.zeros(5).long())}, "samples must be dense tensors"),
        ({"data": (np.array(["a", "b"]), np.array([0, 1]))}, "arrays of real numbers; got <U1"),
        ({"data": (torch.tensor(1.0), torch.tensor(1))}, "must be stacked along the first axis; got a single number"),
        ({"learning_rate": -1.0}, "learning_rate must be finite and not negative; got -1.0"),
        ({"deviation_learning_rate": float("nan")}, "deviation_learning_rate must be finite and not negative"),
        ({"basis_samples": 0}, "basis_samples must be an integer of at least 1; got 0"),
        ({"progress_every": 0}, "progress_every must be an integer of at least 1; got 0"),
        (
            {"data": TensorDataset(torch.zeros(3, 5))},
            r"must yield \(inputs, targets\) pairs of tensors; it gave a list",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(problem, changes, words: str) -> None:
    with pytest.raises(HessmapError, match=words):
        certify(**altered(problem, **changes))


@pytest.mark.parametrize("name", PLAIN | WHOLE)
def test_networks_of_all_kinds_have_certificates_that_are_confirmed(name: str) -> None:
    make, samples = (PLAIN | WHOLE)[name]
    (model, initial), data = started(make()), samples()
    before = data.inputs.clone()

    found = certify(model, initial, data, **TINY)
    verified = found.verify(model, data, initial_model=initial, seed=0, num_draws=500)

    assert 0 < found.bound <= 1
    assert found.draws == ("pairs" if name in PLAIN else "networks")
    assert verified.verdict == "confirmed", verified.reasons
    assert verified.draws == found.draws
    assert torch.equal(before, data.inputs)


class Images(nn.Module):
    """Flattens by itself, and names its layers from the last to the first."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.first = nn.Linear(36, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(inputs.flatten(1)).relu())


@pytest.mark.parametrize("num_samples", [2, 3])
def test_few_samples_and_large_batches_are_no_obstacle(num_samples: int) -> None:
    model, initial = started(Images())

    found = certify(model, initial, images(num_samples), **TINY | {"batch_size": 100})

    assert found.num_samples == num_samples
    assert 0 < found.bound <= 1


def test_one_class_is_never_wrong_and_still_has_a_divergence() -> None:
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


class Dropped(nn.Module):
    """Random also in use."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(inputs)


def headed(*modules: nn.Module) -> nn.Module:
    return nn.Sequential(*modules, nn.Linear(36, 2))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (headed(nn.Flatten(), Centred()), "must treat samples independently; its outputs depend on the other"),
        (
            headed(nn.Flatten(), nn.BatchNorm1d(36, track_running_stats=False)),
            "independently; 1 is a batch norm that uses batch statistics. Use layer norm or group norm",
        ),
        (
            headed(nn.Flatten(), Dropped()),
            "only on the weights and the samples; two evaluations on the same samples differ",
        ),
        (nn.Flatten(), "a network with parameters; it has none"),
        (nn.Conv2d(1, 2, 1), r"one vector of outputs per sample; it gave \(8, 2, 6, 6\) for 8"),
        (nn.Linear(35, 2), r"accept the inputs of data; for shape \(1, 1, 6, 6\) it raised .*mat1 and mat2"),
    ],
)
def test_networks_without_a_promise_are_refused_and_left_alone(model: nn.Module, words: str) -> None:
    before = copy.deepcopy(model.state_dict())
    with torch.random.fork_rng(), pytest.raises(HessmapError, match=words):
        certify(model.train(), copy.deepcopy(model), images(), **TINY)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_answers_that_are_no_numbers_are_wrong() -> None:
    class Broken(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return inputs * torch.nan

    from hessmap.certificates.draws import mean_loss

    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 2), Broken())
    inputs, labels = images()
    assert mean_loss(network, Data(inputs, 0 * labels)) == 1
