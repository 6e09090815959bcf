"""Stored certificates: what their verification recomputes, and what cannot fool it."""

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
from scipy.stats import binom
from torch import nn

from hessmap.certificates import Certificate, PriorGrid, Verification, certify
from hessmap.certificates.evidence import TOLD
from hessmap.certificates.losses import LOSSES
from hessmap.certificates.parts import held_out_from, verdict
from hessmap.datasets import Data, gaussian_mixture
from hessmap.errors import InvalidInput
from hessmap.networks import FullyConnected
from hessmap.results.provenance import data_hash
from hessmap.theory.pac_bayes import confidence_of
from hessmap.theory.risk_bounds import held_out_bound, maurer_complexity, tightest_bound

SEED = 7


def forged(certificate: Certificate, **arrays: np.ndarray) -> Certificate:
    """The certificate with other arrays, and the hash that makes them look its own."""
    posterior = {**certificate.posterior, **arrays}
    return dataclasses.replace(certificate, posterior=posterior, posterior_hash=data_hash(*posterior.values()))


def consistent(certificate: Certificate, **changes: Any) -> Certificate:
    """Other claims, with the numbers that follow from them."""
    made = dataclasses.replace(certificate, **changes)
    cost = PriorGrid().log_cost(made.grid_index)
    worth = maurer_complexity(made.kl, made.num_samples, cost, made.delta)
    num_errors = round(made.sampled_error * made.num_draws)
    error_bound = held_out_bound(num_errors, made.num_draws, made.sampling_delta)
    bound = tightest_bound(error_bound, made.kl, made.num_samples, cost, made.delta)
    plain = held_out_from(made.held_out_error, made.num_samples, LOSSES[made.loss], (made.delta, made.sampling_delta))
    return dataclasses.replace(
        made,
        complexity=worth,
        draw_counts=(made.num_draws - num_errors, num_errors),
        sampled_error_bound=error_bound,
        bound=bound.value,
        inequality=bound.inequality,
        held_out_bound=plain.bound,
        verdict=verdict(bound.value, plain, has_prior_data=False),
    )


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


def test_false_claims_are_not_confirmed_and_never_repeated(certificate: Certificate, verify) -> None:
    honest = verify(certificate)
    for name, value in {
        "bound": 0.01,
        "confidence": 0.999,
        "kl": 1.0,
        "complexity": 0.001,
        "sampled_error": 0.0,
        "sampled_error_bound": 0.001,
        "num_parameters": 1,
        "training_error": 0.5,
        "num_draws": 10**9,
        "sampling_delta": 0.4,
        "delta": 0.3,
    }.items():
        found = verify(dataclasses.replace(certificate, **{name: value}))
        assert found.verdict == ("refused" if name == "num_draws" else "not confirmed"), name
        assert found.reasons, name
        if found.verdict == "refused":
            continue  # nothing is recomputed
        claims = {"claimed_bound", "claimed_confidence", "verdict", "reasons", "seconds", "provenance"}
        for field in dataclasses.fields(found):
            assert field.name in claims or getattr(found, field.name) == getattr(honest, field.name)


def test_errors_on_test_data_are_recomputed_or_named_and_never_repeated(certificate: Certificate, verify) -> None:
    faked = dataclasses.replace(certificate, test_error=0.001, stochastic_test_error=0.001)
    tests = gaussian_mixture(400, 5, num_classes=3, separation=2.0, seed=9)

    found, checked = verify(faked), verify(faked, test_data=tests)

    assert found.unchecked == ("test_error", "stochastic_test_error", TOLD)
    assert found.test_error is None
    assert "0.001" not in repr(found)
    assert checked.verdict == "not confirmed"
    assert checked.unchecked == ("stochastic_test_error", TOLD)
    assert any("states test error 0.001, and it is" in reason for reason in checked.reasons)
    honest = dataclasses.replace(certificate, test_error=checked.test_error)
    assert verify(honest, test_data=tests).verdict == "confirmed"
    assert verify(certificate, test_data=tests).verdict == "confirmed"  # which states none


