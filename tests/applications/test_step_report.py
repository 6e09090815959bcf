"""Every quantity of a step report against a reference that is written out by hand."""

from __future__ import annotations

import copy
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from step_problems import flat, flat_risk, half_squares, network, quadratic, report, train, true_step
from torch import Tensor, nn, optim
from torch.nn import functional as F

import hessmap as hm
from hessmap.applications import STEP_QUANTITIES
from hessmap.applications.step_report import critical_multiple
from hessmap.errors import InvalidInput
from hessmap.records import StepReport

EXACT = 1e-8
OPTIMISERS: dict[str, Any] = {
    "sgd": lambda p: optim.SGD(p, lr=0.05),
    "sgd momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    "sgd nesterov": lambda p: optim.SGD(p, lr=0.05, momentum=0.8, nesterov=True, weight_decay=0.1),
    "sgd dampening": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.5),
    "sgd maximize": lambda p: optim.SGD(p, lr=0.05, maximize=True),
    "adam": lambda p: optim.Adam(p, lr=1e-2, eps=1e-3),
    "adam decay": lambda p: optim.Adam(p, lr=1e-2, weight_decay=0.2),
    "amsgrad": lambda p: optim.Adam(p, lr=1e-2, amsgrad=True, betas=(0.8, 0.7)),
    "adamw": lambda p: optim.AdamW(p, lr=1e-2, weight_decay=0.3),
    "adamw foreach": lambda p: optim.AdamW(p, lr=1e-2, foreach=True),
    "adamax": lambda p: optim.Adamax(p, lr=1e-2),
    "rmsprop": lambda p: optim.RMSprop(p, lr=1e-2, eps=1e-3),
    "rmsprop centered": lambda p: optim.RMSprop(p, lr=1e-2, centered=True, alpha=0.5),
    "rmsprop momentum": lambda p: optim.RMSprop(p, lr=1e-3, momentum=0.9),
    "adagrad": lambda p: optim.Adagrad(p, lr=1e-2, lr_decay=0.1, eps=1e-3),
    "adafactor": lambda p: optim.Adafactor(p, lr=1e-2, weight_decay=0.1),
}


def reference_diagonal(optimizer: Any, model: nn.Module, before: Tensor, change: Tensor, gradient: Tensor) -> Tensor:
    """P from what torch did, not from its formulas: the newest momentum m was divided by it, change = - lr m / P."""
    group = optimizer.param_groups[0]
    rate, decay = group["lr"], group["weight_decay"]
    states = [optimizer.state[parameter] for parameter in model.parameters()]
    kind = type(optimizer)
    is_decoupled = kind in (optim.AdamW, optim.Adafactor)
    moved = change + rate * decay * before if is_decoupled else change
    used = gradient if is_decoupled else gradient + decay * before
    if kind in (optim.Adam, optim.AdamW, optim.Adamax):
        momentum = torch.cat([state["exp_avg"].reshape(-1) for state in states])
    else:
        momentum = used
    return -rate * momentum / moved


@pytest.mark.parametrize("name", [name for name in OPTIMISERS if not name.startswith("sgd") and "momentum" not in name])
@pytest.mark.parametrize("steps", [0, 3])
def test_preconditioned_sharpness_is_that_of_the_step_that_torch_takes(name: str, steps: int) -> None:
    model, x, y = network()
    optimizer = OPTIMISERS[name](model.parameters())
    train(model, optimizer, F.cross_entropy, x, y, steps)
    found = report(model, optimizer, "cross_entropy", x, y, tolerance=1e-11, quantities=["preconditioned_sharpness"])
    before = flat(model)
    hessian = torch.func.hessian(flat_risk(model, F.cross_entropy, x, y))(before)
    change, gradient = true_step(model, optimizer, F.cross_entropy, x, y)
    diagonal = reference_diagonal(optimizer, model, before, change, gradient)
    group = optimizer.param_groups[0]
    if type(optimizer) in (optim.AdamW, optim.Adafactor):
        diagonal = diagonal * (1 - group["lr"] * group["weight_decay"] / 2)
    else:
        hessian = hessian + group["weight_decay"] * torch.eye(len(before))
    root = diagonal.rsqrt()
    expected = torch.linalg.eigvalsh(root[:, None] * hessian * root)[-1]
    assert found.preconditioned_sharpness is not None
    assert found.preconditioned_sharpness.value == pytest.approx(float(expected), rel=1e-7)


