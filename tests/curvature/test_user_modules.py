"""Modules as users write them: what the engine cannot lift is right in another way, what is wrong is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import hessmap as hm
from cases import Case, chain
from hessmap.errors import InvalidInput, NotReproducible, UnsupportedNetwork
from hessmap.hessians.dense import dense_hessian
from plain_autograd import plain_hessian

INPUTS = torch.randn(9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
TARGETS = torch.randn(9, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3).double(), nn.Linear(3, 3).double()


class RowByRow(TwoLayers):
    """One call per sample: their number grows with the batch."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([self.second(torch.tanh(self.first(row))) for row in inputs])


class Routed(TwoLayers):
    """Some samples pass through a second layer that others, the first one among them, never see."""

    def forward(self, inputs: Tensor) -> Tensor:
        hidden, chosen = torch.tanh(self.first(inputs)), inputs[:, 0] > INPUTS[0, 0]
        return hidden.index_put((chosen,), self.second(hidden[chosen])) if chosen.any() else hidden


class TokensFirst(nn.Module):
    """(tokens, samples, features): the first axis is not that of the samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 5).double(), nn.Linear(5, 3).double()

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = inputs.reshape(len(inputs), 2, 2).transpose(0, 1)
        return self.second(torch.tanh(self.first(tokens)).prod(0))


class Averaging(TwoLayers):
    """It writes into its buffers at every call, as counters and running averages do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("num_calls", torch.zeros(()))
        self.register_buffer("average", torch.zeros(3, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(inputs))
        self.num_calls += 1
        with torch.no_grad():
            self.average.mul_(0.9).add_(0.1 * hidden.mean(0))
        return self.second(hidden)


def gated() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.SiLU(), nn.Linear(5, 3)).double()


def grouped() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def instance_normed() -> nn.Module:
    layers = nn.Linear(4, 6), nn.Unflatten(1, (2, 3)), nn.InstanceNorm1d(2, affine=True), nn.Flatten(), nn.Linear(6, 3)
    return nn.Sequential(*layers).double()


@pytest.mark.parametrize("make", [RowByRow, Routed, TokensFirst, Averaging, gated, grouped, instance_normed])
def test_the_dense_form_is_right_however_the_module_is_written(make):
    model = make()
    expected = plain_hessian(model, 0.5 * (model(INPUTS) - TARGETS).square().sum(1).mean())
    found = hm.loss_hessian(hm.Problem(model, "squared", INPUTS, TARGETS)).to_dense()
    assert float((found - expected).abs().max()) < 1e-12 * float(expected.abs().max())


@pytest.mark.parametrize("make", [grouped, gated, Averaging])
def test_group_norm_silu_and_modules_that_count_their_calls_are_lifted(make):
    assert dense_hessian(hm.Problem(make(), "squared", INPUTS, TARGETS), "loss").method == "lifted"


def test_buffers_of_the_user_stay_as_they_were():
    model = Averaging()
    hm.loss_hessian(hm.Problem(model, "squared", INPUTS, TARGETS)).to_dense()
    assert float(model.num_calls) == 0
    assert not model.average.any()


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm_has_the_right_second_derivative(dim):
    """torch's own is not symmetric, so the oracle is a difference quotient of gradients."""
    model = nn.Sequential(weight_norm(nn.Linear(4, 5), dim=dim), nn.Tanh(), nn.Linear(5, 3)).double()
    problem = hm.Problem(model, "squared", INPUTS, TARGETS)

    def gradient(flat: Tensor) -> Tensor:
        flat = flat.clone().requires_grad_()
        torch.nn.utils.vector_to_parameters(flat, model.parameters())
        for parameter in model.parameters():
            parameter.grad = None
        named = dict(zip(dict(model.named_parameters()), problem.unflatten(flat).values(), strict=True))
        outputs = torch.func.functional_call(model, named, (INPUTS,))
        return torch.autograd.grad(0.5 * (outputs - TARGETS).square().sum(1).mean(), flat)[0]

    step, start = 1e-6, problem.parameters
    identity = torch.eye(problem.num_parameters, dtype=torch.float64)
    expected = torch.stack([(gradient(start + step * e) - gradient(start - step * e)) / (2 * step) for e in identity])
    for found in (hm.loss_hessian(problem) @ identity, hm.loss_hessian(problem).to_dense()):
        assert float((found - expected).abs().max()) < 1e-8 * float(expected.abs().max())


