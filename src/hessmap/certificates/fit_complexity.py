"""What a fit pays for a posterior: divergence and complexity as functions with a slope in means and deviations."""

from __future__ import annotations

from collections.abc import Mapping
from math import log, pi

import torch
from torch import Tensor

from hessmap.certificates.posterior import Posterior
from hessmap.certificates.stochastic import StochasticLayer
from hessmap.theory.pac_bayes import PriorGrid
from hessmap.theory.risk_bounds import log_maurer_constant


def continuous_complexity(
    kl: Tensor, log_prior_deviation: Tensor, num_samples: int, grid: PriorGrid, delta: float
) -> Tensor:
    """B of ``theory.risk_bounds.maurer_complexity`` between the points of a grid."""
    index = grid.precision * (log(grid.scale) - 2 * log_prior_deviation)
    cost = 2 * index.log() + log(pi**2 / 6) if grid.num_points is None else log(grid.num_points)
    return (kl + cost + log(2 / delta) + log_maurer_constant(num_samples)) / num_samples


def differentiable_divergence(
    layers: Mapping[str, StochasticLayer], prior: Posterior, log_prior_deviation: Tensor
) -> Tensor:
    """KL of the posterior from the normal law of one deviation around the means of ``prior``."""
    log_variance = 2 * log_prior_deviation
    total = torch.zeros((), dtype=torch.float64)
    for name, layer in layers.items():
        start = prior[name]
        for mean, log_deviations, origin in (
            (layer.weight, layer.log_deviations, start.weight),
            (layer.bias, layer.bias_log_deviations, start.bias),
        ):
            if mean is None or log_deviations is None or origin is None:
                continue
            squares = (mean - origin).square().sum().double() + (2 * log_deviations).exp().sum().double()
            total = total + squares / log_variance.exp() - 2 * log_deviations.sum().double()
            total = total + mean.numel() * (log_variance - 1)
    return total / 2
