"""Exact ranks of one hidden layer of ReLUs on many samples, against certified ranks of networks with dyadic weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from flint import fmpz_mat
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected.activations import one_hidden_ranks

PARTS = ("outer_product", "functional", "loss")


def problem_of(
    widths: tuple[int, int, int], biases: tuple[bool, bool], seed: int, num_samples: int, activation: str = "relu"
) -> hm.Problem:
    """Weights, inputs and targets drawn from small multiples of 1/8."""
    draw = np.random.default_rng(seed)
    model = hm.FullyConnected(widths, bias=biases, activation=activation).build(seed=seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(draw.integers(-40, 41, tuple(parameter.shape)) / 8 + 1 / 16))
    inputs, targets = (draw.integers(-64, 65, (num_samples, size)) / 8 for size in (widths[0], widths[2]))
    return hm.Problem(model, "squared", torch.from_numpy(inputs), torch.from_numpy(targets))


@pytest.mark.parametrize("biases", [(False, False), (True, False), (False, True), (True, True)], ids=str)
@pytest.mark.parametrize("widths", [(2, 2, 1), (2, 3, 2), (3, 2, 3), (4, 2, 1)], ids=str)
def test_many_samples_have_the_ranks_of_the_theorem(widths: tuple[int, int, int], biases: tuple[bool, bool]) -> None:
    problem = problem_of(widths, biases, seed=sum(widths), num_samples=60)
    found = tuple(hm.certified_rank(problem, part).value for part in PARTS)
    assert found == one_hidden_ranks(widths, widths[0], biases)
    predicted = hm.predict_ranks(hm.FullyConnected(widths, bias=biases, activation="relu"))
    assert found == tuple(getattr(predicted, part).value for part in PARTS)


def test_one_input_needs_a_bias_to_tell_units_apart() -> None:
    problem = problem_of((1, 3, 1), (True, False), seed=5, num_samples=60)
    found = tuple(hm.certified_rank(problem, part).value for part in PARTS)
    assert found == one_hidden_ranks((1, 3, 1), 1, (True, False))
    without = hm.certified_rank(problem_of((1, 3, 1), (False, False), seed=5, num_samples=60), "outer_product").value
    assert without < 3 * (1 + 1 - 1)
    with pytest.raises(InvalidInput, match="different hyperplanes"):
        one_hidden_ranks((1, 3, 1), 1)


def test_two_units_of_one_hyperplane_lose_rank() -> None:
    """The assumption is needed: the second unit has a multiple of the first one's weights."""
    problem = problem_of((3, 2, 1), (False, False), seed=1, num_samples=60)
    weight = next(layer.weight for layer in problem.model if isinstance(layer, nn.Linear))
    model = hm.FullyConnected((3, 2, 1), activation="relu").build(seed=0)
    with torch.no_grad():
        for own, given in zip(model.parameters(), problem.model.parameters(), strict=True):
            own.copy_(given)
        next(model.parameters())[1] = 2 * weight[0]
    special = hm.Problem(model, "squared", problem.inputs, problem.targets)
    assert hm.certified_rank(special, "outer_product").value < one_hidden_ranks((3, 2, 1), 3).outer_product


@pytest.mark.parametrize(("widths", "seed"), [((2, 2, 2), 0), ((2, 1, 2), 1), ((3, 2, 2), 2)])
def test_at_critical_points_the_rescalings_are_flat(widths: tuple[int, int, int], seed: int) -> None:
    """Integer residuals orthogonal to all derivatives of the outputs: every gradient vanishes, H_f does not."""
    draw = np.random.default_rng(seed)
    dim, hidden, outputs = widths
    first, second = draw.integers(-3, 4, (hidden, dim)), draw.integers(1, 4, (outputs, hidden))
    first[first == 0] = 1
    inputs = draw.integers(-3, 4, (24, dim))
    sums = inputs @ first.T
    active = sums > 0
    rows = [  # the derivative of every output of every sample by every parameter, as columns
        *(
            np.outer(active[:, unit] * inputs[:, j], second[:, unit]).ravel()
            for unit in range(hidden)
            for j in range(dim)
        ),
        *(
            np.outer(active[:, u] * sums[:, u], np.eye(outputs, dtype=int)[k]).ravel()
            for u in range(hidden)
            for k in range(outputs)
        ),
    ]
    kernel, nullity = fmpz_mat([[int(value) for value in row] for row in rows]).nullspace()
    columns = np.array([[int(kernel[i, j]) for j in range(nullity)] for i in range(kernel.nrows())], dtype=object)
    divisors = [int(np.gcd.reduce([abs(value) for value in column])) for column in columns.T]
    columns = np.array([column // divisor for column, divisor in zip(columns.T, divisors, strict=True)]).T
    residuals = (columns @ draw.integers(-2, 3, nullity)).reshape(24, outputs)
    assert max(abs(int(value)) for value in residuals.ravel()) < 2**40
    assert all(sum(int(a) * int(b) for a, b in zip(row, residuals.ravel(), strict=True)) == 0 for row in rows)
    model = hm.FullyConnected(widths, activation="relu").build(seed=0)
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), (first, second), strict=True):
            parameter.copy_(torch.from_numpy(value.astype(np.float64)))
        given = torch.from_numpy(inputs.astype(np.float64))
        targets = model(given) - torch.from_numpy(residuals.astype(np.float64))
    problem = hm.Problem(model, "squared", given, targets)
    assert hm.certified_rank(problem, "functional").value > 0
    expected = one_hidden_ranks(widths, dim, num_stationary_units=hidden)
    assert hm.certified_rank(problem, "outer_product").value == expected.outer_product
    assert hm.certified_rank(problem, "loss").value == expected.loss == problem.num_parameters - hidden


def test_leaky_units_have_the_same_ranks() -> None:
    problem = problem_of((2, 3, 2), (False, False), seed=6, num_samples=60, activation="leaky_relu")
    found = tuple(hm.certified_rank(problem, part).value for part in PARTS)
    assert found == one_hidden_ranks((2, 3, 2), 2)


def test_samples_must_reach_every_cell_of_the_hyperplanes() -> None:
    """Two hyperplanes are 2.6 degrees apart: none of 60 samples is between them, some of 600 are."""
    few, many = (problem_of((2, 3, 2), (False, False), seed=5, num_samples=number) for number in (60, 600))
    expected = one_hidden_ranks((2, 3, 2), 2).outer_product
    assert hm.certified_rank(few, "outer_product").value < expected
    assert hm.certified_rank(many, "outer_product").value == expected