def test_a_second_derivative_that_is_not_symmetric_is_refused():
    class Wrong(torch.autograd.Function):
        """A product whose derivative by the first factor claims not to depend on the second."""

        generate_vmap_rule = True

        @staticmethod
        def forward(first: Tensor, second: Tensor) -> Tensor:
            return first * second

        @staticmethod
        def setup_context(ctx, inputs, output) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, slope: Tensor) -> tuple[Tensor, Tensor]:
            first, second = ctx.saved_tensors
            return slope * second.detach().clone(), slope * first

    class Model(TwoLayers):
        def forward(self, inputs: Tensor) -> Tensor:
            hidden = self.first(inputs)
            return Wrong.apply(hidden, torch.tanh(self.second(hidden)))

    with pytest.raises(UnsupportedNetwork, match="second derivatives must be those of the outputs; torch's differ"):
        hm.loss_hessian(hm.Problem(Model(), "squared", INPUTS, TARGETS)).to_dense()


def test_modules_that_branch_or_write_in_place_have_a_jacobian():
    class Branching(TwoLayers):
        def forward(self, inputs: Tensor) -> Tensor:
            hidden = self.first(inputs)
            held = torch.zeros(len(inputs), 3, dtype=torch.float64)
            held[:, :3] = hidden * 2 if hidden.abs().max() > 1e9 else hidden
            return self.second(torch.tanh(held))

    model = Branching()
    problem = hm.Problem(model, "squared", INPUTS, TARGETS)
    found, outputs = hm.output_jacobian(problem), model(INPUTS)
    row = torch.cat([g.reshape(-1) for g in torch.autograd.grad(outputs[4, 1], list(model.parameters()))])
    assert torch.allclose(found[4, 1], row, rtol=1e-12, atol=1e-14)


def test_a_model_that_is_rarely_random_is_refused():
    """A dropout of 1 in a million agrees with itself twice; that it draws numbers gives it away."""

    class Rare(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(F.dropout(inputs, 1e-6, self.training))

    model = Rare(4, 3).double()
    with pytest.raises(NotReproducible, match=r"it draws random numbers. Disable randomness.*model.eval\(\)"):
        hm.Problem(model, "squared", INPUTS, TARGETS)
    assert hm.Problem(model.eval(), "squared", INPUTS, TARGETS).num_parameters == 15


def test_outputs_rounded_to_float32_are_refused():
    class Rounded(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs).float()

    with pytest.raises(InvalidInput, match="must compute in float64; the outputs of its float64 copy are float32"):
        hm.Problem(Rounded(4, 3), "squared", INPUTS, TARGETS)


def test_complex_weights_and_inputs_of_another_type_are_refused():
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3, dtype=torch.complex128))

        def forward(self, inputs: Tensor) -> Tensor:
            return (inputs.to(torch.complex128) @ self.weight).abs()

    with pytest.raises(InvalidInput, match="weights must be real; parameter 'weight' is torch.complex128"):
        hm.Problem(Complex(), "squared", INPUTS, TARGETS)
    with pytest.raises(InvalidInput, match=r"inputs must fit the model; inputs of shape \(\d, 4\) and type uint8 gave"):
        hm.Problem(chain(4, 3), "squared", INPUTS.to(torch.uint8), TARGETS)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_the_check_and_the_norm_hold_at_any_scale_of_the_data(scale):
    case = Case("linear", lambda: chain(4, 5, 3, activation=nn.Identity, bias=False), "squared", 4, 3)
    inputs, targets = case.data()
    hessian = hm.loss_hessian(hm.Problem(case.seeded_model(), "squared", inputs * scale, targets * scale))
    plain = hm.loss_hessian(case.problem())
    assert torch.allclose(hessian.to_dense() / scale / scale, plain.to_dense(), rtol=1e-9, atol=1e-12)
    assert 0 < hessian.dense.check < 1e-12
    assert hessian.dense.method == "lifted"
    assert hessian.scale / scale / scale == pytest.approx(plain.scale, rel=1e-2)


def test_a_vanishing_hessian_has_norm_zero_without_its_dense_form():
    model = chain(4, 2000, 2000, 1, activation=nn.ReLU, bias=False).double()
    with torch.no_grad():
        model[4].weight.zero_()
        model[0].weight.zero_()
    assert hm.loss_hessian(hm.Problem(model, "cross_entropy", INPUTS[:2], torch.zeros(2).long())).scale == 0.0


def test_products_with_lists_of_numbers_are_refused():
    hessian = hm.loss_hessian(hm.Problem(chain(4, 3).double(), "squared", INPUTS, TARGETS))
    with pytest.raises(InvalidInput, match="an operator multiplies tensors, arrays and operators; got list"):
        hessian @ [1.0] * 15
