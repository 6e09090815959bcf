"""Kept certificates: what their verification recomputes, and what cannot fool it."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from hessmap.certificates import Certificate
from hessmap.datasets import Data
from hessmap.errors import DataFileError, HessmapError, InvalidInput
from hessmap.networks import FullyConnected
from hessmap.results.provenance import data_hash


def forged(certificate: Certificate, **arrays: np.ndarray) -> Certificate:
    """The certificate with other arrays, and the hash that makes them look its own."""
    posterior = {**certificate.posterior, **arrays}
    return dataclasses.replace(certificate, posterior=posterior, posterior_hash=data_hash(*posterior.values()))


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


def test_claims_of_a_file_are_recomputed_and_not_repeated(problem, certificate: Certificate) -> None:
    model, _, data = problem
    claims = {
        "bound": 0.01,
        "confidence": 0.999,
        "kl": 1.0,
        "sampled_error": 0.0,
        "num_samples": 10**6,
        "num_parameters": 1,
        "training_error": 0.0,
        "assumptions": (),
    }

    assert dataclasses.replace(certificate, **claims).verify(model, data) == certificate


def test_small_noise_cannot_be_hidden_in_a_basis_that_is_not_orthonormal(problem, certificate: Certificate) -> None:
    # Deviations as before, drawn along vectors of a hundredth of their length: the noise is gone, its price is not.
    model, _, data = problem
    shrunk = {
        name: (0.01 * array).astype(np.float32)
        for name, array in certificate.posterior.items()
        if name.endswith("output_basis")
    }

    found = forged(certificate, **shrunk).verify(model, data)

    num_lost = certificate.num_parameters * np.log(100)
    assert found.kl == pytest.approx(certificate.kl + num_lost, abs=certificate.num_parameters)
    assert found.bound > certificate.bound


def test_slanted_basis_pays_for_the_determinant_it_loses(problem, certificate: Certificate) -> None:
    model, _, data = problem
    basis = certificate.posterior["0/output_basis"]
    slanted = basis.copy()
    slanted[:, 1] = (basis[:, 0] + 0.01 * basis[:, 1]) / np.linalg.norm([1, 0.01])

    found = forged(certificate, **{"0/output_basis": slanted}).verify(model, data)

    assert found.kl == pytest.approx(certificate.kl + 6 * np.log(100), rel=0.02)


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 0), (2, 5), (4, 3)])
def test_basis_with_a_direction_twice_is_refused(problem, certificate: Certificate, one: int, other: int) -> None:
    model, _, data = problem
    flat = certificate.posterior["0/output_basis"].copy()
    flat[:, one] = flat[:, other]
    with pytest.raises(InvalidInput, match="kl must be finite"):
        forged(certificate, **{"0/output_basis": flat}).verify(model, data)


def test_prior_is_held_against_the_initial_weights_where_they_are_given(problem, certificate: Certificate) -> None:
    model, initial, data = problem
    assert certificate.verify(model, data, initial_model=initial) == certificate
    moved = {
        name.replace("/", "/initial_"): certificate.posterior[name]
        for name in certificate.posterior
        if name.endswith(("/weight", "/bias"))
    }
    cheap = forged(certificate, **moved)
    assert cheap.verify(model, data).kl < certificate.kl
    with pytest.raises(InvalidInput, match="must stand at the initial weights; the certificate was made with others"):
        cheap.verify(model, data, initial_model=initial)


@pytest.mark.parametrize(
    "other",
    [
        FullyConnected((5, 7, 3), bias=True).build(),
        FullyConnected((5, 6, 3)).build(),
        nn.Linear(5, 3),
    ],
)
def test_verification_refuses_other_architectures(problem, certificate: Certificate, other: nn.Module) -> None:
    with pytest.raises(HessmapError, match="with the architecture it was made for; .* the network wants"):
        certificate.verify(other, problem[2])
