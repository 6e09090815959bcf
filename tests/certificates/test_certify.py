"""Certificates: that they hold, that they bite, that they can be kept, continued and checked again."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
import torch
from certificate_cases import QUICK, trained
from torch import nn

from hessmap.certificates import BASES, Certificate, certify
from hessmap.datasets import Data, gaussian_mixture
from hessmap.theory.pac_bayes import PriorGrid, binary_kl_inverse, maurer_complexity, tightest_bound
from hessmap.training import train


def coins(num_samples: int, seed: int) -> Data:
    """Labels that are fair coins: whatever is learnt, the error on unseen data is exactly one half."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, 60, generator=generator, dtype=torch.float64)
    return Data(inputs, torch.randint(2, (num_samples,), generator=generator))


def test_bound_holds_as_often_as_promised_and_without_the_divergence_it_does_not() -> None:
    """Labels that are coins: the true error is 1/2, and a bound below it is broken. A promise that fails twice as often
    as it may passes 80 repetitions in 1 of 80 cases; without the divergence almost all of them break.
    ``repeated_certificates.py`` counts 500 of every form."""
    options = QUICK | {"basis": "standard", "iterations": 20, "num_draws": 500, "delta": 0.05, "sampling_delta": 0.05}
    num_broken = num_broken_without_divergence = 0
    for seed in range(80):
        data = coins(60, seed)
        model, initial = trained(data, (60, 2), epochs=20, seed=seed)
        found = certify(model, initial, data, seed=seed, **options)
        free = maurer_complexity(0.0, found.num_samples, PriorGrid().log_cost(found.grid_index), found.delta)
        num_broken += found.bound < 0.5
        num_broken_without_divergence += binary_kl_inverse(found.sampled_error_bound, free) < 0.5
    assert num_broken <= 80 * 0.1
    assert num_broken_without_divergence > 80 * 0.5


def test_bound_on_random_labels_stays_above_the_true_error() -> None:
    data = coins(300, seed=1)
    model, initial = trained(data, (60, 40, 2), epochs=60)

    found = certify(model, initial, data, **QUICK | {"iterations": 200})

    assert found.training_error < 0.2
    assert found.bound > 0.5


def test_certificate_says_what_it_rests_on(certificate: Certificate) -> None:
    assert certificate.confidence == pytest.approx(0.965)
    assert certificate.sampled_error < certificate.sampled_error_bound < certificate.bound < 1
    cost = PriorGrid().log_cost(certificate.grid_index)
    found = tightest_bound(certificate.sampled_error_bound, certificate.kl, 600, cost, 0.025)
    assert (certificate.bound, certificate.inequality) == found
    assert certificate.complexity == maurer_complexity(certificate.kl, 600, cost, 0.025)
    assert certificate.num_parameters == 5 * 6 + 6 + 6 * 3 + 3
    assert certificate.doubts == ()
    assert any("the prior's weights" in assumption for assumption in certificate.assumptions)


def test_same_seed_gives_the_same_certificate_and_nothing_else_is_touched(problem, certificate: Certificate) -> None:
    model, initial, data = problem
    before = [parameter.clone() for parameter in (*model.parameters(), *initial.parameters())]
    state = torch.get_rng_state()

    again = certify(model, initial, data, **QUICK)

    assert again == certificate
    after = (*model.parameters(), *initial.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert torch.equal(state, torch.get_rng_state())


def test_test_errors_are_told_apart_from_the_promise(problem) -> None:
    model, initial, data = problem
    unseen = gaussian_mixture(150, 5, num_classes=3, separation=5.0, seed=0)

    found = certify(model, initial, data, test_data=unseen, **QUICK)

    assert found.test_error is not None
    assert found.test_error < 0.2
    assert found.stochastic_test_error is not None
    assert found.test_error != found.stochastic_test_error < found.bound


@pytest.mark.parametrize("basis", BASES)
def test_every_basis_gives_a_certificate_that_verifies(problem, fit_in, basis: str) -> None:
    model, initial, data = problem
    found = fit_in(basis)

    assert found.basis == basis
    assert found.verify(model, data, initial_model=initial, seed=1, num_draws=5000).reasons == ()


def test_own_basis_is_taken_and_an_identity_is_the_standard_one(problem, fit_in) -> None:
    model, initial, data = problem
    identity = {
        name: (torch.eye(layer.out_features), torch.eye(layer.in_features))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    }

    given = certify(model, initial, data, identity, **QUICK)

    assert given.bound == fit_in("standard").bound
    assert given.basis == "given"


def test_convolutions_have_certificates() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(120, 1, 6, 6, generator=generator, dtype=torch.float64)
    data = Data(inputs, (inputs.mean((1, 2, 3)) > 0).long())
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 2)).double()
    initial = copy.deepcopy(model)
    train(model, data, epochs=20)

    found = certify(model, initial, data, **QUICK)

    assert found.bound < 1
    assert found.verify(model, data, initial_model=initial, seed=1, num_draws=5000).reasons == ()


def test_initial_weights_that_know_the_data_raise_doubts(knowing: Certificate) -> None:
    assert any("equal the trained ones" in doubt for doubt in knowing.doubts)
    assert any("were they trained on them" in doubt for doubt in knowing.doubts)


def test_room_of_certificates_is_there_before_anything_was_touched() -> None:
    command = "import hessmap; print(hessmap.certificates.certify.__name__, hessmap.certificates.Verification.__name__)"

    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["certify", "Verification"]


def test_certificate_under_inference_mode_is_the_usual_one(problem, certificate: Certificate) -> None:
    model, initial, data = problem
    with torch.inference_mode():
        there = Data(data.inputs.clone(), data.targets.clone())
        found = certify(model, initial, there, **QUICK)

        assert found == certificate
        assert found.verify(model, there, initial_model=initial, seed=1, num_draws=2000).bound is not None


@pytest.mark.parametrize("in_place", [True, False])
def test_compiled_network_has_the_certificate_of_the_network(problem, certificate: Certificate, in_place: bool) -> None:
    model, initial, data = copy.deepcopy(problem)
    if in_place:
        model.compile(backend="eager")
    else:
        model = torch.compile(model, backend="eager")

    assert certify(model, initial, data, **QUICK) == certificate
