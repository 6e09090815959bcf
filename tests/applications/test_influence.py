"""Influence of samples: ridge regression in closed form, dense linear algebra, and training again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.applications import InfluenceScores, linear_datamodelling_score, retraining_effects
from hessmap.errors import InvalidInput

DOUBLE = torch.float64
L2 = 0.05


def ridge(weights: Tensor | None = None) -> tuple[hm.Problem, hm.Problem, Tensor, Tensor]:
    """A ridge regression at its minimum, queries, its inputs and targets."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(12, 4, dtype=DOUBLE), torch.randn(12, 1, dtype=DOUBLE)
    given = torch.ones(12, dtype=DOUBLE) if weights is None else weights
    model = nn.Linear(4, 1, bias=False).double()
    model.weight.data = minimiser(inputs, targets, given / given.sum()).T
    queries = torch.randn(5, 4, dtype=DOUBLE)
    training = hm.Problem(model, "squared", inputs, targets, l2=L2, weights=weights)
    return training, hm.Problem(model, "squared", queries, torch.zeros(5, 1), l2=L2), inputs, targets


def minimiser(inputs: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Of sum_n w_n (x_n . v - y_n)^2 / 2 + l2 |v|^2."""
    matrix = inputs.T @ (weights[:, None] * inputs) + 2 * L2 * torch.eye(inputs.shape[1], dtype=DOUBLE)
    return torch.linalg.solve(matrix, inputs.T @ (weights[:, None] * targets))


def classifier(l2: float = 0.0, count: int = 15) -> tuple[hm.Problem, hm.Problem]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs, labels = torch.randn(count, 3, dtype=DOUBLE), torch.randint(3, (count,))
    training = hm.Problem(model, "cross_entropy", inputs, labels, l2=l2)
    return training, hm.Problem(model, "cross_entropy", torch.randn(4, 3, dtype=DOUBLE), torch.randint(3, (4,)), l2=l2)


def close(found: object, expected: object, tolerance: float = 1e-9) -> bool:
    left, right = np.asarray(found), np.asarray(expected)
    return left.shape == right.shape and bool(np.abs(left - right).max() <= tolerance * np.abs(right).max())


@pytest.mark.parametrize("weights", [None, torch.linspace(0.5, 2.0, 12, dtype=DOUBLE)])
def test_leaving_one_out_of_ridge_regression_is_exact_with_the_correction(weights: Tensor | None) -> None:
    training, queries, inputs, targets = ridge(weights)
    found = hm.influence(training, queries, curvature="full", correction="leverage", measure="output")
    whole = minimiser(inputs, targets, training.weights)
    expected = np.zeros((5, 12))
    for sample in range(12):
        kept = training.weights.clone()
        kept[sample] = 0.0
        expected[:, sample] = (queries.inputs @ (minimiser(inputs, targets, kept) - whole))[:, 0]
    assert close(found.removal_effects, expected, 1e-8)
    plain = hm.influence(training, queries, curvature="full", measure="output")
    assert not close(plain.removal_effects, expected, 1e-2)
    hat = inputs @ torch.linalg.solve(
        inputs.T @ (training.weights[:, None] * inputs) + 2 * L2 * torch.eye(4, dtype=DOUBLE), inputs.T
    )
    assert close(found.leverages, training.weights * hat.diagonal())
    assert found.damping == pytest.approx(2 * L2)


def test_training_again_is_leaving_out_in_closed_form() -> None:
    training, queries, inputs, targets = ridge()
    found = retraining_effects(training, queries, [0, [3, 7]], measure="output")
    assert found.converged
    for effects, group in zip(found.effects, ([0], [3, 7]), strict=True):
        kept = training.weights.clone()
        kept[group] = 0.0
        change = minimiser(inputs, targets, kept) - minimiser(inputs, targets, training.weights)
        assert close(effects, (queries.inputs @ change)[:, 0], 1e-6)


def test_training_again_with_damping_is_kept_near_the_trained_weights() -> None:
    training, queries, inputs, targets = ridge()
    damping = 0.3
    found = retraining_effects(training, queries, [2], damping=damping, measure="output")
    kept = training.weights.clone()
    kept[2] = 0.0
    matrix = inputs.T @ (kept[:, None] * inputs) + (2 * L2 + damping) * torch.eye(4, dtype=DOUBLE)
    right = inputs.T @ (kept[:, None] * targets) + damping * training.parameters[:, None]
    change = torch.linalg.solve(matrix, right) - training.parameters[:, None]
    assert close(found.effects[0], (queries.inputs @ change)[:, 0], 1e-6)


@pytest.mark.parametrize("kind", ["kfac", "ekfac", "diagonal", "block", "full", "operator"])
def test_scores_are_those_of_dense_linear_algebra(kind: str) -> None:
    training, queries = classifier()
    curvature = hm.ggn(training) if kind == "operator" else hm.kronecker_curvature(training, kind)
    found = hm.influence(training, queries, curvature=curvature, damping=0.02, self_influence=True)
    damped = curvature.to_dense() + 0.02 * torch.eye(training.num_parameters, dtype=DOUBLE)
    rows, wanted = (hm.sample_gradients(one).to_dense() for one in (training, queries))
    assert close(found.scores, wanted @ torch.linalg.solve(damped, rows.T))
    assert close(found.self_influence, (rows @ torch.linalg.inv(damped) * rows).sum(1))
    if kind != "operator":
        by_name = hm.influence(training, queries, curvature=kind, damping=0.02, self_influence=True)
        assert by_name == found


@pytest.mark.parametrize("kind", ["full", "kfac"])
def test_the_correction_takes_the_curvature_of_the_sample_out(kind: str) -> None:
    """Of a softmax, where the leverage is a matrix: the Newton step with H - w_n J_n^T A_n J_n, written out."""
    training, queries = classifier()
    curvature = hm.kronecker_curvature(training, kind)
    found = hm.influence(
        training, queries, curvature=curvature, damping=0.1, correction="leverage", self_influence=True
    )
    rows, wanted = (hm.sample_gradients(one).to_dense() for one in (training, queries))
    jacobian, outputs = hm.output_jacobian(training), training.outputs()
    damped = curvature.to_dense() + 0.1 * torch.eye(training.num_parameters, dtype=DOUBLE)
    for sample in range(training.num_samples):
        p = outputs[sample].softmax(0)
        own = jacobian[sample].T @ (torch.diag(p) - torch.outer(p, p)) @ jacobian[sample] / training.num_samples
        step = torch.linalg.solve(damped - own, rows[sample])
        assert close(found.scores[:, sample], wanted @ step)
        assert found.self_influence is not None
        assert found.self_influence[sample] == pytest.approx(float(rows[sample] @ step), rel=1e-9)
        assert found.leverages is not None
        leverage = float(torch.trace(torch.linalg.solve(damped, own)))
        assert found.leverages[sample] == pytest.approx(leverage, rel=1e-9)


def test_removing_samples_of_a_network_moves_queries_as_predicted() -> None:
    """At a minimum of a penalised network a sample among a hundred acts as its derivative in the weight predicts."""
    training, queries = classifier(l2=0.01, count=100)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    model.load_state_dict(training.model.state_dict())
    step = torch.optim.LBFGS(model.parameters(), max_iter=3000, tolerance_grad=1e-11, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        step.zero_grad()
        penalty = sum(value.square().sum() for value in model.parameters())
        loss = nn.functional.cross_entropy(model(training.inputs), training.targets) + 0.01 * penalty
        loss.backward()
        return loss

    step.step(closure)
    trained = hm.Problem(model, "cross_entropy", training.inputs, training.targets, l2=0.01)
    asked = hm.Problem(model, "cross_entropy", queries.inputs, queries.targets, l2=0.01)
    groups = [[sample] for sample in range(20)]
    measured = retraining_effects(trained, asked, groups)
    assert measured.converged
    whole = hm.kronecker_curvature(trained, "full", part="loss")
    found = hm.influence(trained, asked, curvature=whole, damping=1e-9, correction=None)
    assert linear_datamodelling_score(found, groups, measured).value > 0.95


def test_rank_correlations_are_those_of_scipy() -> None:
    generator = np.random.default_rng(0)
    scores = InfluenceScores(generator.normal(size=(3, 9)), np.full(9, 0.25), None, None, "full", 0.1, None, "loss")
    groups = [[0, 1], [2], [3, 4, 5], [6], [7, 8], [1, 8]]
    effects = generator.normal(size=(6, 3)).round(0)  # with ties
    predicted = np.array([[0.25 * scores.scores[query, group].sum() for query in range(3)] for group in groups])
    expected = [scipy.stats.spearmanr(predicted[:, query], effects[:, query]).statistic for query in range(3)]
    found = linear_datamodelling_score(scores, groups, effects)
    assert close(found.correlations, expected)
    assert found.value == pytest.approx(np.mean(expected))


def test_the_most_influential_samples_come_first() -> None:
    scores = InfluenceScores(np.array([[0.1, -3.0, 2.0, 0.5]]), np.ones(4), None, None, "full", 0.1, None, "loss")
    assert scores.top(2).tolist() == [[2, 3]]
    assert scores.top(2, helpful=False).tolist() == [[1, 0]]
    with pytest.raises(InvalidInput, match="between 1 and 4"):
        scores.top(5)


def test_records_go_through_files(tmp_path: Path) -> None:
    training, queries = classifier()
    found = hm.influence(training, queries, correction="leverage", damping=0.1)
    found.save(tmp_path / "influence.json")
    assert hm.load(tmp_path / "influence.json") == found
    effects = retraining_effects(training, queries, [0], tolerance=1e-30, max_steps=3)
    assert not effects.converged
    effects.save(tmp_path / "effects.json")
    assert hm.load(tmp_path / "effects.json") == effects


def test_wrong_arguments_are_answered_in_a_sentence() -> None:
    training, queries = classifier()
    torch.manual_seed(5)
    other = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with pytest.raises(InvalidInput, match="the model and the parameters of the problem"):
        hm.influence(training, hm.Problem(other, "cross_entropy", queries.inputs, queries.targets))
    with pytest.raises(InvalidInput, match="needs a model with one output"):
        hm.influence(training, queries, measure="output")
    with pytest.raises(InvalidInput, match="correction must be None or 'leverage'"):
        hm.influence(training, queries, correction="newton")
    with pytest.raises(InvalidInput, match="curvature must be one of"):
        hm.influence(training, queries, curvature="hessian")
    with pytest.raises(InvalidInput, match="damping must not be negative"):
        hm.influence(training, queries, damping=-1.0)
    with pytest.raises(InvalidInput, match="between 0 and 14"):
        retraining_effects(training, queries, [15])