def test_words_of_the_certifier_are_never_repeated_and_said_to_be_unchecked(certificate: Certificate, verify) -> None:
    words = {"ending": "FORGED", "notes": ("FORGED",), "doubts": ("FORGED",), "basis": "given"}

    found = verify(dataclasses.replace(certificate, **words, settings=certificate.settings | {"iterations": 10**6}))

    assert found.verdict == "confirmed"
    assert TOLD in found.unchecked
    assert "FORGED" not in found.to_json()


def test_basis_that_is_not_the_one_that_is_named_is_refused(certificate: Certificate, verify) -> None:
    for basis, words in (
        ("standard", "is the coordinates as they are; 0/output_basis is another one"),
        ("best", "one"),
    ):
        found = verify(dataclasses.replace(certificate, basis=basis))

        assert found.verdict == "refused"
        assert words in found.reasons[0]


def test_doubts_are_found_anew(problem, certificate: Certificate) -> None:
    model, _, data = problem
    knowing = certify(model, copy.deepcopy(model), data, **QUICK)
    silenced = dataclasses.replace(knowing, doubts=())

    found = silenced.verify(model, data, initial_model=copy.deepcopy(model), seed=SEED)

    assert any("do they know them" in doubt for doubt in found.doubts)


def moved_prior(certificate: Certificate) -> Certificate:
    """The prior at the posterior's own means: next to no divergence."""
    means = {
        name.replace("/", "/initial_"): array
        for name, array in certificate.posterior.items()
        if name.endswith(("/weight", "/bias"))
    }
    return forged(certificate, **means)


def other_grid(certificate: Certificate) -> Certificate:
    """The same prior variance as the first point of a grid that was made for it."""
    grid = {"scale": certificate.prior_variance * float(np.exp(0.01)), "precision": 100}
    return consistent(certificate, grid_index=1, settings={**certificate.settings, "grid": grid})


def replaced(**fields: Any) -> Callable[[Certificate], Certificate]:
    return lambda certificate: dataclasses.replace(certificate, **fields)


def with_array(name: str, change: Callable[[np.ndarray], Any]) -> Callable[[Certificate], Certificate]:
    return lambda certificate: forged(certificate, **{name: change(certificate.posterior[name])})


def settings_of(**changes: Any) -> Callable[[Certificate], Certificate]:
    return lambda certificate: dataclasses.replace(certificate, settings=certificate.settings | changes)


