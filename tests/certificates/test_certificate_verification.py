"""Stored certificates: what binds them to samples, network and posterior, and what their verification recomputes."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from certificate_cases import QUICK
from torch import nn

from hessmap.certificates import Certificate, PriorGrid, Verification, certify
from hessmap.certificates.draws import Draws
from hessmap.datasets import Data, gaussian_mixture
from hessmap.errors import InvalidInput
from hessmap.networks import FullyConnected
from hessmap.records import data_hash
from hessmap.theory.pac_bayes import confidence_of, maurer_complexity, tightest_bound

SEED = 7


def changed(certificate: Certificate, **arrays: np.ndarray) -> Certificate:
    """The certificate with other arrays, and their hash."""
    posterior = {**certificate.posterior, **arrays}
    return dataclasses.replace(certificate, posterior=posterior, posterior_hash=data_hash(*posterior.values()))


@pytest.fixture(scope="module")
def verify(problem) -> Callable[..., Verification]:
    """With everything the verifier has to hand over."""
    model, initial, data = problem

    def verified(certificate: Certificate, **options: Any) -> Verification:
        return certificate.verify(
            model, data, **{"initial_model": initial, "seed": SEED, "num_draws": 20_000} | options
        )

    return verified


def test_certificate_is_kept_and_confirmed_from_its_file(certificate: Certificate, verify, tmp_path: Path) -> None:
    certificate.save(tmp_path / "certificate.npz")
    loaded = Certificate.load(tmp_path / "certificate.npz")

    found = verify(loaded)

    assert set(loaded.posterior) == set(certificate.posterior)
    assert loaded == certificate
    assert found.verdict == "confirmed"
    assert found
    assert found.reasons == ()
    assert found.doubts == ()
    assert found.claimed_bound == certificate.bound


def test_numbers_are_the_verifiers_own(certificate: Certificate, verify) -> None:
    one, same, other = (verify(certificate, seed=seed) for seed in (SEED, SEED, SEED + 1))

    assert one == same
    assert one.sampled_error != other.sampled_error
    assert one.sampled_error != certificate.sampled_error
    assert one.num_draws == 20_000
    assert one.bound < certificate.bound  # ten times as many draws
    assert one.kl == certificate.kl
    cost = PriorGrid().log_cost(one.grid_index)
    assert one.bound == tightest_bound(one.sampled_error_bound, one.kl, 600, cost, 0.025).value
    assert one.complexity == maurer_complexity(one.kl, 600, cost, 0.025)
    assert one.confidence == confidence_of(0.025, 0.01)


def test_seed_is_fresh_where_none_is_given(certificate: Certificate, verify) -> None:
    seeds = {verify(certificate, seed=None, num_draws=100).seed for _ in range(4)}

    assert len(seeds) == 4
    assert int(str(certificate.settings["seed"])) + 1 not in seeds


def test_there_is_no_verdict_without_the_initial_model(problem, certificate: Certificate) -> None:
    model, _, data = problem
    with pytest.raises(InvalidInput, match="needs the weights that training started from; got none"):
        certificate.verify(model, data)
    with pytest.raises(InvalidInput, match="needs the weights that training started from; got none"):
        certificate.verify(model, data, initial_model=None)


def test_verification_uses_the_posterior_and_not_the_models_weights(problem, certificate: Certificate, verify) -> None:
    other = copy.deepcopy(problem[0])
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()

    found = certificate.verify(other, problem[2], initial_model=problem[1], seed=SEED, num_draws=20_000)

    assert found == verify(certificate)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bound", 0.01),
        ("confidence", 0.999),
        ("kl", 1.0),
        ("sampled_error", 0.0),
        ("sampled_error_bound", 0.001),
        ("training_error", 0.5),
        ("held_out_error", 0.9),
        ("held_out_bound", 0.1),
        ("sampling_delta", 0.4),
        ("delta", 0.3),
    ],
)
def test_number_that_does_not_follow_is_not_confirmed(
    certificate: Certificate, verify, name: str, value: float
) -> None:
    honest = verify(certificate)

    found = verify(dataclasses.replace(certificate, **{name: value}))

    assert found.verdict == "not confirmed"
    assert found.reasons
    claims = {"claimed_bound", "claimed_confidence", "verdict", "reasons", "seconds", "provenance"}
    for field in dataclasses.fields(found):
        assert field.name in claims or getattr(found, field.name) == getattr(honest, field.name)


def test_errors_on_test_data_are_recomputed_or_named_and_never_repeated(certificate: Certificate, verify) -> None:
    faked = dataclasses.replace(certificate, test_error=0.001, stochastic_test_error=0.001)
    tests = gaussian_mixture(400, 5, num_classes=3, separation=2.0, seed=9)

    found, checked = verify(faked), verify(faked, test_data=tests)

    assert found.unchecked == ("test_error", "stochastic_test_error")
    assert found.test_error is None
    assert "0.001" not in repr(found)
    assert checked.verdict == "not confirmed"
    assert checked.unchecked == ("stochastic_test_error",)
    assert any("states test error 0.001, and it is" in reason for reason in checked.reasons)
    honest = dataclasses.replace(certificate, test_error=checked.test_error)
    assert verify(honest, test_data=tests).verdict == "confirmed"
    assert verify(certificate, test_data=tests).verdict == "confirmed"  # which states none


def test_doubts_are_found_anew(problem, knowing: Certificate) -> None:
    model, _, data = problem
    silenced = dataclasses.replace(knowing, doubts=())

    found = silenced.verify(model, data, initial_model=copy.deepcopy(model), seed=SEED)

    assert any("were they trained on them" in doubt for doubt in found.doubts)


def with_array(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Certificate], Certificate]:
    return lambda certificate: changed(certificate, **{name: change(certificate.posterior[name])})


def replaced(**fields: Any) -> Callable[[Certificate], Certificate]:
    return lambda certificate: dataclasses.replace(certificate, **fields)


def repeated_column(array: np.ndarray) -> np.ndarray:
    made = array.copy()
    made[:, 1] = made[:, 0]
    return made


OTHERS: dict[str, tuple[Callable[[Certificate], Certificate], str]] = {
    "prior": (
        with_array("0/initial_weight", lambda array: array + 1),
        "must be centred at the initial weights; 0/initial_weight is not the initial model's",
    ),
    "grid": (
        lambda made: dataclasses.replace(made, settings=made.settings | {"grid": {"scale": 0.1, "precision": 1}}),
        "grid of prior variances must be the one fixed beforehand; the certificate states scale",
    ),
    "no grid": (replaced(settings={}), "fixed beforehand; the certificate states no grid"),
    "variance off the grid": (replaced(prior_variance=0.5), "must be a point of the grid; the certificate states 0.5"),
    "samples": (replaced(data_hash="0" * 16), "verified on the samples it was made from"),
    "number of samples": (replaced(num_samples=60_000), "count the distinct inputs .*; it counts 60000, there are 600"),
    "no posterior": (replaced(posterior={}), "with the architecture it was made for; 0/weight is absent"),
    "array in double": (with_array("0/weight", lambda array: array.astype(float)), "0/weight is float64"),
    "array transposed": (with_array("0/weight", np.transpose), r"0/weight is float32 of shape \(5, 6\)"),
    "arrays of another layer": (
        lambda made: changed(made, **{"9/weight": np.zeros(3, dtype=np.float32)}),
        r"9/weight is float32 of shape \(3,\), the network needs absent",
    ),
    "array of NaN": (with_array("0/log_deviations", lambda array: array * np.nan), "variances must be positive"),
    "large deviations": (with_array("0/log_deviations", lambda array: array * 0 + 400), "variances must be finite"),
    "no deviations": (with_array("0/log_deviations", lambda array: array * 0 - 400), "variances must be positive"),
    "basis with a direction twice": (with_array("0/output_basis", repeated_column), "kl must be finite"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_belong_together_is_refused_in_one_sentence(certificate: Certificate, verify, name: str) -> None:
    change, words = OTHERS[name]

    found = verify(change(certificate))

    assert found.verdict == "refused"
    assert not found
    assert found.bound is None
    assert len(found.reasons) == 1
    assert re.search(words, found.reasons[0]), found.reasons[0]


def test_arrays_that_are_not_those_of_the_certificate_are_refused(certificate: Certificate, verify) -> None:
    arrays = {**certificate.posterior, "0/weight": certificate.posterior["0/weight"] * np.float32(0.5)}

    found = verify(dataclasses.replace(certificate, posterior=arrays))

    assert "its own posterior; the arrays differ from those it was made with" in found.reasons[0]


def test_swapped_data_and_other_architectures_are_refused(problem, certificate: Certificate) -> None:
    model, initial, data = problem
    inputs, labels = data
    order = torch.arange(len(inputs)).flip(0)
    for other in (Data(inputs + 1, labels), Data(inputs, labels[order]), Data(inputs[:-1], labels[:-1])):
        found = certificate.verify(model, other, initial_model=initial)
        assert found.verdict == "refused"
        assert "verified on the samples it was made from; these samples hash to" in found.reasons[0]
    for other_model in (FullyConnected((5, 7, 3), bias=True).build(), FullyConnected((5, 6, 3)).build()):
        found = certificate.verify(other_model, data, initial_model=copy.deepcopy(other_model))
        assert found.verdict == "refused"
        assert "with the architecture it was made for; " in found.reasons[0]


def test_short_basis_vectors_have_the_divergence_of_the_noise_they_lose(certificate: Certificate, verify) -> None:
    # Deviations as before, along vectors of a hundredth of their length: the noise is gone, its divergence is not.
    shrunk = {
        name: (0.01 * array).astype(np.float32)
        for name, array in certificate.posterior.items()
        if name.endswith("output_basis")
    }

    found = verify(changed(certificate, **shrunk))

    assert found.verdict == "not confirmed"
    num_lost = certificate.num_parameters * np.log(100)
    assert found.kl == pytest.approx(certificate.kl + num_lost, abs=certificate.num_parameters)
    assert found.bound > certificate.bound


def test_slanted_basis_has_the_divergence_of_the_determinant_it_loses(certificate: Certificate, verify) -> None:
    basis = certificate.posterior["0/output_basis"]
    slanted = basis.copy()
    slanted[:, 1] = (basis[:, 0] + 0.01 * basis[:, 1]) / np.linalg.norm([1, 0.01])

    found = verify(changed(certificate, **{"0/output_basis": slanted}))

    assert found.kl == pytest.approx(certificate.kl + 6 * np.log(100), rel=0.02)


def test_claim_below_what_the_draws_allow_is_not_confirmed(certificate: Certificate, verify) -> None:
    """Counts that give the claimed bound, but not on this network: another version of it, or other preprocessing."""
    counts = (certificate.num_draws, 0)
    error_bound = Draws("pairs", counts, 1).bound(certificate.sampling_delta)
    cost = PriorGrid().log_cost(certificate.grid_index)
    bound = tightest_bound(error_bound, certificate.kl, certificate.num_samples, cost, certificate.delta).value
    claims = {"draw_counts": counts, "sampled_error": 0.0, "sampled_error_bound": error_bound, "bound": bound}

    found = verify(dataclasses.replace(certificate, **claims))

    assert found.verdict == "not confirmed"
    assert len(found.reasons) == 1
    assert "the least error that these draws allow gives" in found.reasons[0]


def test_honest_certificates_are_confirmed_by_nearly_every_seed(certificate: Certificate, verify) -> None:
    verdicts = [verify(certificate, seed=seed, num_draws=2000).verdict for seed in range(40)]

    assert verdicts.count("confirmed") >= 38


def test_other_grid_is_confirmed_where_the_verifier_hands_it_over(problem) -> None:
    model, initial, data = problem
    grid = PriorGrid(scale=1.0, precision=50)
    made = certify(model, initial, data, grid=grid, **QUICK)

    assert made.settings["grid"] == {"scale": 1.0, "precision": 50, "num_points": None}
    assert made.prior_variance == grid.variance(made.grid_index)
    options = {"initial_model": initial, "seed": SEED, "num_draws": 5000}
    assert made.verify(model, data, grid=grid, **options).verdict == "confirmed"
    assert made.verify(model, data, **options).verdict == "refused"
    assert made.verify(model, data, grid=PriorGrid(scale=1.0), **options).verdict == "refused"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": -1}, "seed must be an integer of at least 0; got -1"),
        ({"seed": 2**63}, r"seed must be below 2\^63"),
        ({"seed": "x"}, "seed must be an integer of at least 0; got 'x'"),
        ({"num_draws": 0}, "num_draws must be an integer of at least 1; got 0"),
        ({"grid": (0.1, 100)}, "grid must be a PriorGrid"),
        ({"initial_model": "untrained"}, "initial_model must be an nn.Module; got a str"),
        ({"initial_model": nn.Linear(5, 3)}, "must have the same parameters"),
    ],
)
def test_mistakes_of_the_verifier_are_errors(certificate: Certificate, verify, options, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        verify(certificate, **options)


def test_verification_is_a_record(certificate: Certificate, verify) -> None:
    for found in (verify(certificate), verify(dataclasses.replace(certificate, posterior={}))):
        assert Verification.from_json(found.to_json()) == found
