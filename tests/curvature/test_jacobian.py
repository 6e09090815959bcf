"""The output Jacobian and the tangent kernels."""

from __future__ import annotations

import pytest
import torch

import hessmap as hm
from cases import CASES

by_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_case
def test_jacobian_makes_the_outer_product_hessian(case):
    problem = case.problem()
    jacobian = hm.output_jacobian(problem)
    hessian = problem.loss.hessian(problem.outputs(), problem.targets)
    made = torch.einsum("n,ncp,ncd,ndq->pq", problem.weights, jacobian, hessian, jacobian)
    assert torch.allclose(made, hm.outer_product_hessian(problem).to_dense(), rtol=1e-10, atol=1e-12)


@by_case
def test_gradient_is_the_residual_pulled_back(case):
    problem = case.problem()
    pulled = torch.einsum("n,ncp,nc->p", problem.weights, hm.output_jacobian(problem), problem.residuals())
    assert torch.allclose(problem.gradient(), pulled, rtol=1e-10, atol=1e-12)


def test_kernels_are_made_of_each_other():
    problem = CASES[4].problem()
    full = hm.hessians.tangent_kernel(problem).reshape(11, 3, 11, 3)
    assert torch.allclose(hm.hessians.tangent_kernel(problem, "trace"), torch.einsum("ncmc->nm", full))
    assert torch.allclose(hm.hessians.tangent_kernel(problem, "single_output", output=2), full[:, 2, :, 2])
    with pytest.raises(hm.errors.InvalidInput, match=r"output must be in 0..2; got 3"):
        hm.hessians.tangent_kernel(problem, "single_output", output=3)
    with pytest.raises(hm.errors.InvalidInput, match="kind must be one of full, trace, single_output; got 'sum'"):
        hm.hessians.tangent_kernel(problem, "sum")
