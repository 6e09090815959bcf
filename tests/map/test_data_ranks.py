"""Measured ranks of data against the certified ones, on data that a careless count gets wrong."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hessmap.exact import certified_data_ranks
from hessmap.maps.curvature_map.dense import measured_data_ranks
from hessmap.networks import FullyConnected
from hessmap.problem.problem import Problem

NAMES = ("input_rank", "centred_input_rank", "residual_rank", "residual_rank_with_bias")


def drawn_problem(inputs: Tensor, weights: Tensor | None = None, outputs: int = 2) -> Problem:
    generator = torch.Generator().manual_seed(1)
    targets = torch.randint(-3, 4, (len(inputs), outputs), generator=generator).double()
    model = FullyConnected((inputs.shape[1], outputs), bias=True).build(seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_((4 * parameter).round())
    return Problem(model, "squared", inputs, targets, weights=weights)


def values(problem: Problem) -> list[int]:
    found = measured_data_ranks(problem)
    return [getattr(found, name).value for name in NAMES]


def integers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).double()


def test_samples_of_weight_zero_do_not_count() -> None:
    inputs = integers(8, 6)
    weights = torch.tensor([1.0, 2.0, 1.0, 3.0, 0.0, 0.0, 0.0, 0.0])
    assert values(drawn_problem(inputs, weights))[:2] == [4, 3]
    assert values(drawn_problem(inputs))[:2] == [6, 6]


def test_samples_that_the_loss_ignores_do_not_count_and_do_not_move_the_mean() -> None:
    inputs, labels = integers(8, 6), torch.tensor([0, 1, 2, 1, -100, -100, -100, -100])
    model = FullyConnected((6, 3), bias=True).build(seed=0)
    ignoring = Problem(model, nn.CrossEntropyLoss(), inputs, labels)
    left_out = Problem(model, nn.CrossEntropyLoss(), inputs[:4], labels[:4])
    assert values(ignoring) == values(left_out)
    assert values(ignoring)[:2] == [4, 3]


@pytest.mark.parametrize("constant", [1.0, 0.1, 1e6, 1 / 3])
def test_constant_inputs_have_no_centred_rank(constant: float) -> None:
    problem = drawn_problem(torch.full((7, 3), constant, dtype=torch.float64) * torch.tensor([1.0, 2.0, 3.0]))
    assert values(problem) == [1, 0, 1, 1]


def test_repeated_samples_count_once() -> None:
    few = integers(3, 6)
    assert values(drawn_problem(few.repeat(5, 1)))[:2] == values(drawn_problem(few))[:2] == [3, 2]


def test_the_residual_of_a_perfect_fit_and_of_least_squares_has_no_rank() -> None:
    inputs = integers(20, 4).double()
    targets = torch.randn(20, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = nn.Linear(4, 3, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.linalg.lstsq(inputs, targets).solution.T)
    found = measured_data_ranks(Problem(model, "squared", inputs, targets))
    assert (found.residual_rank.value, found.residual_rank.decidable) == (0, True)
    assert found.residual_rank_with_bias.value == 1
    perfect = measured_data_ranks(Problem(model, "squared", inputs, model(inputs).detach()))
    assert (perfect.residual_rank.value, perfect.mean_residual_is_zero) == (0, True)


def test_no_inputs_have_no_rank() -> None:
    assert values(drawn_problem(torch.zeros(4, 3, dtype=torch.float64))) == [0, 0, 0, 1]


@given(data=st.data())
def test_measured_ranks_are_the_certified_ones(data: st.DataObject) -> None:
    num_samples, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 5))
    rows = data.draw(st.integers(1, num_samples))
    inputs = integers(rows, width, seed=data.draw(st.integers(0, 999)))[torch.arange(num_samples) % rows]
    if data.draw(st.booleans()):
        inputs[:, 0] = data.draw(st.integers(-3, 3))  # a constant input, perhaps 0
    # Ones and zeros: the normalised weights of the others would be rounded, and exact arithmetic sees it.
    given_weights = data.draw(st.lists(st.integers(0, 1), min_size=num_samples, max_size=num_samples))
    weights = torch.tensor(given_weights).double() if any(given_weights) else None
    problem = drawn_problem(inputs, weights, data.draw(st.integers(1, 3)))
    found, exact = measured_data_ranks(problem), certified_data_ranks(problem)
    assert values(problem) == [getattr(exact, name) for name in NAMES]
    assert found.mean_residual_is_zero == exact.mean_residual_is_zero
