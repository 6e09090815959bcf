"""The dense form of the Hessian of a linear network belongs to who asked for it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import hessmap as hm
from dense_form_checks import assert_may_be_changed
from hessmap_research.deep_linear import DeepLinearHessian, deep_linear_of


def normals(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64)


def test_the_dense_form_of_a_linear_network_may_be_changed() -> None:
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    problem = hm.Problem(model, "squared", normals(8, 3), normals(8, 2))
    assert_may_be_changed(DeepLinearHessian(deep_linear_of(problem)))
