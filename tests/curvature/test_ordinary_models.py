"""What ordinary models hold does not crash the products, and leaves the model as it was: one test a trait."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput
from plain_autograd import plain_hessian

INPUTS = torch.randn(7, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(0, 3, (7,), generator=torch.Generator().manual_seed(1))


def hessian(model: nn.Module, inputs: Tensor = INPUTS, **options: object) -> Tensor:
    problem = hm.Problem(model, "cross_entropy", inputs, LABELS, **options)
    return hm.loss_hessian(problem) @ torch.eye(problem.num_parameters, dtype=torch.float64)


def oracle(model: nn.Module) -> Tensor:
    return plain_hessian(model, F.cross_entropy(model(INPUTS), LABELS))


def agree(one: Tensor, other: Tensor) -> bool:
    return float((one - other).abs().max()) <= 1e-12 * float(other.abs().max())


def test_parameters_the_loss_never_sees_have_a_zero_block():
    model = nn.Sequential(nn.Linear(4, 3)).double()
    model.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    found = hessian(model)
    assert found.shape == (17, 17)
    assert float(found.abs().sum(0).eq(0).sum()) == 2
    assert float(found.abs().max()) > 0


def test_tied_weights_are_one_parameter():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.again.weight = self.first.weight

        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(torch.tanh(self.again(torch.tanh(self.first(inputs)))))

    model = Tied().double()
    assert agree(hessian(model), oracle(model))


def test_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    whole = oracle(model)
    model[0].requires_grad_(False)
    assert agree(hessian(model), whole[25:, 25:])


def test_batch_norm_in_train_mode_is_taken_frozen_and_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3)).double()
    model(INPUTS)
    before = copy.deepcopy(model.state_dict())
    found = hessian(model)
    assert model.training
    assert model[1].training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert agree(found, oracle(copy.deepcopy(model).eval()))


def test_dropout_is_refused_unless_off():
    model = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)).double()
    with pytest.raises(InvalidInput, match="dropout must be off"):
        hessian(model)
    assert agree(hessian(model.eval()), oracle(model))


def test_attention_goes_by_the_math_kernel_and_says_so():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            tokens = self.first(inputs.reshape(len(inputs), 1, 2, 2))
            return self.last(F.scaled_dot_product_attention(tokens, tokens, tokens).mean((1, 2)))

    problem = hm.Problem(Attention().double(), "cross_entropy", INPUTS, LABELS)
    assert any("math kernel" in note for note in problem.notes)
    found = hm.loss_hessian(problem).to_dense()
    encoder = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True).double()
    model = nn.Sequential(nn.Unflatten(1, (1, 4)), encoder, nn.Flatten(), nn.Linear(4, 3).double())
    layered = hm.Problem(model, "cross_entropy", INPUTS, LABELS)
    assert any("math kernel" in note for note in layered.notes)
    assert float((found - found.T).abs().max()) < 1e-14
    assert float(found.abs().max()) > 0


def test_activations_in_place_change_neither_data_nor_result():
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 5), nn.ELU(inplace=True), nn.Linear(5, 3)).double()
    inputs = INPUTS.clone()
    found = hessian(model, inputs)
    assert torch.equal(inputs, INPUTS)
    written = nn.Sequential(nn.ReLU(), model[1], nn.ELU(), model[3])
    assert agree(found, oracle(written))


def test_mode_buffers_and_random_state_stay_as_they_were():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double().train()
    state = torch.get_rng_state()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(INPUTS, LABELS), batch_size=2, shuffle=True)
    operator = hm.loss_hessian(hm.Problem(model, "cross_entropy", loader))
    operator @ torch.ones(43, dtype=torch.float64)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