def test_diagonal_of_rmsprop_with_momentum_is_that_of_its_averages() -> None:
    model, x, y = network()
    optimizer = OPTIMISERS["rmsprop momentum"](model.parameters())
    train(model, optimizer, F.cross_entropy, x, y, 3)
    squares = torch.cat([optimizer.state[each]["square_avg"].reshape(-1) for each in model.parameters()])
    found = report(model, optimizer, "cross_entropy", x, y, tolerance=1e-11)
    gradient = torch.func.grad(flat_risk(model, F.cross_entropy, x, y))(flat(model))
    root = ((0.99 * squares + 0.01 * gradient**2).sqrt() + 1e-8).rsqrt()
    hessian = torch.func.hessian(flat_risk(model, F.cross_entropy, x, y))(flat(model))
    expected = float(torch.linalg.eigvalsh(root[:, None] * hessian * root)[-1])
    assert float(found.preconditioned_sharpness) == pytest.approx(expected, rel=1e-7)  # type: ignore[arg-type]
    assert found.stability_threshold is not None
    assert found.stability_threshold.value == pytest.approx(3.8 / 1e-3)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_step_and_changes_on_a_quadratic_are_exact(name: str) -> None:
    model, x, y = quadratic()
    optimizer = OPTIMISERS[name](model.parameters())
    train(model, optimizer, half_squares, x, y, 3)
    found = report(model, optimizer, "squared", x, y, tolerance=1e-11)
    risk = flat_risk(model, half_squares, x, y)
    before = flat(model)
    hessian = torch.func.hessian(risk)(before)
    change, gradient = true_step(model, optimizer, half_squares, x, y)
    curvature = float(change @ hessian @ change)
    measured = float(risk(before + change) - risk(before))
    expected = {
        "sharpness": float(torch.linalg.eigvalsh(hessian)[-1]),
        "directional_sharpness": curvature / float(change @ change),
        "first_order_change": float(gradient @ change),
        "predicted_change": measured,  # the second order is all there is
        "measured_change": measured,
        "batch_sharpness": float(gradient @ hessian @ gradient / (gradient @ gradient)),
    }
    if float(gradient @ change) < 0 < curvature:
        rate = optimizer.param_groups[0]["lr"]
        expected["critical_learning_rate"] = -2 * rate * float(gradient @ change) / curvature
    for quantity, value in expected.items():
        got = getattr(found, quantity)
        assert got.value == pytest.approx(value, rel=EXACT, abs=1e-12), quantity
    assert found.step_norm == pytest.approx(float(change.norm()), rel=EXACT)
    assert found.layer_terms is not None
    assert found.layer_terms.total == pytest.approx(curvature, rel=EXACT)


THRESHOLDS = {
    "sgd": 2 / 0.05,
    "sgd momentum": 2 * 1.9 / 0.05,
    "sgd nesterov": 2 * 1.8 / (2.6 * 0.05),
    "sgd dampening": 2 * 1.9 / (0.5 * 0.05),
    "adam": 38 / 1e-2,
    "amsgrad": 18 / 1e-2,
    "adamw": 38 / 1e-2,
    "adamax": 38 / 1e-2,
    "rmsprop": 2 / 1e-2,
    "rmsprop momentum": 3.8 / 1e-3,
    "adagrad": 2 / 1e-2,
    "adafactor": 2 / 1e-2,
}


@pytest.mark.parametrize("name", THRESHOLDS)
def test_threshold_follows_from_the_hyperparameters(name: str) -> None:
    model, x, y = quadratic()
    found = report(model, OPTIMISERS[name](model.parameters()), "squared", x, y, quantities=[])
    assert found.stability_threshold is not None
    assert found.stability_threshold.value == pytest.approx(THRESHOLDS[name], rel=1e-12)
    assert found.stability_threshold.error_kind == "exact"


