"""Estimated learning coefficients: where the answer is known, what must be left alone, and checks that bite."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.maps import learning
from hessmap.maps.learning import (
    ChainRisk,
    Measured,
    chain_checks,
    largest_curvatures,
    setting_check,
    verdict,
)
from hessmap.records import ChainSettings, LearningCheck, Record
from hessmap.views.tables import coefficient_view, estimate_view

SETTINGS = ChainSettings(
    num_observations=1000.0,
    inverse_temperature=1 / np.log(1000.0),
    localisation=1.0,
    step_size=1e-3,
    num_chains=4,
    num_burn_in=100,
    num_draws=1000,
    batch_size=None,
    seed=0,
)


def regression(num_inputs=3, num_outputs=2, num_samples=12, seed=0, shift=0.0, **options):
    """A linear map that fits its data exactly, with inputs of second moment one: curvature 1 in every direction."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.linalg.qr(torch.randn(num_samples, num_inputs, generator=generator, dtype=torch.float64))[0]
    inputs = inputs * num_samples**0.5
    model = hm.FullyConnected((num_inputs, num_outputs)).build(seed=seed)
    return hm.Problem(model, "squared", inputs, model(inputs).detach() + shift, **options)


def outcomes(found):
    return {check.name: check.outcome for check in found.checks}


@pytest.mark.parametrize("batch_size", [None, 11])
def test_a_regular_model_has_half_its_parameters(batch_size):
    problem = regression()
    found = hm.maps.learning.learning_coefficient_estimate(
        problem, num_observations=1000, num_draws=400, num_burn_in=30, step_size=2e-3, batch_size=batch_size,
        num_chains=16, check_settings=False,
    )  # fmt: skip
    precision = 1000 / np.log(1000.0) + 1.0
    exact = 3.0 * (precision - 1) / precision / (1 - 2e-3 * precision / 4)
    assert found.value == pytest.approx(exact, abs=4 * found.standard_error + 0.03)
    assert found.standard_error < 0.15
    assert found.interval[0] < found.value < found.interval[1]
    assert found.sharpness == pytest.approx(1, rel=1e-4)
    assert found.by_chain.mean() == pytest.approx(found.value)


def test_the_step_is_chosen_from_the_curvature_and_all_checks_can_pass():
    found = hm.maps.learning.learning_coefficient_estimate(
        regression(2, 1), num_observations=30, num_draws=320, num_burn_in=32, localisation=0.3, seed=1
    )
    precision = 30 / np.log(30.0) + 0.3
    assert found.settings.step_size == pytest.approx(learning.WANTED_STEP / precision, rel=1e-2)
    assert set(outcomes(found)) == {
        "minimum", "parameters", "agreement", "trend", "step", "length", "half step", "weaker pull",
    }  # fmt: skip
    assert outcomes(found)["step"] == outcomes(found)["length"] == outcomes(found)["minimum"] == "passed"
    assert "not run" not in outcomes(found).values()


def test_the_same_seed_gives_the_same_draws_and_nothing_of_the_user_is_touched():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2)).train()
    inputs, targets = torch.randn(10, 3), torch.randint(2, (10,))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    states = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - the global one is meant
    problem = hm.Problem(model, "cross_entropy", inputs, targets)
    arguments = {"num_draws": 16, "num_chains": 2, "num_burn_in": 4, "check_settings": False, "localisation": 10.0}
    first, again = (hm.maps.learning.learning_coefficient_estimate(problem, **arguments, seed=3) for _ in range(2))
    other = hm.maps.learning.learning_coefficient_estimate(problem, **arguments, seed=4)
    assert first == again
    assert first.value != other.value
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002


