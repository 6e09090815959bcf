"""Scores and compensations of pruning against minimisation of the dense quadratic model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput, TooLarge


def regression(minimum: bool = True) -> hm.Problem:
    """Least squares with correlated inputs, at its minimum unless asked otherwise."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(40, 5, generator=generator, dtype=torch.float64)
    inputs[:, 1] += 0.9 * inputs[:, 0]
    targets = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    model = nn.Linear(5, 2, bias=False).double()
    solution = torch.linalg.lstsq(inputs, targets).solution.T
    with torch.no_grad():
        model.weight.copy_(solution if minimum else solution + 0.3)
    return hm.Problem(model, "squared", inputs, targets)


def cost_of_removal(hessian: Tensor, weights: Tensor, removed: Tensor) -> tuple[float, Tensor]:
    """The smallest d^T H d / 2 with d = -w on the removed weights, by the equations of the constrained minimum."""
    size, count = len(weights), int(removed.sum())
    chosen = torch.eye(size, dtype=torch.float64)[removed]
    system = torch.zeros(size + count, size + count, dtype=torch.float64)
    system[:size, :size], system[size:, :size], system[:size, size:] = hessian, chosen, chosen.T
    right = torch.cat([torch.zeros(size, dtype=torch.float64), -weights[removed]])
    step = torch.linalg.solve(system, right)[:size]
    return float(step @ hessian @ step / 2), step


def test_obd_scores_are_half_the_diagonal_times_the_squared_weights() -> None:
    problem = regression()
    plan = hm.pruning_plan(problem, 0.3)
    dense = hm.ggn(problem).to_dense()
    expected = dense.diagonal() * problem.parameters**2 / 2
    np.testing.assert_allclose(plan.scores, expected.numpy(), rtol=1e-10)
    assert set(np.flatnonzero(plan.removed)) == set(np.argsort(plan.scores)[:3])
    assert plan.diagonal_error == 0.0


def test_obs_scores_are_the_cost_of_the_best_removal_of_one_weight() -> None:
    problem = regression()
    plan = hm.pruning_plan(problem, 0.3, "obs", damping=1e-10)
    dense = hm.ggn(problem).to_dense()
    for place in range(10):
        removed = torch.arange(10) == place
        assert plan.scores[place] == pytest.approx(cost_of_removal(dense, problem.parameters, removed)[0], rel=1e-6)


def test_obs_compensates_the_removed_set_in_the_best_way() -> None:
    problem = regression()
    plan = hm.pruning_plan(problem, 0.4, "obs", damping=1e-10)
    removed = torch.as_tensor(plan.removed)
    cost, step = cost_of_removal(hm.ggn(problem).to_dense(), problem.parameters, removed)
    np.testing.assert_allclose(plan.parameters, (problem.parameters + step).numpy(), atol=1e-8)
    assert plan.layers[0].predicted_increase == pytest.approx(cost, rel=1e-6)
    assert plan.measured_increase == pytest.approx(cost, rel=1e-6)  # the loss is quadratic
    assert not plan.parameters[plan.removed].any()
    assert plan.measured_increase is not None
    diagonal = hm.pruning_plan(problem, 0.4, "obd").measured_increase
    assert diagonal is not None
    assert plan.measured_increase < diagonal


@pytest.mark.parametrize("method", ["obd", "obs"])
def test_predictions_contain_the_gradient_away_from_a_minimum(method: str) -> None:
    plan = hm.pruning_plan(regression(minimum=False), 0.4, method)  # type: ignore[arg-type]
    assert plan.gradient_norm > 0.1
    assert plan.joint_increase == pytest.approx(plan.measured_increase, rel=1e-9)


def test_layers_are_pruned_equally_or_by_all_scores() -> None:
    inputs, labels = hm.datasets.digits(num_samples=40)
    model = hm.FullyConnected((64, 4, 10), activation="tanh").build(seed=0)
    problem = hm.Problem(model, "cross_entropy", inputs, labels)
    equal = hm.pruning_plan(problem, 0.5, scope="layer")
    assert [layer.num_removed for layer in equal.layers] == [128, 20]
    together = hm.pruning_plan(problem, 0.5)
    assert sum(layer.num_removed for layer in together.layers) == 148
    assert together.scores[together.removed].max() <= together.scores[~together.removed].min()
    sums = [layer.scored_increase for layer in together.layers]
    assert sum(sums) == pytest.approx(together.scores[together.removed].sum())
    assert problem.risk(torch.as_tensor(together.parameters)) - problem.risk() == together.measured_increase


def test_a_plan_goes_through_json() -> None:
    plan = hm.pruning_plan(regression(), 0.2, "obs")
    assert hm.records.PruningPlan.from_json(plan.to_json()) == plan
    assert plan.damping == 1e-3


def test_an_objective_is_scored_by_its_loss_hessian() -> None:
    problem = regression()
    model = nn.Linear(5, 2, bias=False).double()
    model.load_state_dict(problem.model.state_dict())
    objective = hm.Problem(
        model,
        objective=lambda model, batch: (model(batch[0]) - batch[1]).square().sum(1).mean() / 2,
        data=[(problem.inputs, problem.targets)],
    )
    expected, found = hm.pruning_plan(problem, 0.3), hm.pruning_plan(objective, 0.3)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-9)


def test_indefinite_blocks_and_invalid_arguments_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = hm.datasets.digits(num_samples=10)
    model = hm.FullyConnected((64, 3, 3, 10), activation="tanh").build(seed=0)
    problem = hm.Problem(model, "cross_entropy", inputs, labels)
    with pytest.raises(InvalidInput, match="positive definite"):
        hm.pruning_plan(problem, 0.5, "obs", part="loss", damping=1e-9)
    for options in ({"sparsity": 0}, {"method": "magnitude"}, {"scope": "all"}, {"damping": 0.0}, {"layers": []}):
        with pytest.raises(InvalidInput):
            hm.pruning_plan(problem, **options)  # type: ignore[arg-type]
    monkeypatch.setattr("hessmap.linalg.devices.available_bytes", lambda device=None: 1000)
    with pytest.raises(TooLarge, match="dense blocks"):
        hm.pruning_plan(problem, 0.5, "obs")