@pytest.mark.parametrize("optimiser", [optim.NAdam, optim.RAdam, optim.ASGD, optim.Rprop, optim.Adadelta, optim.LBFGS])
def test_optimisers_without_a_derived_threshold_have_none_and_all_else(optimiser: Any) -> None:
    model, x, y = quadratic()
    optimizer = optimiser(model.parameters())
    found = report(model, optimizer, "squared", x, y)
    assert found.preconditioned_sharpness is None
    assert found.stability_threshold is None
    assert found.is_stable is None
    assert any("no preconditioner is known" in note for note in found.notes)
    twin = copy.deepcopy(model)
    other = optimiser(twin.parameters())

    def closure() -> Tensor:
        other.zero_grad()
        loss = half_squares(twin(x), y)
        loss.backward()
        return loss

    before = flat(twin)
    other.step(closure)
    assert found.step_norm == pytest.approx(float((flat(twin) - before).norm()), rel=1e-6)
    assert found.measured_change is not None
    after = float((half_squares(twin(x), y) - half_squares(model(x), y)).detach())
    assert found.measured_change.value == pytest.approx(after, rel=1e-6, abs=1e-12)


def test_layers_and_pairs_of_layers_are_blocks_of_the_dense_hessian() -> None:
    model, x, y = network()
    optimizer = OPTIMISERS["adam"](model.parameters())
    train(model, optimizer, F.cross_entropy, x, y, 2)
    found = report(model, optimizer, "cross_entropy", x, y).layer_terms
    hessian = torch.func.hessian(flat_risk(model, F.cross_entropy, x, y))(flat(model))
    change, _ = true_step(model, optimizer, F.cross_entropy, x, y)
    places = [slice(0, 25), slice(25, 43)]  # weight and bias of each linear layer
    expected = np.array([[float(change[a] @ hessian[a, b] @ change[b]) for b in places] for a in places])
    assert found is not None
    assert found.names == ("0", "2")
    assert found.pairs is not None
    np.testing.assert_allclose(found.pairs, expected, rtol=1e-9)
    np.testing.assert_allclose(found.terms, expected.sum(1), rtol=1e-9)


def test_many_layers_have_their_sums_from_one_product() -> None:
    model, x, y = network()
    optimizer = OPTIMISERS["sgd"](model.parameters())
    whole = report(model, optimizer, "cross_entropy", x, y, quantities=["layer_terms"])
    sums = report(model, optimizer, "cross_entropy", x, y, quantities=["layer_terms"], max_layers=1)
    assert whole.layer_terms is not None
    assert sums.layer_terms is not None
    assert sums.layer_terms.pairs is None
    np.testing.assert_allclose(sums.layer_terms.terms, whole.layer_terms.terms, rtol=1e-10)
    assert sums.num_products == 1
    assert any("pairs were left out" in note for note in sums.notes)


