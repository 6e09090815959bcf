"""The bound on the error over the samples, where that error is known exactly: it holds as often as promised, and the
same count catches networks whose noise is not the posterior's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from certificate_cases import Composed
from scipy.stats import binom, norm
from torch import Tensor, nn

from hessmap.certificates.draws import Draws, Sampler
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data

REPETITIONS, DELTA, NUM_DRAWS = 300, 0.1, 100
MEAN, DEVIATION = 1.0, 0.3
BARRIER = 0.6  # right is the answer 1, which is given where the score exceeds the barrier
SIZES = torch.tensor([0.8, 1.0, 1.2, 1.5])


def scored(scores: Tensor) -> Tensor:
    return torch.stack([torch.full_like(scores, BARRIER), scores], dim=1)


def plain(model: nn.Module, inputs: Tensor) -> Tensor:
    """Score w x."""
    return scored(model.a(inputs)[:, 0])


def used_twice(model: nn.Module, inputs: Tensor) -> Tensor:
    """Score w^2 x: a decoder by the transpose."""
    return scored((model.a(inputs) @ model.a.weight)[:, 0])


def folded(model: nn.Module, inputs: Tensor) -> Tensor:
    """Score w times the mean of nine tokens."""
    return scored(model.a(inputs.reshape(-1, 1)).reshape(len(inputs), -1).mean(1))


@dataclass(frozen=True)
class Case:
    function: Callable[[nn.Module, Tensor], Tensor]
    kind: str
    inputs: Tensor
    error: float  # of the posterior N(MEAN, DEVIATION^2), averaged over the samples


def below(threshold: Tensor) -> float:
    """The chance that the weight lies below, averaged over thresholds."""
    return float(norm.cdf((threshold.numpy() - MEAN) / DEVIATION).mean())


TOKENS = SIZES[:, None, None] * torch.linspace(0.5, 1.5, 9)[:, None]
CASES = {
    "plain": Case(plain, "pairs", SIZES[:, None], below(BARRIER / SIZES)),
    "used twice": Case(
        used_twice,
        "networks",
        SIZES[:, None],
        below((BARRIER / SIZES).sqrt()) - below(-(BARRIER / SIZES).sqrt()),
    ),
    "folded tokens": Case(folded, "networks", TOKENS, below(BARRIER / SIZES)),
}


def model_of(case: Case) -> nn.Module:
    model = Composed(case.function, a=nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model.a.weight.fill_(MEAN)
    return model


def sampler_of(case: Case) -> tuple[Sampler, Data]:
    model = model_of(case)
    network = StochasticNetwork(model, torch.Generator())
    with torch.no_grad():
        network.layers["a"].log_deviations.fill_(np.log(DEVIATION))
    return Sampler(network, case.inputs, model), Data(case.inputs, torch.ones(len(SIZES), dtype=torch.long))


def num_failures(case: Case, draws: Callable[[int], Draws]) -> tuple[int, int]:
    """How often the bounds from above and from below miss the known error."""
    above = under = 0
    for seed in range(REPETITIONS):
        drawn = draws(seed)
        above += drawn.bound(DELTA) < case.error
        under += drawn.lower_bound(DELTA) > case.error
    return above, under


MOST = int(binom.ppf(0.999, REPETITIONS, DELTA))


@pytest.mark.parametrize("name", CASES)
def test_bound_misses_the_known_error_at_most_as_often_as_promised(name: str) -> None:
    case = CASES[name]
    sampler, data = sampler_of(case)

    above, under = num_failures(case, lambda seed: sampler.draws(data, NUM_DRAWS, seed))

    assert sampler.kind == case.kind
    assert above <= MOST
    assert under <= MOST


@pytest.mark.parametrize("name", CASES)
def test_observed_error_is_the_known_one(name: str) -> None:
    case = CASES[name]
    sampler, data = sampler_of(case)

    drawn = sampler.draws(data, 20_000 if case.kind == "pairs" else 4000, seed=0)

    assert abs(drawn.error - case.error) < 5 * (case.error / drawn.num_draws) ** 0.5


def test_seeds_differ_by_the_spread_of_a_binomial_count() -> None:
    """Two seeds of one posterior disagree as two counts do, so that a verifier's threshold means what it says."""
    case = CASES["plain"]
    sampler, data = sampler_of(case)

    errors = [sampler.draws(data, NUM_DRAWS, seed).error for seed in range(REPETITIONS)]

    deviation = (case.error * (1 - case.error) / NUM_DRAWS) ** 0.5
    assert abs(np.mean(errors) - case.error) < 4 * deviation / REPETITIONS**0.5
    assert 0.85 < np.std(errors) / deviation < 1.15


class RowNoise(nn.Linear):
    """The layer of a careless quick way: every row has a draw of its own, and ``weight`` is the mean."""

    def forward(self, inputs: Tensor) -> Tensor:
        noise = torch.randn(len(inputs), 1, generator=self.generator)
        return super().forward(inputs) + DEVIATION * noise * inputs


@pytest.mark.parametrize("name", CASES)
def test_the_same_count_catches_a_second_use_without_noise_and_noise_for_every_token(name: str) -> None:
    case = CASES[name]
    careless = RowNoise(1, 1, bias=False)
    model = Composed(case.function, a=careless)
    nn.init.constant_(careless.weight, MEAN)

    @torch.no_grad()
    def draws(seed: int) -> Draws:
        careless.generator = torch.Generator().manual_seed(seed)
        chosen = torch.randint(len(SIZES), (NUM_DRAWS,), generator=careless.generator)
        answers = model(case.inputs[chosen])
        num_wrong = int((answers.argmax(1) != 1).sum())
        return Draws("pairs", (NUM_DRAWS - num_wrong, num_wrong), 1)

    above, _ = num_failures(case, draws)

    assert (above > MOST) is (name != "plain")
