"""Numbers as users pass them: those of numpy and of tensors without dimensions count, what is no number is refused."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput

INPUTS = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(10) % 3


def problem(**options: object) -> hm.Problem:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return hm.Problem(model, "cross_entropy", INPUTS, LABELS, **options)


@pytest.mark.parametrize(
    "half",
    [0.5, np.float32(0.5), np.float64(0.5), np.float16(0.5), np.array(0.5), torch.tensor(0.5), torch.tensor([0.5])[0]],
)
def test_a_penalty_of_any_number_type_is_the_same(half: object) -> None:
    plain, penalised = (hm.loss_hessian(problem(l2=l2)).to_dense() for l2 in (0, half))
    torch.testing.assert_close(penalised, plain + torch.eye(len(plain), dtype=torch.float64), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("l2", [2, np.int64(2), np.uint8(2), torch.tensor(2)])
def test_a_penalty_may_be_an_integer(l2: object) -> None:
    assert problem(l2=l2).l2 == 2.0


NO_PENALTIES = [
    *(
        float("nan"),
        float("inf"),
        -1e-9,
        np.float32("nan"),
        np.float64(-1),
        torch.tensor(-0.5),
        torch.tensor(float("inf")),
    ),
    *(True, np.True_, "0.1", None, 1j, Decimal("0.1"), [0.1], np.array([0.1]), torch.ones(2), 10**400),
]


@pytest.mark.parametrize("l2", NO_PENALTIES, ids=repr)
def test_what_is_no_penalty_is_refused(l2: object) -> None:
    with pytest.raises(InvalidInput, match="l2 must be finite and not negative; got"):
        problem(l2=l2)


@pytest.mark.parametrize(
    "budget", [2**20, np.int64(2**20), np.float32(2**20), float(2**20), np.array(2**20), torch.tensor(2**20)]
)
def test_a_budget_of_any_number_type_is_the_same(budget: object) -> None:
    made = problem(memory_budget=budget)
    assert made.memory_budget == 2**20
    assert type(made.memory_budget) is int


@pytest.mark.parametrize(
    "budget", [float("inf"), np.inf, np.float32("inf"), torch.tensor(float("inf")), 1e300, 10**400]
)
def test_a_budget_without_limit_gives_the_same_numbers(budget: object) -> None:
    limited, free = problem(memory_budget=2**20), problem(memory_budget=budget)
    vector = torch.ones(limited.num_parameters, dtype=torch.float64)
    torch.testing.assert_close(hm.loss_hessian(free) @ vector, hm.loss_hessian(limited) @ vector, rtol=1e-12, atol=0)
    assert hm.loss_hessian(free).to_dense().shape == (43, 43)
    torch.testing.assert_close(free.gradient(), limited.gradient(), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "budget", [float("nan"), -1, 0, -np.inf, 2**20 - 1, "4GB", True, [2**30], np.ones(2), 1j], ids=repr
)
def test_what_is_no_budget_is_refused(budget: object) -> None:
    with pytest.raises(InvalidInput, match="memory_budget must be at least 1 MiB; got"):
        problem(memory_budget=budget)


@pytest.mark.parametrize("choice", [1, 0, None, "yes", "auto", np.ones(2), torch.tensor(True)], ids=repr)
def test_compile_is_a_bool(choice: object) -> None:
    with pytest.raises(InvalidInput, match="compile must be True or False; got"):
        problem(compile=choice)
    assert problem(compile=np.False_).compile is False


@pytest.mark.parametrize("axis", [np.int64(-1), torch.tensor(-1), np.array(-1)])
def test_an_axis_of_any_integer_type_is_the_same(axis: object) -> None:
    model = nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Linear(2, 3)).double()
    labels = torch.zeros(10, 2, dtype=torch.long)
    assert hm.Problem(model, "cross_entropy", INPUTS, labels, class_axis=axis).num_outputs == 3


@pytest.mark.parametrize("axis", [0, 2, 1.0, "1", np.ones(2)], ids=repr)
def test_what_is_no_axis_is_refused(axis: object) -> None:
    with pytest.raises(InvalidInput, match="class_axis must be 1 .* or -1 "):
        problem(class_axis=axis)
