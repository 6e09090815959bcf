"""Certificates: that they hold, that they bite, that they can be kept, continued and checked again."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hessmap.certificates import BASES, Certificate, FitDiverged, FitMoment, certify
from hessmap.datasets import Data, gaussian_mixture
from hessmap.errors import DataFileError, HessmapError, InvalidInput
from hessmap.networks import FullyConnected
from hessmap.theory.pac_bayes import binary_kl_inverse, complexity
from hessmap.training import train

QUICK = {
    "iterations": 60,
    "num_draws": 2_000,
    "batch_size": 32,
    "deviation_learning_rate": 0.1,
    "refresh_every": 20,
    "basis_samples": 50,
}


def trained(data: Data, widths: tuple[int, ...], epochs: int = 10, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    initial = FullyConnected(widths, bias=True, activation="relu").build(seed=seed)
    model = copy.deepcopy(initial)
    train(model, data, epochs=epochs, learning_rate=0.1, record_every=epochs)
    return model, initial


@pytest.fixture(scope="module")
def problem() -> tuple[nn.Module, nn.Module, Data]:
    data = gaussian_mixture(600, 5, num_classes=3, separation=5.0)
    return *trained(data, (5, 6, 3), epochs=2), data


@pytest.fixture(scope="module")
def certificate(problem) -> Certificate:
    return certify(*problem, **QUICK)


def coins(num_samples: int, seed: int) -> Data:
    """Labels that are fair coins: whatever is learnt, the error on unseen data is exactly one half."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(num_samples, 60, generator=generator, dtype=torch.float64)
    return Data(inputs, torch.randint(2, (num_samples,), generator=generator))


def test_bound_holds_as_often_as_promised_and_without_its_price_it_does_not() -> None:
    options = QUICK | {"basis": "standard", "iterations": 40, "num_draws": 500, "delta": 0.05, "sampling_delta": 0.05}
    num_broken = num_broken_without_price = 0
    for seed in range(200):
        data = coins(60, seed)
        model, initial = trained(data, (60, 2), epochs=20, seed=seed)
        found = certify(model, initial, data, seed=seed, **options)
        free = complexity(0.0, found.num_samples, found.grid_index, found.delta)
        num_broken += found.bound < 0.5
        num_broken_without_price += binary_kl_inverse(found.sampled_error_bound, free) < 0.5
    assert num_broken <= 200 * 0.1
    assert num_broken_without_price > 200 * 0.1


def test_bound_on_random_labels_stays_above_the_true_error() -> None:
    data = coins(300, seed=1)
    model, initial = trained(data, (60, 40, 2), epochs=60)

    found = certify(model, initial, data, **QUICK | {"iterations": 200})

    assert found.training_error < 0.2
    assert found.bound > 0.5


def test_certificate_says_what_it_rests_on(certificate: Certificate) -> None:
    assert certificate.confidence == pytest.approx(0.965)
    assert certificate.sampled_error < certificate.sampled_error_bound < certificate.bound < 1
    assert certificate.bound == binary_kl_inverse(certificate.sampled_error_bound, certificate.complexity)
    assert certificate.complexity == complexity(certificate.kl, 600, certificate.grid_index, 0.025)
    assert certificate.num_parameters == 5 * 6 + 6 + 6 * 3 + 3
    assert certificate.doubts == ()
    assert any("initial weights" in assumption for assumption in certificate.assumptions)


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


def test_certificate_is_kept_and_verified_from_its_file(problem, certificate: Certificate, tmp_path: Path) -> None:
    model, _, data = problem
    certificate.save(tmp_path / "certificate.npz")

    loaded = Certificate.load(tmp_path / "certificate.npz")
    again = loaded.verify(model, data)

    assert loaded == certificate == again
    other = loaded.verify(model, data, seed=99)
    assert other.sampled_error != certificate.sampled_error
    assert other.bound == pytest.approx(certificate.bound, abs=0.05)


def test_verification_uses_the_posterior_and_not_the_models_weights(problem, certificate: Certificate) -> None:
    model, _, data = problem
    with torch.no_grad():
        other = copy.deepcopy(model)
        for parameter in other.parameters():
            parameter.zero_()

    assert certificate.verify(other, data) == certificate


def test_verification_refuses_other_data_and_other_posteriors(problem, certificate: Certificate) -> None:
    model, _, data = problem
    with pytest.raises(InvalidInput, match="verified on the samples it was made from; these samples hash to"):
        certificate.verify(model, Data(data.inputs + 1, data.targets))
    name = next(iter(certificate.posterior))
    changed = {**certificate.posterior, name: certificate.posterior[name] * 0.5}
    with pytest.raises(InvalidInput, match="verified from its own posterior; the arrays differ"):
        dataclasses.replace(certificate, posterior=changed).verify(model, data)
    with pytest.raises(InvalidInput, match="verified from its posterior; it holds none"):
        dataclasses.replace(certificate, posterior={}).verify(model, data)


def test_damaged_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"not a certificate")
    with pytest.raises(DataFileError, match="a certificate must be readable"):
        Certificate.load(tmp_path / "broken.npz")
    np.savez(tmp_path / "other.npz", something=np.zeros(2))
    with pytest.raises(DataFileError, match="a certificate must be readable"):
        Certificate.load(tmp_path / "other.npz")


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
    options = QUICK | {"checkpoint": tmp_path / "fit.pt", "progress_every": 20}
    certify(*problem, **options)
    with pytest.raises(InvalidInput, match="seed was 0 and is 1"):
        certify(*problem, seed=1, **options)


@pytest.mark.parametrize("basis", BASES)
def test_every_basis_gives_a_certificate_that_verifies(problem, basis: str) -> None:
    model, initial, data = problem
    found = certify(model, initial, data, basis, **QUICK)

    assert found.basis == basis
    assert found.verify(model, data) == found


def test_own_basis_is_taken_and_an_identity_is_the_standard_one(problem) -> None:
    model, initial, data = problem
    identity = {
        name: (torch.eye(layer.out_features), torch.eye(layer.in_features))
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear)
    }

    given = certify(model, initial, data, identity, **QUICK)

    assert given.bound == certify(model, initial, data, "standard", **QUICK).bound
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
    assert found.verify(model, data) == found


def test_initial_weights_that_know_the_data_raise_doubts(problem) -> None:
    model, _, data = problem
    doubts = certify(model, copy.deepcopy(model), data, **QUICK).doubts

    assert any("equal the trained ones" in doubt for doubt in doubts)
    assert any("do they know them" in doubt for doubt in doubts)


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
        ({"basis": {"9": (torch.eye(5), torch.eye(5))}}, "layer"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(problem, changes, words: str) -> None:
    with pytest.raises(HessmapError, match=words):
        certify(**altered(problem, **changes))


def test_diverging_fit_is_an_error_and_leaves_no_file(problem, tmp_path: Path) -> None:
    options = altered(problem, learning_rate=1e30, checkpoint=tmp_path / "fit.pt", progress_every=1000)
    with pytest.raises(FitDiverged, match="keep the objective finite; the objective is .* at iteration"):
        certify(**options)
    assert list(tmp_path.iterdir()) == []