class Stepwise(nn.Module):
    """A model whose Python code looks at the numbers: no torch.func.vmap can go through it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 1, bias=False)

    def forward(self, inputs):
        outputs = self.linear(inputs)
        return outputs * 2 if float(outputs.detach().sum()) > 1e6 else outputs


def test_chains_go_one_by_one_where_they_cannot_go_together():
    torch.manual_seed(0)
    inputs = torch.randn(6, 2, dtype=torch.float64)
    alone, together = Stepwise().double(), nn.Linear(2, 1, bias=False).double()
    together.weight.data.copy_(alone.linear.weight)
    risks = [ChainRisk(hm.Problem(model, "squared", inputs, inputs[:, :1]), 3) for model in (alone, together)]
    assert [risk.is_parallel for risk in risks] == [False, True]
    points = torch.randn(3, 2, dtype=torch.float64)
    for (values, gradients), (others, slopes) in itertools.pairwise(risk(points) for risk in risks):
        assert values == pytest.approx(others)
        assert gradients.numpy() == pytest.approx(slopes.numpy())


def test_gradients_and_curvatures_of_the_chains_are_those_of_the_problem():
    problem = regression()
    risk = ChainRisk(problem, 2)
    values, gradients = risk(torch.stack([risk.start, risk.start + 0.1]))
    assert values[0] == pytest.approx(problem.risk(), abs=1e-15)
    assert gradients[0].numpy() == pytest.approx(problem.gradient().numpy(), abs=1e-12)
    chosen = torch.arange(6)
    halves = risk(risk.start[None] + 0.1, chosen)[0] + risk(risk.start[None] + 0.1, chosen + 6)[0]
    assert float(halves) / 2 == pytest.approx(float(values[1])), "the mean over batches is the whole"
    found = largest_curvatures(risk, risk.start[None], torch.Generator().manual_seed(0))
    assert float(found) == pytest.approx(hm.sharpness(hm.loss_hessian(problem)).value, rel=1e-4)


def test_a_penalty_is_part_of_the_risk():
    with_penalty = regression(l2=0.5)
    risk = ChainRisk(with_penalty, 1)
    values, gradients = risk(risk.start[None])
    assert float(values) == pytest.approx(with_penalty.risk())
    assert gradients[0].numpy() == pytest.approx(with_penalty.gradient().numpy())


def test_weights_that_are_no_minimum_are_found_out():
    found = hm.maps.learning.learning_coefficient_estimate(
        regression(shift=3.0), num_observations=1000, num_draws=100, num_burn_in=32, num_chains=2, check_settings=False
    )
    assert outcomes(found)["minimum"] == "failed"
    assert found.verdict == "unreliable"


def test_time_and_interruption_leave_what_was_drawn(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(learning.time, "monotonic", lambda: float(next(ticks)))
    arguments = {"num_draws": 500, "num_burn_in": 100, "step_size": 1e-3, "num_chains": 2}
    found = hm.maps.learning.learning_coefficient_estimate(
        regression(), num_observations=100, seconds=60.0, **arguments
    )
    assert found.stopped_by == "time"
    assert 16 <= found.settings.num_draws < 60
    assert found.settings.num_burn_in + found.settings.num_draws <= 61
    assert outcomes(found)["half step"] == "not run"
    monkeypatch.undo()
    move = learning.Langevin._move

    def interrupted(self, points, settings, step):
        if step == 90:
            raise KeyboardInterrupt
        return move(self, points, settings, step)

    monkeypatch.setattr(learning.Langevin, "_move", interrupted)
    found = hm.maps.learning.learning_coefficient_estimate(regression(), num_observations=100, **arguments)
    assert (found.stopped_by, found.settings.num_draws) == ("interruption", 60)


def test_a_step_that_throws_the_chains_out_is_said():
    problem = hm.Problem(hm.FullyConnected((2, 2, 2)).build(), "squared", torch.eye(2).double(), torch.eye(2).double())
    with pytest.raises(InvalidInput, match=r"must stay where the loss is finite.*Use step_size=\d"):
        hm.maps.learning.learning_coefficient_estimate(problem, num_observations=1e6, step_size=1.0)


def test_each_check_bites():
    draws = np.random.default_rng(0).normal(size=(4, 1000)) + 3.0
    good = Measured(3.0, 0.02)
    drifting = draws + np.linspace(0, 3, 1000)

    def failed(kept=draws, found=good, settings=SETTINGS, sharpness=0.5, num_parameters=6):
        checks = chain_checks(kept, found, settings, sharpness, num_parameters)
        return {check.name for check in checks if check.outcome == "failed"}

    assert failed() == set()
    assert failed(found=Measured(-1.0, 0.02)) == {"minimum"}
    assert failed(num_parameters=5) == {"parameters"}
    assert failed(kept=drifting) == {"agreement", "trend"}
    assert failed(sharpness=2.0) == {"step"}
    assert failed(settings=ChainSettings(**{**vars(SETTINGS), "num_draws": 100})) == {"length"}
    assert failed(settings=ChainSettings(**{**vars(SETTINGS), "batch_size": 2})) == {"batch"}


def test_another_setting_must_leave_the_value_or_be_too_noisy_to_tell():
    found = Measured(10.0, 0.05)
    tried = {
        "passed": Measured(10.2, 0.05),
        "failed": Measured(11.5, 0.05),
        "inconclusive": Measured(11.5, 3.0),
        "not run": None,
    }
    for outcome, other in tried.items():
        check = setting_check("half step", "half the step", found, other, "take a smaller step")
        assert check.outcome == outcome
    early = setting_check("half step", "half the step", found, tried["failed"], "take a smaller step", is_settled=False)
    assert early.outcome == "inconclusive"
    assert "the chains have not converged" in early.sentence
    passed, failed = (LearningCheck("a", outcome, 0.0, 1.0, "") for outcome in ("passed", "failed"))
    unknown = LearningCheck("b", "not run", 0.0, 1.0, "")
    assert [verdict([passed]), verdict([passed, unknown]), verdict([failed, unknown])] == [
        "reliable", "inconclusive", "unreliable",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"num_draws": 5}, "num_draws must be an integer of at least 16; got 5"),
        ({"num_chains": 0}, "num_chains must be an integer of at least 1"),
        ({"step_size": -1.0}, "step_size must be finite and positive; got -1"),
        ({"step_size": 0}, "step_size must be finite and positive; got 0"),
        ({"localisation": float("nan")}, "localisation must be finite and not negative"),
        ({"inverse_temperature": 0}, "inverse_temperature must be finite and positive"),
        ({"num_observations": 2}, "needs more than e = 2.7 observations"),
        ({"batch_size": 13}, "at most the number of samples; 13 for 12"),
        ({"seconds": 0}, "seconds must be positive"),
        ({"seconds": 1e-9}, "time ended them after .* Allow more seconds"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
    ],
)
def test_odd_arguments_are_answered(arguments, match):
    with pytest.raises(InvalidInput, match=match):
        hm.maps.learning.learning_coefficient_estimate(regression(), **arguments)


def test_it_needs_a_problem():
    with pytest.raises(InvalidInput, match="this needs a Problem; got a Linear"):
        hm.maps.learning.learning_coefficient_estimate(nn.Linear(2, 1))


def test_a_record_is_stored_drawn_and_tabled():
    found = hm.maps.learning.learning_coefficient_estimate(
        regression(), num_observations=100, num_draws=40, num_burn_in=10, step_size=1e-3, num_chains=1
    )
    assert Record.from_json(found.to_json()) == found
    (axes,) = found.plot(exact=3.0).axes
    assert {line.get_label() for line in axes.lines} >= {"exact 3", "mean of the chains"}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(estimate_view(found, "a title"))
    console.print(coefficient_view(hm.learning_coefficient(hm.FullyConnected((3, 1, 1, 3)), rank=0)))
    text = console.export_text()
    assert "weaker pull" in text
    assert "half the parameters" in text