def sample_gradients(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients and Hessians of the loss of every sample alone."""
    risks = [flat_risk(model, F.cross_entropy, x[n : n + 1], y[n : n + 1]) for n in range(len(x))]
    point = flat(model)
    gradients = torch.stack([torch.func.grad(risk)(point) for risk in risks])
    return gradients, torch.stack([torch.func.hessian(risk)(point) for risk in risks])


def test_batch_sharpness_is_the_mean_of_the_quotients_of_the_batches() -> None:
    model, x, y = network()
    gradients, hessians = sample_gradients(model, x, y)
    quotients = torch.einsum("ni,nij,nj->n", gradients, hessians, gradients) / gradients.square().sum(1)
    options = {"batch_size": 1, "num_batches": len(x), "quantities": ["batch_sharpness"]}
    found = report(model, OPTIMISERS["sgd"](model.parameters()), "cross_entropy", x, y, **options)
    assert found.batch_sharpness is not None
    assert found.batch_sharpness.error_kind == "standard_error"
    assert found.batch_sharpness.value == pytest.approx(float(quotients.mean()), rel=1e-10)
    assert found.batch_sharpness.error == pytest.approx(float(quotients.std() / len(x) ** 0.5), rel=1e-9)
    assert (found.batch_size, found.num_batches) == (1, 14)


def test_batch_sharpness_of_pairs_is_within_its_error_of_the_mean_over_all_pairs() -> None:
    model, x, y = network()
    gradients, hessians = sample_gradients(model, x, y)
    quotients = []
    for pair in combinations(range(len(x)), 2):
        gradient, hessian = gradients[list(pair)].mean(0), hessians[list(pair)].mean(0)
        quotients.append(float(gradient @ hessian @ gradient / (gradient @ gradient)))
    options = {"batch_size": 2, "num_batches": 70, "quantities": ["batch_sharpness"]}
    found = report(model, OPTIMISERS["sgd"](model.parameters()), "cross_entropy", x, y, **options).batch_sharpness
    assert found is not None
    assert abs(found.value - np.mean(quotients)) < 3 * found.error
    assert found.error < 0.2 * found.value


@pytest.mark.parametrize("size", [None, 1])
def test_noise_scale_of_all_samples_is_exact(size: int | None) -> None:
    model, x, y = network()
    gradients, _ = sample_gradients(model, x, y)
    mean = gradients.mean(0)
    variance = (gradients - mean).square().sum(1).mean()
    options = {"batch_size": size, "num_batches": 14, "quantities": ["gradient_noise_scale"]}
    found = report(model, OPTIMISERS["sgd"](model.parameters()), "cross_entropy", x, y, **options)
    assert found.gradient_noise_scale is not None
    assert found.gradient_noise_scale.value == pytest.approx(float(variance / mean.square().sum()), rel=1e-10)
    assert found.gradient_noise_scale.error == 0


def test_noise_scale_of_batches_has_the_same_expectation() -> None:
    model, x, y = network()
    gradients, _ = sample_gradients(model, x, y)
    mean = gradients.mean(0)
    expected = float((gradients - mean).square().sum(1).mean() / mean.square().sum())
    options = {"batch_size": 4, "num_batches": 300, "quantities": ["gradient_noise_scale"]}
    found = report(model, OPTIMISERS["sgd"](model.parameters()), "cross_entropy", x, y, **options).gradient_noise_scale
    assert found is not None
    assert abs(found.value - expected) < 3.5 * found.error
    assert found.error < 0.1 * expected


def test_batches_of_a_loader_and_of_an_objective_are_those_given() -> None:
    model, x, y = network()
    batches = [(x[:5], y[:5]), (x[5:14], y[5:14])]
    gradients, hessians = sample_gradients(model, x, y)
    quotients = []
    for part in (slice(0, 5), slice(5, 14)):
        gradient, hessian = gradients[part].mean(0), hessians[part].mean(0)
        quotients.append(float(gradient @ hessian @ gradient / (gradient @ gradient)))
    optimizer = OPTIMISERS["sgd"](model.parameters())
    streamed = hm.step_report(hm.Problem(model, "cross_entropy", batches), optimizer)
    objective = hm.Problem(model, objective=lambda m, b: F.cross_entropy(m(b[0]), b[1]), data=batches)
    whole = hm.step_report(objective, optimizer)
    for found in (streamed, whole):
        assert found.batch_sharpness is not None
        assert found.num_batches == 2
        assert found.batch_sharpness.value == pytest.approx(np.mean(quotients), rel=1e-9)
    assert float(whole.sharpness) == pytest.approx(float(streamed.sharpness), rel=1e-6)  # type: ignore[arg-type]


def test_weight_decay_in_the_loss_counts_in_every_quantity() -> None:
    model, x, y = quadratic()
    plain = report(model, OPTIMISERS["sgd"](model.parameters()), "squared", x, y, tolerance=1e-11)
    problem = hm.Problem(model, "squared", x, y, l2=0.5)
    found = hm.step_report(problem, OPTIMISERS["sgd"](model.parameters()), tolerance=1e-11)
    assert plain.sharpness is not None
    assert found.sharpness is not None
    assert found.batch_sharpness is not None
    assert found.sharpness.value == pytest.approx(plain.sharpness.value + 1, rel=1e-9)
    gradient = problem.gradient()
    assert found.batch_sharpness.value == pytest.approx(
        float(gradient @ (hm.loss_hessian(problem) @ gradient) / (gradient @ gradient)), rel=1e-9
    )


def test_critical_multiple_is_in_a_bracket_of_a_sixteenth() -> None:
    losses = {
        "quadratic": lambda c: -c + c**2 / 7,
        "quartic": lambda c: -c + c**2 / 7 + c**4 / 50,
        "flatter": lambda c: -c + c**2 / 7 - c**3 / 2000,
        "concave first": lambda c: -c - c**2 + c**4,
    }
    for name, loss in losses.items():
        calls = []
        curvature = -2.0 if name == "concave first" else 2 / 7

        def counted(c: float, loss: Any = loss, calls: list[float] = calls) -> float:
            calls.append(c)
            return float(loss(c))

        found = critical_multiple(counted, 0.0, -1.0, curvature)
        assert found is not None, name
        value, low, high = found
        roots = [c for c in np.linspace(1e-3, 20, 400_001) if loss(c) > 0]
        assert low - 1e-3 <= roots[0] <= high + 1e-3, name
        assert low <= value <= high, name
        assert high - low <= high / 16 * (1 + 1e-9), name
        assert len(calls) <= 8, name
    assert value != pytest.approx(7)


def test_a_step_that_never_raises_the_loss_has_no_critical_rate() -> None:
    assert critical_multiple(lambda c: -c, 0.0, -1.0, 0.0) is None


def test_a_step_that_goes_uphill_has_the_critical_rate_zero() -> None:
    model, x, y = quadratic()
    found = report(model, OPTIMISERS["sgd maximize"](model.parameters()), "squared", x, y)
    assert found.critical_learning_rate is not None
    assert found.critical_learning_rate.value == 0
    assert found.first_order_change is not None
    assert found.first_order_change.value > 0
    assert found.preconditioned_sharpness is not None
    assert found.preconditioned_sharpness.value < 0.0 + 1e-9


def test_without_a_gradient_there_is_no_step() -> None:
    model, x, _ = quadratic()
    found = report(model, OPTIMISERS["sgd"](model.parameters()), "squared", x, model(x).detach())
    assert found.step_norm == pytest.approx(0, abs=1e-15)
    assert found.directional_sharpness is None or found.step_norm > 0
    assert found.gradient_noise_scale is None or found.gradient_norm > 0


def test_quantities_can_be_chosen() -> None:
    model, x, y = network()
    optimizer = OPTIMISERS["adam"](model.parameters())
    for chosen in STEP_QUANTITIES:
        found = report(model, optimizer, "cross_entropy", x, y, quantities=[chosen], batch_size=4)
        others = [name for name in STEP_QUANTITIES if name != chosen and getattr(found, name) is not None]
        assert getattr(found, chosen) is not None
        assert not others
    with pytest.raises(InvalidInput, match="quantities must be one of"):
        report(model, optimizer, "cross_entropy", x, y, quantities=["slope"])


def test_a_report_goes_through_json_and_is_shown_in_two_lines() -> None:
    model, x, y = network()
    for name in ("adamw", "sgd"):
        found = report(model, OPTIMISERS[name](model.parameters()), "cross_entropy", x, y, batch_size=5)
        again = StepReport.from_json(found.to_json())
        assert again == found
        assert again.layer_terms == found.layer_terms
        assert len(repr(found).splitlines()) <= 2
    undefined = report(model, optim.NAdam(model.parameters()), "cross_entropy", x, y, quantities=[])
    assert StepReport.from_json(undefined.to_json()) == undefined
    assert len(repr(undefined).splitlines()) <= 2


def test_finite_differences_are_used_where_the_problem_asks_for_them() -> None:
    model, x, y = network()
    optimizer = OPTIMISERS["adam"](model.parameters())
    exact = hm.step_report(hm.Problem(model, "cross_entropy", x, y), optimizer)
    problem = hm.Problem(model, "cross_entropy", x, y, products="finite_difference")
    found = hm.step_report(problem, optimizer, tolerance=1e-6)
    assert exact.directional_sharpness is not None
    assert found.directional_sharpness is not None
    assert found.directional_sharpness.value == pytest.approx(exact.directional_sharpness.value, rel=1e-6)
    assert found.directional_sharpness.error > 100 * exact.directional_sharpness.error
    assert found.batch_sharpness is None
    assert any("finite differences" in note for note in found.notes)


def test_the_parameter_with_the_fewest_steps_decides_whether_the_preconditioner_still_changes() -> None:
    model, x, y = network()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    train(model, optimizer, F.cross_entropy, x, y, 12)
    quick: dict[str, Any] = {"quantities": ("directional_sharpness",)}
    assert not any("still changes" in note for note in report(model, optimizer, "cross_entropy", x, y, **quick).notes)
    next(iter(optimizer.state.values()))["step"].fill_(3.0)
    found = report(model, optimizer, "cross_entropy", x, y, **quick)
    assert any("step 4 of the optimiser" in note and "still changes" in note for note in found.notes)


def test_evaluations_of_the_loss_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = network()
    problem, evaluate, calls = hm.Problem(model, "cross_entropy", x, y), hm.Problem.risk, []

    def counted(self: hm.Problem) -> float:
        calls.append(self)
        return evaluate(self)

    monkeypatch.setattr(hm.Problem, "risk", counted)
    optimizer = optim.SGD(model.parameters(), lr=0.01)
    found = hm.step_report(problem, optimizer, quantities=("measured_change", "critical_learning_rate"))
    assert found.num_passes == len(calls) > 0
