"""Merged models and penalties: joint least squares in closed form, dense linear algebra, autograd."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import hessmap as hm
from hessmap.errors import InvalidInput

DOUBLE = torch.float64


def least_squares(seed: int, count: int, outputs: int = 2) -> tuple[nn.Linear, Tensor, Tensor]:
    """A linear model at the minimum of its own loss, its features (a 1 appended) and its targets."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 3, generator=generator, dtype=DOUBLE)
    targets = torch.randn(count, outputs, generator=generator, dtype=DOUBLE)
    features = torch.cat([inputs, torch.ones(count, 1, dtype=DOUBLE)], 1)
    return fitted(features, targets), features, targets


def fitted(features: Tensor, targets: Tensor) -> nn.Linear:
    solution = torch.linalg.lstsq(features, targets).solution
    model = nn.Linear(3, targets.shape[1]).double()
    model.weight.data, model.bias.data = solution[:3].T.clone(), solution[3].clone()
    return model


def difference(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max(float((left - right).detach().abs().max()) for left, right in pairs)


def mlp(seed: int) -> tuple[nn.Module, hm.Problem]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    return model, hm.Problem(model, "cross_entropy", torch.randn(15, 3, dtype=DOUBLE), torch.randint(2, (15,)))


@pytest.mark.parametrize("curvature", ["operator", "full"])
def test_merging_linear_models_gives_the_joint_least_squares_solution(curvature: str) -> None:
    """A theorem: the quadratic model of a squared loss of a linear model is the loss itself."""
    tasks = [least_squares(seed, count) for seed, count in ((0, 7), (1, 12), (2, 9))]
    problems = [hm.Problem(model, "squared", x[:, :3], y) for model, x, y in tasks]
    if curvature == "operator":
        given = [hm.ggn(problem) for problem in problems]
    else:
        given = [hm.kronecker_curvature(problem, "full") for problem in problems]
    models, counts = [model for model, _, _ in tasks], [7, 12, 9]
    merged = hm.merge(models, given, weights=counts, damping=0.0)
    joint = fitted(*(torch.cat(part) for part in zip(*((x, y) for _, x, y in tasks), strict=True)))
    assert difference(merged, joint) < 1e-10
    # K-FAC of a linear model with a squared loss is the exact matrix: E[g g^T] is the identity.
    factored = [hm.kronecker_curvature(problem, "kfac") for problem in problems]
    assert (
        difference(hm.merge([model for model, _, _ in tasks], factored, weights=[7, 12, 9], damping=0.0), joint) < 1e-9
    )
    average = hm.merge([model for model, _, _ in tasks], given, damping=0.0)
    assert difference(average, joint) > 1e-3  # without the numbers of samples it is another problem


@pytest.mark.parametrize("kind", ["kfac", "diagonal", "block"])
@pytest.mark.parametrize("dense", [True, False])
def test_merged_parameters_solve_the_sum_of_the_systems(
    kind: str, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not dense:
        monkeypatch.setattr("hessmap.applications.merging._DENSE", 0)
    (one, first), (two, second) = mlp(0), mlp(1)
    curvatures = [hm.kronecker_curvature(problem, kind) for problem in (first, second)]
    merged = hm.merge([one, two], curvatures, weights=[2.0, 1.0], damping=0.01)
    matrices = [factor * curvature.to_dense() for factor, curvature in zip((2.0, 1.0), curvatures, strict=True)]
    values = [first.parameters, second.parameters]
    mean = (2 * values[0] + values[1]) / 3
    identity = torch.eye(first.num_parameters, dtype=DOUBLE)
    right = matrices[0] @ values[0] + matrices[1] @ values[1] + 0.01 * mean
    expected = torch.linalg.solve(matrices[0] + matrices[1] + 0.01 * identity, right)
    found = torch.cat([value.detach().flatten() for value in merged.parameters()])
    assert float((found - expected).norm() / expected.norm()) < 1e-8


def test_dictionaries_of_diagonals_weight_entry_by_entry() -> None:
    (one, first), (two, second) = mlp(0), mlp(1)
    diagonals = [hm.fisher_diagonal(problem) for problem in (first, second)]
    merged = hm.merge([one, two], diagonals, damping=1e-3)
    for name, value in merged.named_parameters():
        left, right = diagonals[0][name], diagonals[1][name]
        v, w = dict(one.named_parameters())[name], dict(two.named_parameters())[name]
        expected = (left * v + right * w + 1e-3 * (v + w) / 2) / (left + right + 1e-3)
        assert torch.allclose(value, expected, rtol=1e-10, atol=1e-12)


def test_parameters_without_curvature_are_averaged_and_models_stay_as_they_are() -> None:
    (one, _), (two, _) = mlp(0), mlp(1)
    before = deepcopy(one)
    given = [{"0.weight": torch.ones(4, 3, dtype=DOUBLE)}] * 2
    merged = hm.merge([one, two], given, weights=[3.0, 1.0])
    assert difference(one, before) == 0
    assert torch.allclose(merged[2].weight, (3 * one[2].weight + two[2].weight) / 4, rtol=1e-12)


def test_a_model_merged_with_itself_is_the_model() -> None:
    model, problem = mlp(0)
    for kind in ("kfac", "diagonal", "full"):
        curvature = hm.kronecker_curvature(problem, kind)
        assert difference(hm.merge([model, model], [curvature, curvature]), model) < 1e-14


def test_any_strength_from_zero_on_scales_the_penalty() -> None:
    (other, _), (_, problem) = mlp(1), mlp(0)
    whole, half, none = (float(hm.ewc_penalty(problem, strength=one)(other).detach()) for one in (1.0, 0.5, 0.0))
    assert (half, none) == (pytest.approx(whole / 2, rel=1e-12), 0.0)


@pytest.mark.parametrize("kind", ["diagonal", "kfac", "full", "operator"])
def test_the_penalty_is_the_quadratic_form_and_its_gradient_the_product(kind: str) -> None:
    model, problem = mlp(0)
    curvature = hm.ggn(problem) if kind == "operator" else hm.kronecker_curvature(problem, kind)
    penalty = hm.ewc_penalty(problem, curvature, strength=3.0)
    assert float(penalty(model).detach()) == 0
    other, _ = mlp(1)
    change = torch.cat([value.detach().flatten() for value in other.parameters()]) - problem.parameters
    dense = curvature.to_dense()
    value = penalty(other)
    assert float(value.detach()) == pytest.approx(1.5 * float(change @ dense @ change), rel=1e-10)
    value.backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in other.parameters() if parameter.grad is not None])
    expected = 3 * dense @ change
    assert float((gradient - expected).norm() / expected.norm()) < 1e-10


