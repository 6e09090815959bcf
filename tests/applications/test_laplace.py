"""Laplace posteriors: Bayesian linear regression in closed form, dense linear algebra, differences."""

from __future__ import annotations

from copy import deepcopy
from math import log, pi
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.applications import LaplacePosterior
from hessmap.errors import InvalidInput

DOUBLE = torch.float64
PRIOR, NOISE = 0.7, 0.4


def regression(l2: float = 0.0) -> tuple[hm.Problem, Tensor, Tensor]:
    """A linear regression at the mode of its posterior, its features (a 1 appended) and its targets."""
    torch.manual_seed(0)
    inputs, targets = torch.randn(9, 3, dtype=DOUBLE), torch.randn(9, 1, dtype=DOUBLE)
    features = torch.cat([inputs, torch.ones(9, 1, dtype=DOUBLE)], 1)
    mode = torch.linalg.solve(precision(features), features.T @ targets / NOISE**2)[:, 0]
    model = nn.Linear(3, 1).double()
    model.weight.data, model.bias.data = mode[None, :3].clone(), mode[3:].clone()
    return hm.Problem(model, "squared", inputs, targets, l2=l2), features, targets


def precision(features: Tensor) -> Tensor:
    return features.T @ features / NOISE**2 + PRIOR * torch.eye(features.shape[1], dtype=DOUBLE)


def classifier(parameters: str | None = None) -> hm.Problem:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    inputs, labels = torch.randn(20, 3, dtype=DOUBLE), torch.randint(3, (20,))
    return hm.Problem(model, "cross_entropy", inputs, labels, parameters=parameters)


def trainable(problem: hm.Problem) -> nn.Module:
    """The model of a problem, whose own copy is frozen."""
    return deepcopy(problem.model).requires_grad_(True)


def close(found: object, expected: object, tolerance: float = 1e-9) -> bool:
    left, right = np.asarray(found), np.asarray(expected)
    return left.shape == right.shape and bool(np.abs(left - right).max() <= tolerance * np.abs(right).max())


def test_bayesian_linear_regression_is_exact() -> None:
    problem, features, targets = regression()
    posterior = hm.laplace(problem, "full", prior_precision=PRIOR, noise=NOISE)
    asked = torch.randn(5, 3, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)
    rows = torch.cat([asked, torch.ones(5, 1, dtype=DOUBLE)], 1)
    covariance = torch.linalg.inv(precision(features))
    found = posterior.predict(asked)
    expected = (rows @ covariance * rows).sum(1)[:, None]
    assert close(found.mean, rows @ covariance @ features.T @ targets / NOISE**2)
    assert close(found.covariance[:, 0], expected)
    assert close(found.variance, expected + NOISE**2)
    assert found.probabilities is None
    # The targets are Gaussian with covariance noise^2 + X X^T / prior: the evidence has a closed form.
    marginal = NOISE**2 * np.eye(9) + (features @ features.T).numpy() / PRIOR
    evidence = scipy.stats.multivariate_normal(np.zeros(9), marginal).logpdf(targets[:, 0].numpy())
    assert posterior.marginal_likelihood().value == pytest.approx(evidence, rel=1e-10)


def test_the_evidence_of_several_outputs_is_the_sum_of_theirs() -> None:
    """A linear regression with three outputs is three regressions with the same features."""
    _, features, _ = regression()
    targets = torch.randn(9, 3, generator=torch.Generator().manual_seed(4), dtype=DOUBLE)
    mode = torch.linalg.solve(precision(features), features.T @ targets / NOISE**2)
    model = nn.Linear(3, 3).double()
    model.weight.data, model.bias.data = mode[:3].T.clone(), mode[3].clone()
    problem = hm.Problem(model, "squared", features[:, :3], targets)
    marginal = NOISE**2 * np.eye(9) + (features @ features.T).numpy() / PRIOR
    expected = scipy.stats.multivariate_normal(np.zeros(9), marginal).logpdf(targets.T.numpy()).sum()
    found = hm.laplace(problem, "full", prior_precision=PRIOR, noise=NOISE).marginal_likelihood()
    assert found.value == pytest.approx(expected, rel=1e-10)


def test_the_penalty_is_the_prior() -> None:
    """l2 |v|^2 beside a mean over nine samples is a Gaussian prior of precision 18 l2 for unit noise."""
    problem, _, _ = regression(l2=0.25)
    assert hm.laplace(problem, "full").prior_precision == pytest.approx(2 * 0.25 * 9)
    assert hm.laplace(problem, "full", noise=NOISE).prior_precision == pytest.approx(2 * 0.25 * 9 / NOISE**2)
    plain = hm.laplace(
        hm.Problem(trainable(problem), "squared", problem.inputs, problem.targets), "full", prior_precision=4.5
    )
    assert hm.laplace(problem, "full").marginal_likelihood() == plain.marginal_likelihood()
    assert hm.laplace(regression()[0], "full").prior_precision == 1.0


