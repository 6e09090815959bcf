"""Priors learnt from a part of the samples: parts that never meet, promises that follow, files that verify alone."""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import beta
from torch import nn

import hessmap as hm
from hessmap.certificates import Certificate, PriorGrid, SampleSplit, certify, certify_from_data
from hessmap.certificates.fit import FitSettings, PosteriorFit
from hessmap.datasets import Data, gaussian_mixture
from hessmap.errors import InvalidInput

NETWORK = hm.FullyConnected((4, 6, 3), bias=True, activation="relu")
TRAIN = partial(hm.train, epochs=4, learning_rate=0.1, record_every=4)
GRID = PriorGrid(0.04, 1, num_points=3)


@pytest.fixture(scope="module")
def data() -> Data:
    return gaussian_mixture(400, 4, num_classes=3, separation=4.0)


@pytest.fixture(scope="module")
def found(data) -> Certificate:
    return certify_from_data(NETWORK.build, data, prior_fraction=0.25, train=TRAIN)


@pytest.fixture(scope="module")
def fitted(data) -> Certificate:
    options = {"iterations": 30, "num_draws": 2000, "batch_size": 32}
    return certify_from_data(NETWORK.build, data, prior_fraction=0.5, train=TRAIN, posterior="fitted", **options)


def test_parts_are_disjoint_and_the_bound_is_of_the_rest(found, data) -> None:
    seen, rest = SampleSplit(0.25, 0).indices(data.inputs)
    assert not set(seen.tolist()) & set(rest.tolist())
    assert (found.num_prior_samples, found.num_samples) == (100, 300)
    assert found.parts[0].startswith("the prior was trained on 100 separate samples")
    assert "the certifier's statement" in found.parts[-1]
    assert found.doubts == ()


def test_prior_as_posterior_has_no_divergence_and_the_bound_of_a_binomial_tail(found) -> None:
    assert (found.kl, found.posterior_kind, found.draws, found.num_draws) == (0.0, "prior", "samples", 300)
    num_errors = found.draw_counts[1]
    assert found.bound == pytest.approx(beta.ppf(1 - 0.035 / 5, num_errors + 1, 300 - num_errors), rel=1e-6)
    assert found.gap == pytest.approx(found.bound - num_errors / 300)


def test_held_out_bound_is_langfords_of_the_priors_mean_network(found, data) -> None:
    seen, rest = SampleSplit(0.25, 0).parts(data)
    prior = NETWORK.build()
    TRAIN(prior, seen)
    num_errors = int((prior(rest.inputs).argmax(1) != rest.targets).sum())
    assert found.held_out_error == num_errors / 300
    assert found.held_out_bound == pytest.approx(beta.ppf(1 - 0.035, num_errors + 1, 300 - num_errors), rel=1e-6)
    assert found.verdict.startswith("the plain held-out bound is better")


def test_fitted_posterior_is_paid_for_and_verifies(fitted, data) -> None:
    assert fitted.kl > 0
    assert fitted.inequality in ("maurer", "catoni")
    assert fitted.bound > fitted.sampled_error_bound > fitted.sampled_error
    assert fitted.verify(NETWORK.build(), data, seed=3).verdict == "confirmed"


def test_tightest_is_the_better_of_both_with_half_of_each_delta(data) -> None:
    options = {"prior_fraction": 0.5, "train": TRAIN, "iterations": 10, "num_draws": 500, "batch_size": 32}
    both = certify_from_data(NETWORK.build, data, posterior="tightest", **options)
    alone = certify_from_data(NETWORK.build, data, posterior="prior", **options)
    assert both.delta_share == 0.5
    assert both.confidence == alone.confidence
    assert both.bound > alone.bound  # the same draws at half of the delta
    assert both.verify(NETWORK.build(), data, seed=1).verdict == "confirmed"


def test_a_blind_prior_is_that_of_certify(data) -> None:
    found = certify_from_data(
        NETWORK.build, data, prior_fraction=0, train=TRAIN, posterior="fitted", iterations=5, num_draws=200
    )
    assert (found.num_prior_samples, found.num_samples, found.split) == (0, 400, {})
    assert found.parts[0] == "the prior does not depend on the samples"
    assert found.verify(NETWORK.build(), data, initial_model=NETWORK.build(), seed=2).verdict == "confirmed"


def trained_by_hand(data: Data) -> tuple[nn.Module, Data, Data]:
    seen, rest = SampleSplit(0.5, 7).parts(data)
    prior = NETWORK.build()
    TRAIN(prior, seen)
    return prior, seen, rest


