"""Every form of certificate, repeated where the error on unseen data is known: it holds as often as promised, and
broken variants fail the same count."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from hessmap.theory import pac_bayes
from hessmap.theory.pac_bayes import mean_bound, wagered_bound

held_out_bound, tightest_bound = cache(pac_bayes.held_out_bound), cache(pac_bayes.tightest_bound)  # of few counts
REPETITIONS, DELTA = 500, 0.1
MOST = int(binom.ppf(0.999, REPETITIONS, DELTA))
NUM_SAMPLES = 60
RATES = np.array([0.05, 0.1, 0.2, 0.4, 0.7])  # the true errors of five networks: a prior over them, and posteriors


def num_misses(bound_and_truth: Callable[[np.random.Generator], tuple[float, float]]) -> int:
    misses = 0
    for seed in range(REPETITIONS):
        bound, truth = bound_and_truth(np.random.default_rng(seed))
        misses += bound < truth
    return misses


def all_posteriors(generator: np.random.Generator, has_divergence: bool) -> tuple[float, float]:
    """The posterior is the network that did best on the samples; whichever it is, its divergence is log 5."""
    errors = generator.binomial(NUM_SAMPLES, RATES[3], size=5) / NUM_SAMPLES  # five networks, all of the same error
    kl = np.log(5) if has_divergence else 0.0
    return tightest_bound(float(errors.min()), kl, NUM_SAMPLES, 0.0, DELTA).value, float(RATES[3])


def test_posterior_chosen_by_the_samples_is_paid_by_its_divergence() -> None:
    assert num_misses(lambda generator: all_posteriors(generator, has_divergence=True)) <= MOST


def prior_at_best_of_grid(generator: np.random.Generator, is_paid: bool, num_networks: int = 12) -> tuple[float, float]:
    """Networks of one error each, at the points of a grid; the best bound is kept."""
    share = DELTA / num_networks if is_paid else DELTA
    errors = generator.binomial(NUM_SAMPLES, RATES[2], size=num_networks)
    return min(held_out_bound(int(k), NUM_SAMPLES, share) for k in errors), float(RATES[2])


def test_points_of_a_grid_are_paid_and_a_grid_chosen_afterwards_is_caught() -> None:
    assert num_misses(lambda generator: prior_at_best_of_grid(generator, is_paid=True)) <= MOST
    assert num_misses(lambda generator: prior_at_best_of_grid(generator, is_paid=False)) > MOST


def overlapping(generator: np.random.Generator, num_shared: int) -> tuple[float, float]:
    """A network that knows the samples it was trained on by heart, of which some are certified on again."""
    errors = generator.binomial(NUM_SAMPLES - num_shared, RATES[3])
    return held_out_bound(int(errors), NUM_SAMPLES, DELTA), float(RATES[3])


def test_parts_that_overlap_are_caught() -> None:
    assert num_misses(lambda generator: overlapping(generator, 0)) <= MOST
    assert num_misses(lambda generator: overlapping(generator, 15)) > MOST


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_binomial_tail_misses_about_as_often_as_it_may(rate: float) -> None:
    misses = num_misses(lambda g: (held_out_bound(int(g.binomial(400, rate)), 400, DELTA), rate))
    assert 0.25 * DELTA * REPETITIONS <= misses <= MOST


def drawn_networks(generator: np.random.Generator, size: int, counted: int) -> tuple[float, float]:
    """Shares of errors of networks that differ; ``counted`` is how many draws they are taken for."""
    rates = generator.choice([0.0, 0.4], size=40)
    errors = generator.binomial(size, rates)
    counts = np.bincount(errors, minlength=size + 1) * counted
    return wagered_bound([int(count) for count in counts], DELTA), 0.2


@pytest.mark.slow
def test_wager_counts_networks_and_not_their_samples() -> None:
    assert num_misses(lambda generator: drawn_networks(generator, 20, counted=1)) <= MOST
    assert num_misses(lambda generator: drawn_networks(generator, 20, counted=20)) > MOST


def test_losses_in_the_unit_interval() -> None:
    truth = 0.25  # the mean of Beta(1, 3)

    def once(generator: np.random.Generator) -> tuple[float, float]:
        return mean_bound(float(generator.beta(1, 3, size=80).mean()), 80, DELTA), truth

    assert num_misses(once) <= MOST
