"""Nothing of the user's model, data or random state changes, whatever is asked for."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hessmap as hm


def states(model: nn.Module, *tensors: torch.Tensor) -> list[object]:
    """Everything that a careless library would change."""
    return [
        copy.deepcopy(model.state_dict()),
        [(module.training, len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.modules()],
        [(p.requires_grad, None if p.grad is None else p.grad.clone(), p.dtype, id(p)) for p in model.parameters()],
        [tensor.clone() for tensor in tensors],
        torch.get_rng_state(),
        np.random.get_state()[1].copy(),  # noqa: NPY002
        random.getstate(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.backends.mha.get_fastpath_enabled(),
    ]


def same(before: object, after: object) -> bool:
    if isinstance(before, torch.Tensor):
        return torch.equal(before, after)
    if isinstance(before, np.ndarray):
        return np.array_equal(before, after)
    if isinstance(before, dict):
        return before.keys() == after.keys() and all(same(before[key], after[key]) for key in before)
    if isinstance(before, list | tuple):
        return len(before) == len(after) and all(map(same, before, after))
    return before == after


def user_model() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True), nn.Linear(5, 3))
    model[0].weight.grad = torch.ones_like(model[0].weight)
    model[3].bias.requires_grad_(False)
    return model


def test_every_public_call_leaves_the_user_alone():
    model, inputs, targets = user_model(), torch.randn(12, 4), torch.arange(12) % 3
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=5, shuffle=True, generator=generator)
    before = states(model, inputs, targets, generator.get_state())
    for data in ((inputs, targets), (loader,)):
        problem = hm.Problem(model, "cross_entropy", *data)
        for operator in (hm.loss_hessian, hm.outer_product_hessian, hm.functional_hessian):
            hessian = operator(problem)
            hessian @ torch.ones(hessian.size, dtype=torch.float64)
            hessian.to_dense()
            assert hessian.scale > 0
        problem.gradient()
        hm.output_jacobian(problem)
        hm.hessians.tangent_kernel(problem, "trace")
    assert same(before, states(model, inputs, targets, generator.get_state()))


def test_a_refusal_leaves_the_user_alone_too():
    model, inputs = user_model(), torch.randn(12, 4)
    before = states(model, inputs)
    with pytest.raises(hm.errors.InvalidInput, match="labels must be in"):
        hm.Problem(model, "cross_entropy", inputs, torch.full((12,), 7))
    assert same(before, states(model, inputs))


def test_the_guard_sees_a_change():
    model = user_model()
    before = states(model)
    model.eval()
    assert not same(before, states(model))
    model.train()
    torch.rand(1)
    assert not same(before, states(model))


def test_a_problem_is_a_snapshot():
    model, inputs, targets = user_model().double(), torch.randn(12, 4).double(), torch.arange(12) % 3
    problem = hm.Problem(model, "squared", inputs, targets)
    before = hm.loss_hessian(problem).to_dense()
    with torch.no_grad():
        model[0].weight.add_(1.0)
        inputs.mul_(2.0)
        targets.zero_()
    assert torch.equal(hm.loss_hessian(problem).to_dense(), before)