@pytest.mark.parametrize("kind", ["full", "kfac", "ekfac", "block", "diagonal"])
def test_predictions_and_evidence_are_those_of_dense_linear_algebra(kind: str) -> None:
    problem = classifier()
    curvature = hm.kronecker_curvature(problem, kind)
    posterior = hm.laplace(problem, curvature, prior_precision=PRIOR)
    matrix = 20 * curvature.to_dense() + PRIOR * torch.eye(problem.num_parameters, dtype=DOUBLE)
    asked = torch.randn(6, 3, generator=torch.Generator().manual_seed(3), dtype=DOUBLE)
    jacobian = hm.output_jacobian(
        hm.Problem(trainable(problem), "cross_entropy", asked, torch.zeros(6, dtype=torch.long))
    )
    covariance = jacobian @ torch.linalg.inv(matrix) @ jacobian.mT
    outputs = problem.model(asked).detach()
    found = posterior.predict(asked)
    assert close(found.mean, outputs)
    assert close(found.covariance, covariance)
    scaled = outputs / (1 + pi / 8 * covariance.diagonal(dim1=1, dim2=2)).sqrt()
    assert close(found.probabilities, scaled.softmax(1))
    weights = problem.parameters
    likelihood = -20 * problem.risk()
    ratio = float(torch.logdet(matrix)) - problem.num_parameters * log(PRIOR)
    evidence = likelihood - (ratio + PRIOR * float(weights @ weights)) / 2
    assert posterior.marginal_likelihood().value == pytest.approx(evidence, rel=1e-10)
    assert close(found.variance, covariance.diagonal(dim1=1, dim2=2))


@pytest.mark.parametrize("kind", ["full", "kfac"])
def test_the_gradient_in_the_prior_is_that_of_differences_and_zero_at_the_optimum(kind: str) -> None:
    posterior = hm.laplace(classifier(), kind, prior_precision=PRIOR)
    values = [posterior.with_prior_precision(PRIOR + shift).marginal_likelihood().value for shift in (-1e-5, 1e-5)]
    assert posterior.marginal_likelihood().gradient == pytest.approx((values[1] - values[0]) / 2e-5, rel=1e-6)
    best = posterior.optimal_prior()
    found = best.marginal_likelihood()
    assert abs(found.gradient) * best.prior_precision < 1e-8 * posterior.problem.num_parameters
    tried = [best.with_prior_precision(prior).marginal_likelihood().value for prior in np.geomspace(1e-6, 1e6, 300)]
    assert found.value >= max(tried) - 1e-9
    squares = float(posterior.problem.parameters.square().sum())
    assert best.prior_precision == pytest.approx(found.effective_parameters / squares, rel=1e-6)


def test_weights_are_drawn_from_the_posterior() -> None:
    problem, features, _ = regression()
    posterior = hm.laplace(problem, "full", prior_precision=PRIOR, noise=NOISE)
    draws = posterior.sample(4000, torch.Generator().manual_seed(0)) - problem.parameters
    covariance = torch.linalg.inv(precision(features))
    # Entries of a sample covariance deviate by sqrt((c_ii c_jj + c_ij^2) / draws).
    scale = (torch.outer(covariance.diagonal(), covariance.diagonal()) + covariance.square()).div(4000).sqrt()
    assert float(((draws.T @ draws / 4000 - covariance) / scale).abs().max()) < 5
    assert float((draws.mean(0) / covariance.diagonal().div(4000).sqrt()).abs().max()) < 5


def test_the_last_layer_alone() -> None:
    problem = classifier(parameters="2")
    posterior = hm.laplace(problem, "full", prior_precision=PRIOR)
    hidden = torch.tanh(problem.model[0](problem.inputs)).detach()
    features = torch.cat([hidden, torch.ones(20, 1, dtype=DOUBLE)], 1)
    p = problem.outputs().softmax(1)
    matrix = torch.zeros(15, 15, dtype=DOUBLE)
    for sample in range(20):
        jacobian = torch.zeros(3, 15, dtype=DOUBLE)
        for output in range(3):
            jacobian[output, 4 * output : 4 * output + 4] = features[sample, :4]
            jacobian[output, 12 + output] = 1.0
        matrix += jacobian.T @ (torch.diag(p[sample]) - torch.outer(p[sample], p[sample])) @ jacobian
    expected = torch.logdet(matrix + PRIOR * torch.eye(15, dtype=DOUBLE)) - 15 * log(PRIOR)
    assert posterior.marginal_likelihood().log_determinant_ratio == pytest.approx(float(expected), rel=1e-10)


