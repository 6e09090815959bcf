"""Costs of quantisation against dense algebra, exactness on quadratics, and the best widths against all choices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hessmap as hm
from hessmap.applications import quantise, quantised_parameters
from hessmap.applications.compression import _Forms, cheapest_choice
from hessmap.errors import InvalidInput


class TwoBranches(nn.Module):
    """Linear in both weights, so that the squared loss is quadratic in all parameters at once."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 2, bias=False), nn.Linear(4, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.first(inputs[:, :3]) + self.second(inputs[:, 3:])
        return found


def quadratic_problem() -> hm.Problem:
    torch.manual_seed(0)
    return hm.Problem(TwoBranches(), "squared", torch.randn(30, 7), torch.randn(30, 2))


@pytest.fixture(scope="module")
def classifier() -> hm.Problem:
    inputs, labels = hm.datasets.digits(num_samples=40)
    model = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10)).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3)
    return hm.Problem(model, "cross_entropy", inputs, labels)


@pytest.mark.parametrize("per", ["tensor", "channel"])
@pytest.mark.parametrize("bits", [2, 3, 5])
def test_every_weight_goes_to_the_nearest_value_of_its_grid(bits: int, per: str) -> None:
    weight = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(bits), dtype=torch.float64)
    found = quantise(weight, bits, per)  # type: ignore[arg-type]
    values = range(-(2 ** (bits - 1)) + 1, 2 ** (bits - 1))
    for row in range(3):
        largest = weight[row].abs().max() if per == "channel" else weight.abs().max()
        grid = torch.tensor(list(values), dtype=torch.float64) * largest / (2 ** (bits - 1) - 1)
        nearest = grid[(weight[row].reshape(-1, 1) - grid).abs().argmin(1)].reshape(2, 4)
        assert torch.allclose(found[row], nearest, rtol=1e-14, atol=0)


def test_rows_of_zeros_stay_zero() -> None:
    assert torch.equal(quantise(torch.zeros(2, 3), 2), torch.zeros(2, 3))


def dense_prediction(problem: hm.Problem, step: Tensor, diagonal: bool) -> float:
    """By gradient and Hessian of torch.func on the function of the flat parameters."""

    def risk(flat: Tensor) -> Tensor:
        return cross_entropy(problem.function(problem.inputs)(flat), problem.targets)

    gradient: Tensor = torch.func.grad(risk)(problem.parameters)
    hessian: Tensor = torch.func.hessian(risk)(problem.parameters)
    hessian = torch.diag(hessian.diagonal()) if diagonal else hessian
    return float(gradient @ step + step @ hessian @ step / 2)


@pytest.mark.parametrize("prediction", ["block", "diagonal"])
def test_predicted_costs_are_those_of_dense_algebra(classifier: hm.Problem, prediction: str) -> None:
    plan = hm.compression_plan(classifier, (2, 4), 3, prediction=prediction)  # type: ignore[arg-type]
    assert [layer.name for layer in plan.layers] == ["0.weight", "2.weight"]
    assert plan.diagonal_error == (0.0 if prediction == "diagonal" else None)
    for layer in plan.layers:
        for cost in layer.costs:
            step = torch.zeros_like(classifier.parameters)
            place, weight = classifier.layout[layer.name], classifier.named[layer.name]
            step[place] = (quantise(weight, cost.bits) - weight).flatten()
            expected = dense_prediction(classifier, step, prediction == "diagonal")
            assert cost.predicted_increase == pytest.approx(expected, rel=1e-9)
            assert cost.step_norm == pytest.approx(float(step.norm()), rel=1e-12)
    whole = quantised_parameters(classifier, plan.chosen_bits) - classifier.parameters
    assert plan.joint_increase == pytest.approx(dense_prediction(classifier, whole, False), rel=1e-9)


def test_measured_costs_are_those_of_the_rounded_model(classifier: hm.Problem) -> None:
    plan = hm.compression_plan(classifier, (3,), 3)
    model = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10)).double()
    model.load_state_dict(classifier.model.state_dict())

    def loss() -> float:
        return float(cross_entropy(model(classifier.inputs), classifier.targets).detach())

    before = loss()
    with torch.no_grad():
        model[2].weight.copy_(quantise(model[2].weight, 3))
        assert plan.layers[1].costs[0].measured_increase == pytest.approx(loss() - before, rel=1e-9)
        model[0].weight.copy_(quantise(model[0].weight, 3))
    assert plan.measured_increase == pytest.approx(loss() - before, rel=1e-9)
    assert plan.uniform_bits == 3
    assert plan.uniform_measured_increase == plan.measured_increase


def test_predictions_are_exact_where_the_loss_is_quadratic() -> None:
    plan = hm.compression_plan(quadratic_problem(), (2, 3, 4), 3)
    for layer in plan.layers:
        for cost in layer.costs:
            assert cost.measured_increase is not None
            assert cost.predicted_increase == pytest.approx(cost.measured_increase, rel=1e-9, abs=1e-12)
    assert plan.joint_increase == pytest.approx(plan.measured_increase, rel=1e-9)
    assert abs(plan.joint_increase - plan.separate_increase) > 1e-6  # the branches interact
    assert plan.rank_correlation() == pytest.approx(1.0)


