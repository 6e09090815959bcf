"""From draws to a bound: of a fitted posterior, whose divergence is paid for, or of the prior itself."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, nextafter

from hessmap.certificates.draws import Draws, Sampler
from hessmap.certificates.losses import BoundedLoss
from hessmap.certificates.parts import total_delta
from hessmap.certificates.posterior import GridPoint, Posterior, best_grid_point, spread_prior
from hessmap.datasets.data import Data
from hessmap.errors import require
from hessmap.theory.pac_bayes import PriorGrid
from hessmap.theory.risk_bounds import held_out_bound, mean_bound, tightest_bound


@dataclass(frozen=True, eq=False)
class Promise:
    """A posterior, its point of the grid, the draws from it, and the bound that follows."""

    posterior: Posterior
    point: GridPoint
    drawn: Draws
    error_bound: float
    bound: float
    inequality: str


def fitted_promise(
    posterior: Posterior,
    prior: Posterior,
    variance: float,
    sampler: Sampler,
    certified: Data,
    grid: PriorGrid,
    deltas: tuple[float, float],
    num_draws: int | None,
    seed: int,
) -> Promise:
    """A bound for all posteriors at once; its error on the samples is bounded from draws."""
    count = len(certified.inputs)
    point = best_grid_point(posterior, prior, grid.indices_near(variance), count, grid, deltas[0])
    sampler.network.take(posterior)
    drawn = sampler.draws(certified, num_draws, seed)
    error_bound = drawn.bound(deltas[1])
    found = tightest_bound(error_bound, point.kl, count, grid.log_cost(point.index), deltas[0])
    return Promise(posterior, point, drawn, error_bound, found.value, found.inequality)


def prior_promise(
    prior: Posterior, sampler: Sampler, certified: Data, grid: PriorGrid, deltas: tuple[float, float], seed: int
) -> Promise:
    """The prior as its own posterior, at the best variance of a grid that ends; every point has its share of delta.

    Its weights do not depend on the certified samples. Each of these is answered once, by weights of its own, so that
    the losses are independent draws of the loss on unseen data: no divergence, and no error on the samples in between.
    Deviations are tried from the smallest on, as long as the bound falls; all are paid for, tried or not.
    """
    must = "a posterior that is the prior needs a grid that ends, each of whose points is paid for"
    require(grid.num_points is not None, must, "the grid has no last point", "Use PriorGrid(0.0025, 1, num_points=5)")
    best: Promise | None = None
    for index in range(grid.num_points or 0, 0, -1):
        posterior = spread_prior(prior, grid.variance(index))
        sampler.network.take(posterior)
        drawn = sampler.draws_of_each(certified, seed + index)
        bound = bound_of_prior(drawn, sampler.loss, prior_delta(grid, index, deltas))
        if best is not None and bound > best.bound:
            break
        point = GridPoint(index, grid.variance(index), 0.0, 0.0)
        inequality = "binomial" if sampler.loss.is_binary else "chernoff"
        best = Promise(posterior, point, drawn, drawn.error, bound, inequality)
    assert best is not None
    return best


def prior_delta(grid: PriorGrid, index: int, deltas: tuple[float, ...]) -> float:
    """The share of all deltas together that a point of the grid has, never rounded up."""
    return nextafter(total_delta(deltas) * exp(-grid.log_cost(index)) * (1 - 1e-12), 0.0)


def bound_of_prior(drawn: Draws, loss: BoundedLoss, delta: float) -> float:
    """The tail of the binomial law for errors, Chernoff's inequality for other losses."""
    if loss.is_binary:
        return held_out_bound(drawn.counts[1], drawn.num_draws, delta)
    return mean_bound(min(1.0, nextafter(drawn.error, 2.0)), drawn.num_draws, delta)
