"""Curvature bases: what they are the eigenvectors of, in which order, and when they are found anew."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hessmap.certificates.bases import BASES, take_curvature_bases
from hessmap.certificates.fit import FitSettings, PosteriorFit
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data, gaussian_mixture
from hessmap.hessians.operators import loss_hessian
from hessmap.networks import FullyConnected
from hessmap.problem.problem import Problem


@pytest.fixture(scope="module")
def subject() -> tuple[nn.Module, Data]:
    model = FullyConnected((4, 5, 6, 3), bias=True, activation="relu").build(seed=0)
    return model, gaussian_mixture(80, 4, num_classes=3)


def in_curvature_bases(subject: tuple[nn.Module, Data], basis: str) -> StochasticNetwork:
    model, data = subject
    network = StochasticNetwork(model, torch.Generator(), dtype=torch.float64)
    take_curvature_bases(network, data, BASES[basis])
    return network


@pytest.mark.parametrize("basis", ["approximate", "iterative_weights", "iterative_activity"])
def test_bases_are_orthonormal(subject, basis: str) -> None:
    for layer in in_curvature_bases(subject, basis).layers.values():
        for found in (layer.output_basis, layer.input_basis):
            assert torch.allclose(found.T @ found, torch.eye(len(found)).double(), atol=1e-12)


def test_bias_block_of_the_hessian_is_diagonal_in_the_output_basis(subject) -> None:
    # The Hessian in the biases is E[M] itself, so its basis is known from an independent computation.
    model, data = subject
    hessian = loss_hessian(Problem(model, "cross_entropy", *data)).to_dense()
    places = {}
    start = 0
    for name, parameter in model.named_parameters():
        places[name] = slice(start, start + parameter.numel())
        start += parameter.numel()

    for name, layer in in_curvature_bases(subject, "approximate").layers.items():
        block = hessian[places[f"{name}.bias"], places[f"{name}.bias"]]
        rotated = layer.output_basis.T @ block @ layer.output_basis
        diagonal = rotated.diagonal()
        assert (rotated - diagonal.diag()).abs().max() < 1e-12
        assert (diagonal[:-1] >= diagonal[1:] - 1e-12).all()


def test_activity_and_weights_differ_and_agree_at_the_last_layer(subject) -> None:
    weights, activity = (in_curvature_bases(subject, f"iterative_{kind}").layers for kind in ("weights", "activity"))

    *hidden, last = weights
    assert torch.allclose(weights[last].output_basis, activity[last].output_basis)
    assert all(not torch.allclose(weights[name].output_basis, activity[name].output_basis) for name in hidden)


def num_refreshes(subject, basis: str, iterations: int) -> int:
    model, data = subject
    settings = FitSettings(iterations=iterations, refresh_every=5, basis_samples=20, progress_every=1)
    fit = PosteriorFit(model, copy.deepcopy(model), data, basis, settings)
    seen = {fit.network.layers["2"].output_basis.sum().item()}
    fit.run(lambda _: seen.add(fit.network.layers["2"].output_basis.sum().item()), None)
    return len(seen) - 1


@pytest.mark.parametrize(("basis", "expected"), [("standard", 0), ("approximate", 0), ("iterative", 7)])
def test_basis_is_found_anew_as_often_as_its_name_says(subject, basis: str, expected: int) -> None:
    assert num_refreshes(subject, basis, iterations=40) == expected


def test_decay_makes_refreshes_rarer_once_the_steps_shrink(subject) -> None:
    # Every 5 of 40 iterations until 60 % (5, 10, 15, 20), then every 50.
    assert num_refreshes(subject, "iterative_decay", iterations=40) == 4