def test_the_damping_by_held_out_likelihood() -> None:
    problem, features, _ = regression()
    generator = torch.Generator().manual_seed(5)
    inputs, targets = (torch.randn(7, size, generator=generator, dtype=DOUBLE) for size in (3, 1))
    held_out = hm.Problem(trainable(problem), "squared", inputs, targets)
    tried = [0.01, 0.7, 30.0]
    found = hm.laplace(problem, "full", noise=NOISE).held_out_prior(held_out, tried)
    rows = torch.cat([inputs, torch.ones(7, 1, dtype=DOUBLE)], 1)
    for prior, likelihood in zip(tried, found.log_likelihoods, strict=True):
        matrix = features.T @ features / NOISE**2 + prior * torch.eye(4, dtype=DOUBLE)
        variance = (rows @ torch.linalg.inv(matrix) * rows).sum(1) + NOISE**2
        errors = (targets - problem.model(inputs))[:, 0].detach()
        assert likelihood == pytest.approx(float((-(errors**2) / variance - (2 * pi * variance).log()).mean() / 2))
    assert found.prior_precision == tried[int(np.argmax(found.log_likelihoods))]
    assert found.damping == pytest.approx(found.prior_precision * NOISE**2 / 9)
    # The damping is that of the posterior: (N / s^2 (K + damping I))^-1.
    curvature = hm.kronecker_curvature(problem, "full")
    right = torch.ones(4, dtype=DOUBLE)
    solved = curvature.solve(right, damping=found.damping) * NOISE**2 / 9
    matrix = features.T @ features / NOISE**2 + found.prior_precision * torch.eye(4, dtype=DOUBLE)
    assert close(solved, torch.linalg.solve(matrix, right))


def test_held_out_classes_are_scored_by_their_probit_probabilities() -> None:
    problem = classifier()
    inputs, labels = torch.randn(8, 3, generator=torch.Generator().manual_seed(7), dtype=DOUBLE), torch.arange(8) % 3
    held_out = hm.Problem(trainable(problem), "cross_entropy", inputs, labels)
    posterior = hm.laplace(problem, "ekfac")
    found = posterior.held_out_prior(held_out, [0.1, 2.0])
    for prior, likelihood in zip([0.1, 2.0], found.log_likelihoods, strict=True):
        probabilities = posterior.with_prior_precision(prior).predict(inputs).probabilities
        assert probabilities is not None
        assert likelihood == pytest.approx(np.log(probabilities[np.arange(8), labels.numpy()]).mean(), rel=1e-9)
    assert not found.is_inside
    assert len(posterior.held_out_prior(held_out).prior_precisions) == 25


@pytest.mark.parametrize(
    ("tried", "is_inside"),
    [([0.1, 1.0, 10.0], True), ([10.0, 1.0, 0.1], True), ([1.0, 10.0], False), ([0.1, 1.0], False)],
)
def test_a_choice_is_inside_where_values_on_both_sides_were_tried(
    tried: list[float], is_inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = classifier()
    posterior = hm.laplace(problem, "diagonal")

    def likelihoods(self: object, _: hm.Problem, damping: float) -> Tensor:
        return torch.full((4,), -abs(np.log(damping * posterior.scale)), dtype=DOUBLE)  # highest at a prior of 1

    monkeypatch.setattr(type(posterior), "_held_out_likelihoods", likelihoods)
    found = posterior.held_out_prior(problem, tried)
    assert (found.prior_precision, found.is_inside) == (1.0, is_inside)


def test_records_go_through_files(tmp_path: Path) -> None:
    problem = classifier()
    posterior = hm.laplace(problem, "kfac")
    held_out = posterior.held_out_prior(problem, [0.5, 1.0, 2.0])
    for number, record in enumerate([posterior.predict(problem.inputs), posterior.marginal_likelihood(), held_out]):
        record.save(tmp_path / f"{number}.json")
        assert hm.load(tmp_path / f"{number}.json") == record
    assert "prior precision 1" in repr(posterior)


def test_wrong_arguments_are_answered_in_a_sentence() -> None:
    problem = classifier()
    with pytest.raises(InvalidInput, match="prior_precision must be positive"):
        hm.laplace(problem, prior_precision=0.0)
    with pytest.raises(InvalidInput, match="noise is the standard deviation"):
        hm.laplace(problem, noise=0.5)
    with pytest.raises(InvalidInput, match="must be a KroneckerCurvature"):
        hm.laplace(problem, hm.ggn(problem))
    with pytest.raises(InvalidInput, match="that of the outer product"):
        hm.laplace(problem, hm.kronecker_curvature(problem, part="loss"))
    with pytest.raises(InvalidInput, match="negative log-likelihood"):
        hm.laplace(hm.Problem(trainable(problem), "log_cosh", problem.inputs, torch.zeros(20, 3)))
    with pytest.raises(InvalidInput, match="parameters and the loss"):
        hm.laplace(problem).held_out_prior(regression()[0])
    assert isinstance(hm.laplace(problem), LaplacePosterior)