def with_value(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def changed(array: np.ndarray) -> np.ndarray:
        made = array.copy()
        made.flat[0] = value
        return made

    return changed


def repeated_column(array: np.ndarray) -> np.ndarray:
    made = array.copy()
    made[:, 1] = made[:, 0]
    return made


FORGERIES: dict[str, tuple[Callable[[Certificate], Certificate], str]] = {
    "prior moved": (moved_prior, "must stand at the initial weights; 0/initial_weight is not the initial model's"),
    "grid moved": (
        other_grid,
        "grid of prior variances must be the one fixed beforehand; the certificate states scale",
    ),
    "grid of another precision": (settings_of(grid={"scale": 0.1, "precision": 1}), "grid .* fixed beforehand"),
    "no grid": (settings_of(grid=None), "a certificate must state its grid; it states no grid"),
    "variance off the grid": (
        replaced(prior_variance=0.5),
        "must be a point of the grid; the certificate states 0.5, and at index",
    ),
    "index zero": (replaced(grid_index=0), "grid_index must be at least 1; the certificate states 0"),
    "index far away": (replaced(grid_index=10**6), "must be a point of the grid"),
    "deltas of .9": (replaced(delta=0.9, sampling_delta=0.9), "confidence above one half; together they are 1.8"),
    "deltas of a half": (replaced(delta=0.25, sampling_delta=0.25), "above one half; together they are 0.5"),
    "negative delta": (replaced(delta=-0.1), "delta must lie strictly between 0 and 1"),
    "more samples": (replaced(num_samples=60_000), "the number of its samples; it states 60000, there are 600"),
    "other samples": (replaced(data_hash="0" * 16), "verified on the samples it was made from"),
    "no draws": (replaced(num_draws=0), "num_draws must be at least 1"),
    "draws of another kind": (replaced(draws="seeds"), "draws must be one of pairs, networks, samples; .* 'seeds'"),
    "bound below zero": (replaced(bound=-0.1), r"bound must lie in \[0, 1\]"),
    "rate above one": (replaced(sampled_error=1.5), r"sampled_error must lie in \[0, 1\]"),
    "bound is NaN": (replaced(bound=float("nan")), "bound must be a finite number and is 'nan'"),
    "bound is text": (replaced(bound="0.1"), "bound must be a finite number and is '0.1'"),
    "kl is complex": (replaced(kl=1j), "kl must be a finite number"),
    "draws are true": (replaced(num_draws=True), "num_draws must be a whole number and is 'True'"),
    "draws are half": (replaced(num_draws=2.5), "num_draws must be a whole number"),
    "settings are a list": (replaced(settings=[1]), "settings must be a table"),
    "test error below zero": (replaced(test_error=-0.1), r"test_error must lie in \[0, 1\]"),
    "posterior of a number": (replaced(posterior=3), "verified from its posterior; it holds none"),
    "posterior of a list": (replaced(posterior=[1]), "verified from its posterior; it holds none"),
    "no posterior": (replaced(posterior={}), "verified from its posterior; it holds none"),
    "array of NaN": (with_array("0/weight", with_value(np.nan)), "arrays of a certificate must be finite; 0/weight"),
    "array of inf": (with_array("2/log_deviations", with_value(np.inf)), "must be finite; 2/log_deviations"),
    "complex array": (with_array("0/weight", lambda array: array + 1j), "0/weight is complex64 of shape"),
    "array in double": (with_array("0/weight", lambda array: array.astype(float)), "0/weight is float64"),
    "array of texts": (with_array("0/bias", lambda array: array.astype(str)), "0/bias is <U"),
    "array of objects": (with_array("0/bias", lambda array: array.astype(object)), "0/bias is object"),
    "array transposed": (with_array("0/weight", np.transpose), r"0/weight is float32 of shape \(5, 6\)"),
    "array with an axis": (with_array("0/weight", lambda array: array[None]), r"shape \(1, 6, 5\)"),
    "scalar": (with_array("0/weight", lambda array: array.sum()), "0/weight is "),
    "huge deviations": (with_array("0/log_deviations", lambda array: array * 0 + 400), "variances must be finite"),
    "large deviations": (with_array("0/log_deviations", lambda array: array * 0 + 354), "kl must be finite"),
    "no deviations": (with_array("0/log_deviations", lambda array: array * 0 - 400), "variances must be positive"),
    "basis with a direction twice": (with_array("0/output_basis", repeated_column), "kl must be finite"),
    "basis of zeros": (with_array("0/input_basis", np.zeros_like), "variances must be positive"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_refused_in_one_sentence(certificate: Certificate, verify, name: str) -> None:
    forge, words = FORGERIES[name]

    found = verify(forge(certificate))

    assert found.verdict == "refused"
    assert not found
    assert found.bound is None
    assert len(found.reasons) == 1
    assert re.search(words, found.reasons[0]), found.reasons[0]


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Certificate)])
def test_odd_value_of_any_field_is_never_confirmed_and_never_raises(
    certificate: Certificate, verify, name: str
) -> None:
    beside = {"basis", "ending", "seconds", "provenance", "assumptions", "doubts", "notes"}  # no promise rests on them
    for value in (None, "x", -1, 2**61, 10**400, 1e308, float("nan"), True, (1,), {}, 1j, np.array([1, 2]), object()):
        found = verify(dataclasses.replace(certificate, **{name: value}), num_draws=200)
        states_none = value is None and name in ("test_error", "stochastic_test_error")
        states_none |= name == "split" and value == {}  # as it is
        assert not found or states_none or name in beside, value
        assert Verification.from_json(found.to_json()) == found