def test_the_gauss_newton_part_leaves_out_the_residuals(classifier: hm.Problem) -> None:
    plan = hm.compression_plan(classifier, (4,), 4, part="outer_product", measure=False)
    dense = hm.ggn(classifier).to_dense()
    step = torch.zeros_like(classifier.parameters)
    weight = classifier.named["0.weight"]
    step[:320] = (quantise(weight, 4) - weight).flatten()
    assert plan.layers[0].costs[0].curvature_term == pytest.approx(float(step @ dense @ step / 2), rel=1e-9)
    assert plan.measured_increase is None
    assert plan.layers[0].costs[0].measured_increase is None
    with pytest.raises(InvalidInput, match="measure=False"):
        plan.rank_correlation()


def cheapest_of_all(costs: np.ndarray, sizes: np.ndarray, capacity: int) -> float:
    rows = range(len(costs))
    choices = product(range(costs.shape[1]), repeat=len(costs))
    fitting = (choice for choice in choices if sum(sizes[row, choice[row]] for row in rows) <= capacity)
    return min(sum(costs[row, choice[row]] for row in rows) for choice in fitting)


@given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1), st.floats(0, 1), st.booleans())
def test_the_chosen_widths_are_the_best_of_all(
    num_rows: int, num_options: int, seed: int, fraction: float, coarse: bool
) -> None:
    random = np.random.default_rng(seed)
    costs = random.normal(size=(num_rows, num_options))
    costs = costs.round(0) if coarse else costs  # many ties
    sizes = np.cumsum(random.integers(1, 9, size=(num_rows, num_options)), axis=1)
    capacity = int(sizes[:, 0].sum() + fraction * (sizes[:, -1] - sizes[:, 0]).sum())
    chosen = cheapest_choice(costs, sizes, capacity)
    assert sum(sizes[row, option] for row, option in enumerate(chosen)) <= capacity
    found = sum(costs[row, option] for row, option in enumerate(chosen))
    assert found == pytest.approx(cheapest_of_all(costs, sizes, capacity), abs=1e-9)


def test_many_layers_agree_with_dynamic_programming_over_all_sizes() -> None:
    random = np.random.default_rng(0)
    weights = random.integers(1, 60, size=50)
    widths = np.array([2, 3, 4, 8])
    sizes = weights[:, None] * widths
    costs = np.exp(random.normal(size=50))[:, None] * weights[:, None] * 4.0**-widths
    capacity = int(4 * weights.sum())
    best = np.zeros(capacity + 1)
    for row in range(50):
        options = [np.concatenate([np.full(size, np.inf), best[: capacity + 1 - size]]) for size in sizes[row]]
        best = np.min([cost + own for cost, own in zip(costs[row], options, strict=True)], axis=0)
    chosen = cheapest_choice(costs, sizes, capacity)
    found = sum(costs[row, option] for row, option in enumerate(chosen))
    assert found == pytest.approx(best[-1], rel=1e-12)


def test_the_plan_minimises_the_predicted_increase_within_the_budget(classifier: hm.Problem) -> None:
    plan = hm.compression_plan(classifier, (2, 3, 4, 8), 3.5, interactions=False)
    weights = {layer.name: layer.num_weights for layer in plan.layers}
    assert sum(weights[name] * bits for name, bits in plan.chosen_bits.items()) <= 3.5 * sum(weights.values())
    sums = []
    for costs in product(*(layer.costs for layer in plan.layers)):
        used = sum(cost.bits * layer.num_weights for cost, layer in zip(costs, plan.layers, strict=True))
        if used <= 3.5 * sum(weights.values()):
            sums.append(sum(cost.predicted_increase for cost in costs))
    assert plan.separate_increase == pytest.approx(min(sums), rel=1e-12)
    assert plan.uniform_bits == 3


@pytest.mark.parametrize("seed", range(5))
def test_no_change_of_two_layers_improves_a_plan_with_interactions(seed: int) -> None:
    random = np.random.default_rng(seed)
    root = random.normal(size=(12, 12))
    forms = _Forms(random.normal(size=(4, 3)), (root + root.T).reshape(4, 3, 4, 3))
    sizes = np.cumsum(random.integers(1, 9, size=(4, 3)), axis=1)
    capacity = int(0.7 * sizes[:, -1].sum())

    def increase(choice: tuple[int, ...]) -> float:
        step = np.zeros(12)
        step[[3 * row + option for row, option in enumerate(choice)]] = 1
        return float(forms.linear.ravel() @ step + step @ (root + root.T) @ step / 2)

    def used(choice: tuple[int, ...]) -> int:
        return int(sum(sizes[row, option] for row, option in enumerate(choice)))

    start = (0, 0, 0, 0)
    found = forms.improved_choice(start, sizes, capacity)
    assert forms.increase(found) == pytest.approx(increase(found))
    assert used(found) <= capacity
    fitting = [choice for choice in product(range(3), repeat=4) if used(choice) <= capacity]
    near = [choice for choice in fitting if sum(a != b for a, b in zip(choice, found, strict=True)) <= 2]
    assert increase(found) == pytest.approx(min(map(increase, near)))
    assert increase(found) <= increase(start)