def test_the_joint_solution_of_linear_tasks_is_stationary_for_the_second_loss_and_the_penalty_of_the_first() -> None:
    """The penalty of a linear task with its full curvature is its loss, up to a constant."""
    (first, x, y), (_, u, v) = least_squares(0, 8), least_squares(1, 8)
    penalty = hm.ewc_penalty(hm.Problem(first, "squared", x[:, :3], y), "full")
    model = fitted(torch.cat([x, u]), torch.cat([y, v]))
    loss = (model(u[:, :3]) - v).square().sum(1).mean() / 2 + penalty(model)
    loss.backward()
    assert all(float(value.grad.abs().max()) < 1e-12 for value in model.parameters() if value.grad is not None)


def test_the_square_of_a_mean_is_not_the_mean_of_squares() -> None:
    """At a minimum the gradient of the batch vanishes, and with it the Fisher diagonal of code that squares it."""
    model, x, y = least_squares(0, 12)
    problem = hm.Problem(model, "squared", x[:, :3], y)
    squared_mean = problem.gradient().square()
    found = torch.cat([value.flatten() for value in hm.fisher_diagonal(problem, fisher="empirical").values()])
    assert float(squared_mean.max()) < 1e-20
    assert float(found.min()) > 1e-3


def test_wrong_arguments_are_answered_in_a_sentence() -> None:
    (one, first), (two, second) = mlp(0), mlp(1)
    curvatures = [hm.kronecker_curvature(problem) for problem in (first, second)]
    with pytest.raises(InvalidInput, match="a curvature for each"):
        hm.merge([one, two], curvatures[:1])
    with pytest.raises(InvalidInput, match="weights must be one per model"):
        hm.merge([one, two], curvatures, weights=[1.0, -1.0])
    with pytest.raises(InvalidInput, match="must have the parameter '0.weight'"):
        hm.merge([one, nn.Linear(3, 2)], curvatures)
    with pytest.raises(InvalidInput, match="same parameters"):
        hm.merge([one, two], [curvatures[0], hm.fisher_diagonal(least_squares_problem())])
    with pytest.raises(InvalidInput, match="operator with a layout"):
        hm.merge([one, two], [hm.as_operator(lambda v: v, 26)] * 2)
    with pytest.raises(InvalidInput, match="must not be singular"):
        hm.merge([one, two], [{"0.bias": torch.zeros(4)}] * 2, damping=0.0)
    with pytest.raises(InvalidInput, match="at least one parameter"):
        hm.merge([one, two], [{}, {}])
    with pytest.raises(InvalidInput, match=r"damping must not be negative.*-0\.5"):
        hm.merge([one, two], curvatures, damping=-0.5)
    with pytest.raises(InvalidInput, match="strength must not be negative"):
        hm.ewc_penalty(first, strength=-1.0)


def least_squares_problem() -> hm.Problem:
    model, x, y = least_squares(0, 7)
    return hm.Problem(model, "squared", x[:, :3], y)