def test_missing_and_surplus_arrays_are_refused(certificate: Certificate, verify) -> None:
    for name in certificate.posterior:
        fewer = {key: array for key, array in certificate.posterior.items() if key != name}
        assert f"{name} is absent" in verify(dataclasses.replace(certificate, posterior=fewer)).reasons[0]
        for value in (None, "text", [1.0, 2.0]):
            odd = dataclasses.replace(certificate, posterior={**certificate.posterior, name: value})
            assert f"{name} is absent" in verify(odd).reasons[0]
    more = forged(certificate, **{"9/weight": np.zeros(3, dtype=np.float32)})
    assert "9/weight is float32 of shape (3,), the network wants absent" in verify(more).reasons[0]


def test_arrays_that_are_not_those_of_the_certificate_are_refused(certificate: Certificate, verify) -> None:
    changed = {**certificate.posterior, "0/weight": certificate.posterior["0/weight"] * np.float32(0.5)}

    found = verify(dataclasses.replace(certificate, posterior=changed))

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


def test_small_noise_cannot_be_hidden_in_a_basis_that_is_not_orthonormal(certificate: Certificate, verify) -> None:
    # Deviations as before, along vectors of a hundredth of their length: the noise is gone, its divergence is not.
    shrunk = {
        name: (0.01 * array).astype(np.float32)
        for name, array in certificate.posterior.items()
        if name.endswith("output_basis")
    }

    found = verify(forged(certificate, **shrunk))

    assert found.verdict == "not confirmed"
    num_lost = certificate.num_parameters * np.log(100)
    assert found.kl == pytest.approx(certificate.kl + num_lost, abs=certificate.num_parameters)
    assert found.bound > certificate.bound


def test_slanted_basis_has_the_divergence_of_the_determinant_it_loses(certificate: Certificate, verify) -> None:
    basis = certificate.posterior["0/output_basis"]
    slanted = basis.copy()
    slanted[:, 1] = (basis[:, 0] + 0.01 * basis[:, 1]) / np.linalg.norm([1, 0.01])

    found = verify(forged(certificate, **{"0/output_basis": slanted}))

    assert found.kl == pytest.approx(certificate.kl + 6 * np.log(100), rel=0.02)


def test_narrow_posterior_that_claims_the_divergence_of_a_wide_one_is_not_confirmed(
    certificate: Certificate, verify
) -> None:
    narrow = {name: array - 3 for name, array in certificate.posterior.items() if name.endswith("log_deviations")}
    drawn = verify(forged(certificate, **narrow))
    claimed = consistent(forged(certificate, **narrow), sampled_error=drawn.sampled_error, num_draws=20_000)

    found = verify(claimed)

    assert found.verdict == "not confirmed"
    assert any("states kl" in reason for reason in found.reasons)


@pytest.mark.parametrize("num_draws", [1000, 3000])
def test_seed_that_was_chosen_among_thousands_is_not_confirmed(
    certificate: Certificate, verify, num_draws: int
) -> None:
    # The luckiest of some thousand seeds has as few errors as have a chance of one in some thousand.
    rate = verify(certificate, num_draws=50_000).sampled_error
    luckiest = int(binom.ppf(3e-4, num_draws, rate))
    usual = int(binom.ppf(0.2, num_draws, rate))

    found, other = (
        verify(consistent(certificate, sampled_error=count / num_draws, num_draws=num_draws), num_draws=None)
        for count in (luckiest, usual)
    )

    assert found.verdict == "not confirmed"
    assert any("was the seed chosen among many?" in reason for reason in found.reasons)
    assert other.verdict == "confirmed"


def test_claims_below_what_any_draws_allow_are_not_confirmed(certificate: Certificate, verify) -> None:
    for num_draws in (10, 100, 2000):
        found = verify(consistent(certificate, sampled_error=0.0, num_draws=num_draws))
        is_false = found.bound > found.claimed_bound
        assert not is_false or found.verdict == "not confirmed"
    assert any("the least error that these draws allow" in reason for reason in found.reasons)


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
        ({"seed": 2**63}, r"seed must lie below 2\^63"),
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
