"""Predicted costs against what measurements hold and make."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import hessmap as hm
from hessmap.errors import InvalidInput, TooLarge
from hessmap.records import CostPlan, load


@pytest.fixture(scope="module")
def problem() -> hm.Problem:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
    return hm.Problem(model, "cross_entropy", torch.randn(60, 20), torch.randint(4, (60,)))


def test_a_plan_has_the_vectors_of_the_method(problem: hm.Problem) -> None:
    plan = hm.cost_plan(problem, "sharpness", method="three_term")
    assert plan.num_vectors == 3 + 1  # two vectors and an image, and the gradients that the image is concatenated from
    assert plan.num_bytes == 4 * 8 * problem.num_parameters
    with_vector = hm.cost_plan(problem, "sharpness", method="three_term", eigenvector=True)
    assert with_vector.num_vectors == 4 + 1
    assert plan.seconds_per_product is not None
    assert plan.seconds_per_product > 0


def test_products_are_predicted_within_a_factor_of_two(problem: hm.Problem) -> None:
    plan = hm.cost_plan(problem, "top_eigenpairs", count=5, time_product=False)
    found = hm.top_eigenpairs(hm.loss_hessian(problem), 5)
    assert plan.seconds_per_product is None
    assert 0.5 <= found.num_products / plan.num_products <= 2


def test_a_density_has_the_products_that_it_makes(problem: hm.Problem) -> None:
    options: dict[str, Any] = {"num_probes": 2, "num_steps": 5, "method": "quadrature"}
    plan = hm.cost_plan(problem, "density_estimate", time_product=False, **options)
    hessian = hm.loss_hessian(problem)
    hm.density_estimate(hessian, **options)  # the first call also checks symmetry
    assert plan.num_products == hm.density_estimate(hessian, **options).num_products == 10


def test_budgets_decide_the_method(problem: hm.Problem) -> None:
    vector = 8 * problem.num_parameters
    methods = [
        hm.cost_plan(problem, "sharpness", memory_budget=count * vector, time_product=False).method
        for count in (4, 200)
    ]
    assert methods == ["three_term", "thick_restart"]
    with pytest.raises(TooLarge, match="Use fewer eigenpairs"):
        hm.cost_plan(problem, "top_eigenpairs", count=10, memory_budget=5 * vector)


def test_plans_are_stored(problem: hm.Problem, tmp_path: Any) -> None:
    plan = hm.cost_plan(problem, "trace_estimate", time_product=False)
    plan.save(tmp_path / "plan.json")
    found = load(tmp_path / "plan.json")
    assert isinstance(found, CostPlan)
    assert (found.num_bytes, found.num_products, found.method) == (plan.num_bytes, plan.num_products, plan.method)


def test_unknown_measurements_and_arguments_are_errors(problem: hm.Problem) -> None:
    with pytest.raises(InvalidInput, match="measurement must be one of"):
        hm.cost_plan(problem, "rank", time_product=False)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="arguments of density_estimate must be among"):
        hm.cost_plan(problem, "density_estimate", counts=3)
