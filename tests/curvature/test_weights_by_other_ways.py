"""Weights that a model reaches past its modules, wrappers around it, and operations that torch differentiates badly."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from cases import chain
from hessmap.errors import UnsupportedNetwork
from plain_autograd import plain_hessian

INPUTS = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.arange(7) % 3


def cross_entropy(model: nn.Module) -> Tensor:
    return nn.functional.cross_entropy(model(INPUTS), LABELS)


class Kept(nn.Module):
    """A weight in a plain list, which is not replaced when the module's is."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = chain(4, 4, 3)
        self.kept = [self.layers[0].weight]

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs @ self.kept[0])


class Read(nn.Module):
    """A weight that also enters by its values alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = chain(4, 4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs) * float(self.layers[0].weight.data.abs().sum())


def closed_over() -> nn.Module:
    original = chain(4, 4, 3).double()
    wrapper = chain(4, 4, 3).double()
    wrapper.load_state_dict(original.state_dict())
    first = wrapper[0]
    wrapper.forward = lambda inputs: original[2](torch.tanh(nn.functional.linear(inputs, first.weight, first.bias)))
    return wrapper


def test_a_weight_in_a_list_is_refused_by_name():
    with pytest.raises(UnsupportedNetwork, match=r"through its modules.*matmul.*'layers.0.weight' from elsewhere"):
        hm.Problem(Kept().double(), "cross_entropy", INPUTS, LABELS)


def test_a_forward_that_closes_over_the_model_itself_is_refused():
    model = closed_over()
    with pytest.raises(UnsupportedNetwork, match=r"linear has parameter '0.weight' from elsewhere"):
        hm.Problem(model, "cross_entropy", INPUTS, LABELS)


def test_values_read_past_autograd_are_constants_and_that_is_said():
    model = Read().double()
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert "the model reads values of 'layers.0.weight' outside of autograd, where it is a constant" in problem.notes
    assert torch.allclose(hm.loss_hessian(problem).to_dense(), plain_hessian(model, cross_entropy(model)), rtol=1e-11)


@pytest.mark.parametrize("how", ["whole", "part", "in place"])
def test_compiled_models_are_taken_as_they_were_written(how):
    model = chain(4, 5, 3).double()
    expected = plain_hessian(model, cross_entropy(model))
    if how == "whole":
        compiled = torch.compile(model, backend="eager")
    elif how == "part":
        compiled = nn.Sequential(torch.compile(model[0], backend="eager"), model[1], model[2])
    else:
        model.compile(backend="eager")
        compiled = model
    problem = hm.Problem(compiled, "cross_entropy", INPUTS, LABELS)
    assert problem.layout.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert "compiled modules are used without torch.compile" in problem.notes
    assert float((hm.loss_hessian(problem).to_dense() - expected).abs().max()) < 1e-12 * float(expected.abs().max())


@pytest.mark.parametrize("norm", [nn.utils.parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norm_is_frozen_and_that_is_said(norm):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(norm(nn.Linear(4, 5)), nn.Tanh(), nn.Linear(5, 3)).double()
    problem = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert "spectral norm is frozen, with its stored singular vectors" in problem.notes
    assert model.training
    expected = plain_hessian(model.eval(), cross_entropy(model))
    assert float((hm.loss_hessian(problem).to_dense() - expected).abs().max()) < 1e-12 * float(expected.abs().max())


@pytest.mark.parametrize("activation", [nn.Hardswish, nn.Hardsigmoid])
def test_hard_activations_have_second_derivatives(activation):
    """Against differences of gradients: torch's second derivatives of these are missing."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 5), activation(), nn.Linear(5, 3)).double()
    problem = hm.Problem(model, "cross_entropy", 3 * INPUTS, LABELS)
    vector = torch.randn(problem.num_parameters, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step = 1e-6
    gradients = []
    for sign in (1, -1):
        with torch.no_grad():
            nn.utils.vector_to_parameters(problem.parameters + sign * step * vector, model.parameters())
        risk = nn.functional.cross_entropy(model(3 * INPUTS), LABELS)
        gradients.append(torch.cat([part.flatten() for part in torch.autograd.grad(risk, list(model.parameters()))]))
    expected = (gradients[0] - gradients[1]) / (2 * step)
    found = hm.loss_hessian(problem) @ vector
    assert float((found - expected).abs().max()) < 1e-7 * float(expected.abs().max())


def test_casts_to_float32_are_said():
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = chain(4, 4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.layers(inputs).float().double()

    problem = hm.Problem(Cast().double(), "cross_entropy", INPUTS, LABELS)
    assert any("computes some of its values in float32 (torch.Tensor.float)" in note for note in problem.notes)


class Rescaled(nn.Module):
    """Divides a weight in place at the first call, as some language models do in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = chain(4, 4, 3)
        self.is_rescaled = False

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.is_rescaled:
            with torch.no_grad():
                self.layers[2].weight.div_(2)
            self.is_rescaled = True
        return self.layers(inputs)


def test_a_model_that_writes_into_its_weights_is_refused():
    model = Rescaled().double()
    before = model.layers[2].weight.detach().clone()
    with pytest.raises(UnsupportedNetwork, match=r"leave the weights as they are; .* into parameter 'layers.2.weight'"):
        hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert torch.equal(model.layers[2].weight, before)


class Experts(nn.Module):
    """Every sample goes through the matrix of its expert, as mixtures of experts compute it; or one by one."""

    def __init__(self, is_grouped: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        )
        self.is_grouped = is_grouped

    def forward(self, inputs: Tensor) -> Tensor:
        chosen = inputs[:, :3].argmax(1)
        if not self.is_grouped:
            return torch.stack([row @ self.weight[expert] for row, expert in zip(inputs, chosen, strict=True)]).tanh()
        order = chosen.argsort()
        ends = torch.bincount(chosen, minlength=3).cumsum(0).to(torch.int32)
        return torch._grouped_mm(inputs[order], self.weight, offs=ends)[order.argsort()].tanh()


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products")
def test_grouped_products_are_taken_in_float64():
    found = hm.loss_hessian(hm.Problem(Experts(True), "cross_entropy", INPUTS, LABELS)).to_dense()
    plain = Experts(False)
    expected = plain_hessian(plain, cross_entropy(plain))
    assert float((found - expected).abs().max()) <= 1e-12 * float(expected.abs().max())
