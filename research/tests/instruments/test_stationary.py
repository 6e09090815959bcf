"""Stationary points: against closed forms, and honest when there is none."""

import numpy as np
import pytest
import torch
from torch import nn

from hessmap.datasets import Data, gaussian_mixture, linear_teacher
from hessmap.errors import InvalidInput
from hessmap.networks import FullyConnected
from hessmap.training import TrainingDiverged
from hessmap_research.instruments.stationary import train_to_stationary_point

TEACHER = linear_teacher(60, 5, 4, noise=0.5)


def test_a_linear_layer_ends_at_the_ridge_solution():
    model, decay = FullyConnected((5, 4)).build(), 0.1
    run = train_to_stationary_point(model, TEACHER, weight_decay=decay, tolerance=1e-12)
    inputs, targets = TEACHER
    moment = inputs.T @ inputs / 60 + decay * torch.eye(5, dtype=torch.float64)
    ridge = torch.linalg.solve(moment, inputs.T @ targets / 60).T
    assert run.converged
    assert torch.allclose(model[0].weight, ridge, atol=1e-12)


def test_a_deep_linear_network_ends_at_the_best_map_of_its_bottleneck_rank():
    # Global minima of a deep linear network: the top singular directions of the fitted targets (Baldi & Hornik 1989).
    model = FullyConnected((5, 2, 4)).build(seed=3)
    run = train_to_stationary_point(model, TEACHER, tolerance=1e-10)
    inputs, targets = TEACHER
    fitted = inputs @ torch.linalg.lstsq(inputs, targets).solution
    values = torch.linalg.svdvals(fitted)
    expected = ((targets - fitted).square().sum() + values[2:].square().sum()) / 120
    assert run.converged
    assert run.final_gradient_norm <= 1e-10
    assert run.final_loss == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy", "log_cosh"])
def test_a_smooth_network_with_decay_ends_where_autograd_finds_no_gradient(loss):
    data = gaussian_mixture(40, 3, num_classes=2, separation=1.0)
    model = FullyConnected((3, 4, 2), bias=True, activation="tanh").build()
    run = train_to_stationary_point(model, data, loss, weight_decay=0.02, tolerance=1e-9)
    one_hot = torch.eye(2, dtype=torch.float64)[data.targets]
    outputs = model(data.inputs)
    value = {
        "squared": lambda: 0.5 * (outputs - one_hot).square().sum(1).mean(),
        "cross_entropy": lambda: nn.functional.cross_entropy(outputs, data.targets),
        "log_cosh": lambda: torch.log(torch.cosh(outputs - one_hot)).sum(1).mean(),
    }[loss]()
    penalty = 0.01 * sum(parameter.square().sum() for parameter in model.parameters())
    parts = torch.autograd.grad(value + penalty, list(model.parameters()))
    assert run.converged
    assert torch.cat([part.flatten() for part in parts]).norm() < 2e-9
    assert run.accuracy.size == run.loss.size == run.moments.size
    assert (np.diff(run.moments) > 0).all()


def test_a_budget_that_is_too_small_is_reported_and_kept():
    model = FullyConnected((5, 2, 4)).build()
    moments = []
    run = train_to_stationary_point(model, TEACHER, max_evaluations=12, record_every=1, progress=moments.append)
    assert run.converged is False
    assert run.num_moments <= 12
    assert run.ending == f"gradient norm {run.final_gradient_norm:.3g} after 12 evaluations"
    assert run.final_loss < run.loss[0]
    assert moments[-1].evaluation.gradient_norm == run.final_gradient_norm
    value = 0.5 * (model(TEACHER.inputs) - TEACHER.targets).square().sum(1).mean()
    assert run.final_loss == pytest.approx(value.item(), rel=1e-14)


def test_a_minimum_on_a_kink_is_not_called_stationary():
    # The risk is (|w| + 1)^2 / 4: both one-sided gradients at its minimum w = 0 are 1/2 in size.
    data = Data(torch.tensor([[1.0], [-1.0]], dtype=torch.float64), -torch.ones(2, 1, dtype=torch.float64))
    model = FullyConnected((1, 1, 1), activation="relu").build()
    with torch.no_grad():
        model[2].weight.fill_(1.0).requires_grad_(False)
    run = train_to_stationary_point(model, data, max_evaluations=500)
    assert run.converged is False
    assert run.final_gradient_norm == pytest.approx(0.5, abs=1e-3)
    assert abs(model[0].weight.item()) < 1e-3


def test_an_interrupted_search_leaves_the_model_at_an_accepted_point():
    model = FullyConnected((5, 2, 4), activation="tanh").build()
    told = []

    def interrupt(moment):
        told.append((moment.evaluation.loss, [parameter.clone() for parameter in model.parameters()]))
        if len(told) == 4:
            raise KeyboardInterrupt("by the user")

    with pytest.raises(KeyboardInterrupt, match="by the user"):
        train_to_stationary_point(model, TEACHER, record_every=1, progress=interrupt)
    assert all(torch.equal(one, two) for one, two in zip(model.parameters(), told[-1][1], strict=True))


def test_parameters_that_the_outputs_do_not_use_are_no_obstacle():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.idle = FullyConnected((5, 4)).build()[0], nn.Parameter(torch.ones(2, dtype=torch.float64))

        def forward(self, inputs):
            return self.used(inputs)

    model = Partly()
    assert train_to_stationary_point(model, TEACHER).converged
    assert torch.equal(model.idle, torch.ones(2))


def test_a_model_at_a_stationary_point_is_left_where_it_is():
    model = FullyConnected((5, 4)).build()
    train_to_stationary_point(model, TEACHER, tolerance=1e-10)
    before = model[0].weight.clone()
    run = train_to_stationary_point(model, TEACHER, tolerance=1e-9)
    assert run.converged
    assert run.moments.tolist() == [0]
    assert torch.equal(model[0].weight, before)


def test_modes_and_random_state_stay_as_they_were():
    model = nn.Sequential(nn.Linear(5, 3), nn.Dropout(0.5), nn.Tanh(), nn.Linear(3, 4)).double()
    before = torch.get_rng_state()
    train_to_stationary_point(model, TEACHER, weight_decay=0.05, max_evaluations=50)
    assert model[1].training
    assert torch.equal(torch.get_rng_state(), before)


def test_what_cannot_be_brought_to_a_stationary_point_is_refused():
    with pytest.raises(InvalidInput, match=r"needs float64 parameters; they are torch\.float32\. Use model\.double"):
        train_to_stationary_point(FullyConnected((5, 4)).build(dtype=torch.float32), TEACHER)
    with pytest.raises(InvalidInput, match="tolerance must be positive"):
        train_to_stationary_point(FullyConnected((5, 4)).build(), TEACHER, tolerance=0)
    model = FullyConnected((5, 4)).build()
    with torch.no_grad():
        model[0].weight[0, 0] = float("inf")
    with pytest.raises(TrainingDiverged, match="in evaluation 0"):
        train_to_stationary_point(model, TEACHER)