def test_a_change_of_two_layers_may_use_all_of_the_budget() -> None:
    forms = _Forms(np.array([[0.0, 0.0], [5.0, 0.0]]), np.zeros((2, 2, 2, 2)))
    sizes = np.array([[1, 2], [1, 2]])
    assert forms.improved_choice((1, 0), sizes, 3) == (0, 1)  # neither layer alone improves it


def test_interactions_never_make_the_predicted_increase_of_the_whole_larger() -> None:
    problem = quadratic_problem()
    together = hm.compression_plan(problem, (2, 3, 4), 3)
    apart = hm.compression_plan(problem, (2, 3, 4), 3, interactions=False)
    assert together.interactions
    assert not apart.interactions
    assert together.joint_increase <= apart.joint_increase + 1e-12
    assert together.uniform_measured_increase is not None
    assert together.joint_increase <= together.uniform_measured_increase + 1e-9  # exact: the loss is quadratic


def test_a_plan_goes_through_json_and_has_one_row_per_layer(classifier: hm.Problem) -> None:
    plan = hm.compression_plan(classifier, (2, 8), 5, sparsity=0.3)
    assert hm.records.CompressionPlan.from_json(plan.to_json()) == plan
    heads, rows = plan.table()
    assert heads == (
        *("layer", "weights", "bits", "predicted, 2 bits", "measured, 2 bits", "predicted, 8 bits"),
        *("measured, 8 bits", "predicted, pruned", "measured, pruned"),
    )
    assert [len(row) for row in rows] == [len(heads)] * 2
    pruned = plan.layers[1].pruning
    assert pruned is not None
    assert pruned.num_removed == 15
    assert rows[1][-2:] == (pruned.predicted_increase, pruned.measured_increase)


def test_batch_norm_and_objectives_are_supported() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    images, labels = torch.randn(12, 1, 4, 4), torch.randint(3, (12,))
    model(images)
    frozen = hm.Problem(model.eval(), "cross_entropy", images, labels)
    plan = hm.compression_plan(frozen, (4, 8), 6)
    assert list(plan.chosen_bits) == ["0.weight", "4.weight"]

    def objective(own: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return cross_entropy(own(batch[0]), batch[1])

    whole = hm.Problem(model, objective=objective, data=[(images, labels)])
    other = hm.compression_plan(whole, (4, 8), 6)
    for one, two in zip(plan.layers, other.layers, strict=True):
        for left, right in zip(one.costs, two.costs, strict=True):
            assert left.predicted_increase == pytest.approx(right.predicted_increase, rel=1e-7)
            assert left.measured_increase == pytest.approx(right.measured_increase, rel=1e-7)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": ()}, "at least one bit width"),
        ({"bits": (1, 2)}, "at least 2"),
        ({"bits": (4, 99)}, "at most 24"),
        ({"mean_bits": 1.5}, "must not be below the smallest"),
        ({"per": "row"}, "per"),
        ({"prediction": "trace"}, "prediction"),
        ({"part": "functional"}, "part"),
        ({"layers": ["nothing"]}, "nothing"),
        ({"sparsity": 1.0}, "below 1"),
    ],
)
def test_arguments_are_checked(classifier: hm.Problem, options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        hm.compression_plan(classifier, **options)  # type: ignore[arg-type]


def test_the_users_model_and_the_problem_stay_as_they_are(classifier: hm.Problem) -> None:
    before = classifier.parameters.clone()
    hm.compression_plan(classifier, (2,), 2, sparsity=0.5)
    assert torch.equal(classifier.parameters, before)


def test_the_risk_at_other_parameters_is_that_of_a_model_with_them(classifier: hm.Problem) -> None:
    half = classifier.parameters / 2
    model = nn.Sequential(nn.Linear(64, 5), nn.Tanh(), nn.Linear(5, 10)).double()
    nn.utils.vector_to_parameters(half, model.parameters())
    plain, penalised = (
        hm.Problem(model, "cross_entropy", classifier.inputs, classifier.targets, l2=l2) for l2 in (0.0, 0.1)
    )
    assert classifier.risk(half) == pytest.approx(plain.risk())
    assert penalised.risk(2 * half) == pytest.approx(classifier.risk() + 0.1 * float((2 * half).square().sum()))
    with pytest.raises(InvalidInput, match="flat tensor of 385 entries"):
        classifier.risk(half[:3])
