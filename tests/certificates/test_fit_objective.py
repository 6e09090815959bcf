"""The objective of a fit: which slope it follows, what it remembers, and what that buys."""

from __future__ import annotations

from math import log, sqrt

import pytest
import torch
from certificate_cases import QUICK
from torch import Tensor
from torch.nn.functional import cross_entropy

from hessmap.certificates import certify
from hessmap.certificates.fit import FitObjective
from hessmap.certificates.pairs import squared_coordinates
from hessmap.errors import UnknownName
from hessmap.theory.pac_bayes import binary_kl_inverse

TARGETS = torch.arange(40) % 4


def outputs(seed: int = 0) -> Tensor:
    """Logits that are right for most of the targets."""
    noise = torch.randn(40, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return noise + 2 * torch.nn.functional.one_hot(TARGETS, 4)


def slopes(kind: str, complexity: float, others: tuple[int, ...] = ()) -> tuple[float, float]:
    """In the surrogate, by way of the logits, and in B."""
    objective = FitObjective(kind)  # type: ignore[arg-type]
    for seed in others:
        objective.of(outputs(seed), TARGETS, torch.tensor(complexity))
    logits = outputs().requires_grad_()
    weighted = torch.tensor(complexity, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(objective.of(logits, TARGETS, weighted), (logits, weighted))
    unit = torch.autograd.grad(cross_entropy(logits, TARGETS) / log(2), logits)[0]
    return float(found[0].norm() / unit.norm()), float(found[1])


@pytest.mark.parametrize("complexity", [0.02, 0.3, 5.0, 60.0])
def test_pinskers_objective_has_the_slope_of_its_gap(complexity: float) -> None:
    assert slopes("pinsker", complexity) == pytest.approx((1, 1 / (4 * sqrt(complexity / 2))))


@pytest.mark.parametrize("complexity", [0.02, 0.3, 3.0])
@pytest.mark.parametrize("others", [(), (1, 2, 3)])
def test_objective_has_the_slopes_of_the_bound_in_the_average_error_and_divergence(
    complexity: float, others: tuple[int, ...]
) -> None:
    batches = [outputs(seed) for seed in (*others, 0)]
    error = sum(float((one.argmax(1) != TARGETS).double().mean()) for one in batches) / len(batches)
    surrogate = sum(float(cross_entropy(one, TARGETS)) / log(2) for one in batches) / len(batches)
    step = 1e-6
    in_error = (binary_kl_inverse(error + step, complexity) - binary_kl_inverse(error - step, complexity)) / (2 * step)
    in_complexity = (binary_kl_inverse(error, complexity + step) - binary_kl_inverse(error, complexity - step)) / (
        2 * step
    )

    of_surrogate, of_complexity = slopes("bound", complexity, others)

    assert 0 < error < 0.5
    assert of_complexity / of_surrogate == pytest.approx(in_complexity / (in_error * error / surrogate), rel=1e-4)


def test_objective_without_a_single_error_is_finite() -> None:
    objective = FitObjective("bound")
    for _ in range(150):
        found = objective.of(20.0 * torch.nn.functional.one_hot(TARGETS, 4), TARGETS, torch.tensor(0.1))
    assert torch.isfinite(found)
    assert objective.error == 0
    assert len(objective.recent) == 100


def test_following_the_bound_gives_a_lower_one_than_pinskers_gap(problem) -> None:
    options = QUICK | {"iterations": 600, "num_draws": 20_000}
    by_bound, by_gap = (certify(*problem, objective=name, **options) for name in ("bound", "pinsker"))

    assert by_bound.settings["objective"] == "bound"
    assert by_bound.bound < by_gap.bound


def test_objective_of_an_unknown_name_is_refused(problem) -> None:
    with pytest.raises(UnknownName, match="one of bound, pinsker, balanced; got .pinskers.. Did you mean"):
        certify(*problem, objective="pinskers", **QUICK)


def test_squares_that_are_rounding_only_are_zero_and_all_others_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(50, 6, generator=generator) @ torch.randn(6, 9, generator=generator)
    basis = torch.linalg.eigh((inputs.T @ inputs).double())[1].float()

    squares, plain = squared_coordinates(inputs, basis), (inputs @ basis).square()

    assert torch.equal(squares[:, 3:], plain[:, 3:])
    assert ((plain - squares) <= 2e-14 * plain.max()).all()
    assert not ((squares > 0) & (squares < 1e-14 * plain.max())).any()