def test_for_those_who_trained_themselves(data) -> None:
    prior, seen, rest = trained_by_hand(data)
    found = certify(prior, prior, rest, prior_data=seen, posterior="prior", grid=GRID)
    assert found.verify(prior, rest, prior_data=seen, grid=GRID, seed=1).verdict == "confirmed"
    assert found.verify(prior, rest, prior_data=seen, initial_model=prior, grid=GRID, seed=1).verdict == "confirmed"
    assert found.verify(prior, rest, prior_data=seen, seed=1).verdict == "refused"  # the grid was not handed over


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_sample_in_both_parts_is_refused(data, dtype) -> None:
    prior, seen, rest = trained_by_hand(data)
    inputs = torch.round(seen.inputs * 8) / 8
    seen = Data(inputs, seen.targets)
    mixed = Data(torch.cat([rest.inputs, inputs[:1]]).to(dtype), torch.cat([rest.targets, 1 - rest.targets[:1]]))
    with pytest.raises(InvalidInput, match="must not be among those that the prior was trained on; 1 of 201 are"):
        certify(prior, prior, mixed, prior_data=seen, posterior="prior")


@pytest.mark.parametrize(
    ("changes", "verdict", "words"),
    [
        ({"prior_data_hash": "0" * 16}, "refused", "verified with the samples that its prior was trained on"),
        ({"data_hash": "0" * 16}, "refused", "verified on the samples it was made from"),
        ({"draw_counts": (300, 0), "sampled_error": 0.0, "bound": 0.01}, "not confirmed", "follows"),
        ({"bound": 0.001}, "not confirmed", "states bound 0.001"),
        ({"held_out_bound": 0.9}, "not confirmed", "states held out bound 0.9"),
        ({"grid_index": 6, "prior_variance": 0.0025 * np.exp(-6)}, "refused", "the grid has 5 points"),
        ({"split": {"prior_fraction": 0.25, "seed": 1, "num_samples": 400}}, "refused", "samples it was made from"),
    ],
)
def test_certificates_that_do_not_follow_are_not_confirmed(found, data, changes, verdict, words) -> None:
    judged = dataclasses.replace(found, **changes).verify(NETWORK.build(), data, seed=4)
    assert judged.verdict == verdict
    assert words in " ".join(judged.reasons)


def test_what_a_verifier_has_to_hand_over(found, data) -> None:
    _, rest = SampleSplit(0.25, 0).parts(data)
    with pytest.raises(
        InvalidInput, match="with a prior from data is verified with the samples of that prior; they are missing"
    ):
        found.verify(NETWORK.build(), rest)
    assert "the certifier's statement" in found.verify(NETWORK.build(), data, seed=0).unchecked[0]


PROGRAM = """
import sys, hessmap as hm
data = hm.datasets.gaussian_mixture(400, 4, num_classes=3, separation=4.0)
model = hm.FullyConnected((4, 6, 3), bias=True, activation="relu").build(seed=9)
print(hm.Certificate.load(sys.argv[1]).verify(model, data, seed=0).verdict)
"""


def test_file_verifies_in_a_fresh_process(found, tmp_path: Path) -> None:
    found.save(tmp_path / "certificate.npz")
    assert Certificate.load(tmp_path / "certificate.npz") == found
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "certificate.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "confirmed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"prior_fraction": 1.0}, r"prior_fraction must be in \[0, 1\); got 1.0"),
        ({"prior_fraction": float("nan")}, "prior_fraction must"),
        ({"posterior": "best"}, "posterior must be one of fitted, prior, tightest"),
        ({"fit_on": "test"}, "fit_on must be one of rest, all"),
        ({"objective": "loss"}, "objective must be one of bound, pinsker, balanced"),
        ({"grid": PriorGrid()}, "needs a finite grid"),
        ({"build_model": nn.Linear(4, 3)}, "build_model must be a function without arguments"),
        ({"build_model": lambda: 3}, "build_model must be a function without arguments"),
    ],
)
def test_arguments_that_cannot_be_meant(data, arguments, words: str) -> None:
    given = {"build_model": NETWORK.build, "train": lambda model, part: None} | arguments
    with pytest.raises(InvalidInput, match=words):
        certify_from_data(given.pop("build_model"), data, **given)


def test_a_training_may_return_another_network(data) -> None:
    def train(model: nn.Module, part: Data) -> nn.Module:
        other = copy.deepcopy(model)
        TRAIN(other, part)
        return other

    assert certify_from_data(NETWORK.build, data, train=train).bound < 0.5


@pytest.mark.parametrize("starts_at_prior", [True, False])
def test_prior_deviation_of_a_short_grid_ends_at_one_of_its_points(starts_at_prior: bool) -> None:
    """Between two points the divergence from either grows with the number of weights: the fit settles at one."""
    data = gaussian_mixture(200, 20, num_classes=2, separation=4.0)
    network = hm.FullyConnected((20, 60, 2), bias=True, activation="relu")
    settings = FitSettings(iterations=60, batch_size=32, grid=GRID, starts_at_prior=starts_at_prior, progress_every=20)
    fit = PosteriorFit(network.build(seed=1), network.build(seed=0), data, "standard", settings)
    with torch.no_grad():
        fit.log_prior_deviation.sub_(0.05)

    fit.run(None, None)

    variance = fit.best[2]
    point = GRID.precision * np.log(GRID.scale / variance)
    assert point == pytest.approx(round(point), abs=1e-9)
    assert len(GRID.indices_near(variance)) == 1
