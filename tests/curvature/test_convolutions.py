"""Convolutions on the exact engine: the space each is perturbed in, the geometry of its window, and its refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from cases import CASES, chain, convolved
from hessmap.hessians import dense as engine
from hessmap.hessians.dense import dense_hessian
from hessmap.hessians.dense_assembly import lifted_network
from hessmap.hessians.products import hessian_product
from hessmap.records import PARTS


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def lenet() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first, second, last = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 5, 3), chain(20, 6, 4)
    return convolved((1, 8, 8), first, nn.Tanh(), nn.AvgPool2d(2), second, nn.Tanh(), nn.Flatten(), last)


def problem(model: nn.Module, size: int = 64, **options: int) -> hm.Problem:
    return hm.Problem(model, "cross_entropy", drawn(7, size), torch.arange(7) % 4, **options)


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def by_autograd(made: hm.Problem, part: str) -> Tensor:
    return hessian_product(made, part, torch.eye(made.num_parameters, dtype=torch.float64))


def test_every_call_is_perturbed_where_fewer_directions_are():
    calls = lifted_network(problem(lenet())).calls
    assert [call.space for call in calls] == ["weights", "outputs", "outputs", "outputs"]
    for call in calls:
        directions = call.num_outputs * call.directions_per_output
        assert directions == min(call.output_size, call.num_outputs * call.num_features)


@pytest.mark.parametrize("part", PARTS)
def test_both_spaces_give_the_same_matrix(monkeypatch, part):
    made = problem(lenet())
    found = dense_hessian(made, part)
    assert found.method == "lifted"
    assert found.notes == ()
    call = type(lifted_network(made).calls[0])
    for space in ("outputs", "weights"):
        monkeypatch.setattr(call, "space", space)
        assert relative_error(dense_hessian(made, part).matrix, found.matrix) < 1e-12


@pytest.mark.parametrize("part", PARTS)
def test_budget_and_size_of_sweeps_change_nothing(monkeypatch, part):
    whole = dense_hessian(problem(lenet()), part).matrix
    monkeypatch.setattr(engine, "_SWEPT", 1)
    in_turn = dense_hessian(problem(lenet()), part)
    made = problem(lenet(), memory_budget=2**20)
    made.memory_budget = 2**16
    split = dense_hessian(made, part)
    assert in_turn.method == split.method == "lifted"
    assert relative_error(in_turn.matrix, whole) < 1e-12
    assert relative_error(split.matrix, whole) < 1e-12


def test_functional_part_stays_right_when_residuals_are_tiny():
    model, inputs, residual = lenet().double(), drawn(7, 64), drawn(7, 4, seed=1)
    outputs = model(inputs).detach()
    tiny = hm.functional_hessian(hm.Problem(model, "squared", inputs, outputs - 1e-10 * residual)).dense
    stored = (outputs - (outputs - 1e-10 * residual)) / 1e-10  # the residual to the rounding of the output
    exact = hm.functional_hessian(hm.Problem(model, "squared", inputs, outputs - stored)).to_dense()
    assert tiny.method == "lifted"
    assert relative_error(tiny.matrix / 1e-10, exact) < 1e-10


def test_a_wide_image_is_convolved_by_torch_itself():
    wide = convolved((1, 60), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.AdaptiveAvgPool1d(3), nn.Flatten(), chain(6, 4))
    made = problem(wide, size=60)
    assert lifted_network(made).matrices[0] is None
    found = dense_hessian(made, "loss")
    assert found.method == "lifted"
    assert relative_error(found.matrix, by_autograd(made, "loss")) < 1e-12


def test_a_convolution_of_one_sample_at_a_time_goes_by_autograd():
    class PerSample(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alone, self.last = nn.Conv1d(1, 2, 2), nn.Linear(6, 4)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(torch.stack([torch.tanh(self.alone(row[None])).flatten() for row in inputs]))

    made = problem(PerSample(), size=4)
    found = dense_hessian(made, "loss")
    assert any("autograd" in note for note in found.notes)
    assert relative_error(found.matrix, by_autograd(made, "loss")) < 1e-12


def test_convolutions_beside_a_parameter_of_their_own():
    class Gained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv1d(1, 2, 3), nn.Linear(12, 4)
            self.gain = nn.Parameter(drawn(2, 1))

        def forward(self, inputs: Tensor) -> Tensor:
            return self.last(torch.tanh(self.gain * self.first(inputs[:, None])).flatten(1))

    made = problem(Gained(), size=8)
    found = dense_hessian(made, "loss")
    assert found.method == "lifted"
    assert found.notes == ("parameter 'gain' was computed by autograd, one product per entry",)
    assert relative_error(found.matrix, by_autograd(made, "loss")) < 1e-12


def test_tangent_kernel_of_convolutions_has_the_spectrum_of_the_outer_product():
    case = next(case for case in CASES if case.name == "convolutions, max-pool")
    made = hm.Problem(case.seeded_model(), "squared", *case.data())
    kernel = torch.linalg.eigvalsh(hm.hessians.tangent_kernel(made)) / made.num_samples
    hessian = torch.linalg.eigvalsh(hm.outer_product_hessian(made).to_dense())
    count = min(len(kernel), len(hessian))
    assert torch.allclose(kernel.flip(0)[:count], hessian.flip(0)[:count], atol=1e-12)
