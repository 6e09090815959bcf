"""Predicted eigenvalues of balanced linear networks against measured spectra on whitened inputs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.theory.fully_connected.signature import balanced_spectrum
from hessmap.theory.functions import balanced_factors


def orthogonal(draw: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(draw.normal(size=(size, size)))[0]


@pytest.mark.parametrize(
    ("widths", "singular_values"),
    [
        ((3, 3, 3), [2.0, 1.0, 0.5]),
        ((4, 3, 2), [1.5, 0.7]),
        ((3, 4, 5, 3), [1.3, 0.4]),
        ((5, 4, 4, 4, 3), [2.0, 1.0, 0.3]),
        ((2, 3, 3, 3, 3, 4), [1.2]),
        ((3, 2), [1.0, 0.5]),
    ],
    ids=str,
)
def test_spectra_are_those_that_are_measured(widths: tuple[int, ...], singular_values: list[float]) -> None:
    draw = np.random.default_rng(sum(widths))
    dim, outputs, num_layers = widths[0], widths[-1], len(widths) - 1
    middle = np.zeros((outputs, dim))
    np.fill_diagonal(middle[: len(singular_values), : len(singular_values)], singular_values)
    left, right = orthogonal(draw, outputs), orthogonal(draw, dim)
    hidden = [orthogonal(draw, width) for width in widths[1:-1]]
    weights = []
    for index, (before, after) in enumerate(pairwise(widths)):
        factor = np.zeros((after, before))
        power = np.array(singular_values) ** (1 / num_layers)
        np.fill_diagonal(factor[: len(power), : len(power)], power)
        turned = left if index == num_layers - 1 else hidden[index]
        came = right if index == 0 else hidden[index - 1]
        weights.append(turned @ factor @ came.T)
    for first, second in pairwise(weights):
        np.testing.assert_allclose(second.T @ second, first @ first.T, atol=1e-12)
    model = hm.FullyConnected(widths).build(seed=0)
    inputs = torch.from_numpy(np.sqrt(dim) * orthogonal(draw, dim))
    with torch.no_grad():
        for parameter, weight in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(weight))
        targets = model(inputs)
    measured = np.sort(hm.spectrum(hm.loss_hessian(hm.Problem(model, "squared", inputs, targets))).eigenvalues)[::-1]
    predicted = hm.predict_spectrum(hm.FullyConnected(widths), singular_values)
    np.testing.assert_allclose(measured, predicted, atol=1e-10 * measured[0])


@pytest.mark.parametrize(
    "network", [hm.FullyConnected((3, 2, 1), bias=True), hm.FullyConnected((3, 2, 1), activation="relu"), "3-2-1"]
)
def test_other_networks_are_not_covered(network: object) -> None:
    with pytest.raises(UnsupportedNetwork, match="linear FullyConnected network without bias"):
        hm.predict_spectrum(network, [1.0])  # type: ignore[arg-type]


def test_dominant_eigenvalues_are_the_depth_times_the_bulk() -> None:
    for num_layers in range(2, 7):
        values = balanced_spectrum((4,) * (num_layers + 1), [1.7])
        assert values[0] / values[1] == pytest.approx(num_layers)
        assert values[1] == pytest.approx(values[6])
        assert values[7] == 0


def test_balanced_factors_have_the_singular_values_of_the_formula() -> None:
    """The weights of the theory's own construction are balanced, with values s^(1/L)."""
    for factor in balanced_factors(np.diag([8.0, 1.0]), 3):
        np.testing.assert_allclose(np.linalg.svd(factor, compute_uv=False)[:2], [2.0, 1.0])


@pytest.mark.parametrize(
    ("widths", "values", "words"),
    [
        ((3, 1, 3), [1.0, 0.5], "of that width"),
        ((2, 2), [1.0, 1.0, 1.0], "at most 2"),
        ((2, 2), [-1.0], "not be negative"),
    ],
)
def test_wrong_arguments(widths: tuple[int, ...], values: list[float], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        balanced_spectrum(widths, values)
