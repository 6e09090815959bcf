"""From draws to bounds: of a fitted posterior, of the prior itself, and of the prior's mean network without noise."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, nextafter

from torch import nn

from hessmap.certificates.draws import Draws, Sampler, mean_loss
from hessmap.certificates.losses import BoundedLoss
from hessmap.certificates.posterior import GridPoint, Posterior, best_grid_point, spread_prior
from hessmap.certificates.samples import CertifiedSamples
from hessmap.errors import require
from hessmap.theory.pac_bayes import PriorGrid, held_out_bound, mean_bound, tightest_bound


@dataclass(frozen=True, eq=False)
class PosteriorBound:
    """A posterior, its point of the grid, the draws from it, and the bound that follows."""

    posterior: Posterior
    point: GridPoint
    drawn: Draws
    error_bound: float
    value: float
    inequality: str


@dataclass(frozen=True)
class HeldOut:
    """The mean loss of the prior's mean network on the certified samples, and the bound that follows from it alone."""

    error: float
    bound: float


def fitted_bound(
    posterior: Posterior,
    point: GridPoint,
    sampler: Sampler,
    certified: CertifiedSamples,
    grid: PriorGrid,
    deltas: tuple[float, float],
    num_draws: int | None,
    seed: int,
) -> PosteriorBound:
    """A bound for all posteriors at once; the error on the samples is bounded from draws."""
    sampler.network.take(posterior)
    found = (sampler.draws(data, num_draws, seed) for data in certified.readings)
    error_bound, drawn = max(((drawn.bound(deltas[1]), drawn) for drawn in found), key=lambda pair: pair[0])
    bound = tightest_bound(error_bound, point.kl, certified.num_samples, grid.log_cost(point.index), deltas[0])
    return PosteriorBound(posterior, point, drawn, error_bound, bound.value, bound.inequality)


def fitted_point(
    posterior: Posterior, prior: Posterior, variance: float, num_samples: int, grid: PriorGrid, delta: float
) -> GridPoint:
    """The best point of the grid near a variance."""
    return best_grid_point(posterior, prior, grid.indices_near(variance), num_samples, grid, delta)


def prior_bound(
    prior: Posterior,
    index: int,
    sampler: Sampler,
    certified: CertifiedSamples,
    grid: PriorGrid,
    deltas: tuple[float, float],
    seed: int | None,
) -> PosteriorBound:
    """The prior at one point of a grid that ends as its own posterior, with that point's share of delta.

    Its weights do not depend on the certified samples. Each of these is answered once, by weights of its own, so that
    the losses are independent draws of the loss on unseen data: no divergence, and no error on the samples in between.
    """
    point = GridPoint(index, grid.variance(index), 0.0, 0.0)
    posterior = spread_prior(prior, point.variance)
    sampler.network.take(posterior)
    found = (sampler.draws_of_each(data, seed).scaled(certified.num_samples) for data in certified.readings)
    drawn = max(found, key=lambda one: one.error)
    bound = bound_of_prior(drawn, sampler.loss, prior_delta(grid, index, deltas))
    inequality = "binomial" if sampler.loss.is_binary else "chernoff"
    return PosteriorBound(posterior, point, drawn, drawn.error, bound, inequality)


def best_prior_bound(
    prior: Posterior,
    sampler: Sampler,
    certified: CertifiedSamples,
    grid: PriorGrid,
    deltas: tuple[float, float],
    seed: int,
) -> PosteriorBound:
    """The best point of the grid; deviations are tried from the smallest on, as long as the bound falls.

    All points are paid for, tried or not.
    """
    must = "posterior='prior' needs a finite grid, because every point costs confidence"
    require(grid.num_points is not None, must, "this grid is infinite", "Use PriorGrid(0.0025, 1, num_points=5)")
    best: PosteriorBound | None = None
    for index in range(grid.num_points or 0, 0, -1):
        found = prior_bound(prior, index, sampler, certified, grid, deltas, seed + index)
        if best is not None and found.value > best.value:
            break
        best = found
    assert best is not None
    return best


def prior_delta(grid: PriorGrid, index: int, deltas: tuple[float, ...]) -> float:
    """The share of all deltas together that a point of the grid has, never rounded up."""
    return nextafter(_total_delta(deltas) * exp(-grid.log_cost(index)) * (1 - 1e-12), 0.0)


def bound_of_prior(drawn: Draws, loss: BoundedLoss, delta: float) -> float:
    """The tail of the binomial distribution for errors, Chernoff's inequality for other losses."""
    if loss.is_binary:
        return held_out_bound(drawn.counts[1], drawn.num_draws, delta)
    return mean_bound(min(1.0, nextafter(drawn.error, 2.0)), drawn.num_draws, delta)


def held_out(
    prior_model: nn.Module, certified: CertifiedSamples, loss: BoundedLoss, deltas: tuple[float, ...]
) -> HeldOut:
    """What the certified samples give for the prior's mean network, at the confidence of all deltas together."""
    error = max(mean_loss(prior_model, data, loss) for data in certified.readings)
    return HeldOut(error, bound_from_mean(error, certified.num_samples, loss, deltas))


def bound_from_mean(error: float, num_samples: int, loss: BoundedLoss, deltas: tuple[float, ...]) -> float:
    """Langford 2005 for errors, Chernoff's inequality for other losses."""
    delta = _total_delta(deltas)
    if loss.is_binary:
        num_errors = ceil(error * num_samples * (1 - 1e-12))  # of a mean that is a count over num_samples, that count
        return held_out_bound(num_errors, num_samples, delta)
    return mean_bound(min(1.0, error * (1 + 1e-12)), num_samples, delta)


def _total_delta(deltas: tuple[float, ...]) -> float:
    """The sum, never rounded up."""
    return nextafter(sum(deltas), 0.0)
