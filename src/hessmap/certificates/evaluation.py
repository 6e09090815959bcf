"""From a posterior to a certificate's numbers: the grid point, the draws, the bound."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hessmap.certificates.posterior import Posterior, posterior_means, posterior_skew, posterior_variances
from hessmap.certificates.stochastic import StochasticConvolution, StochasticNetwork
from hessmap.datasets.data import Data
from hessmap.theory.pac_bayes import PriorGrid, binary_kl_inverse, complexity, gaussian_kl, sampled_error_bound

_CHUNK = 2000  # pairs of weights and samples at a time
_DRAWN_WEIGHTS = 2**26  # of one convolution, at a time


@dataclass(frozen=True)
class Price:
    """What the union bound over prior variances charges: a point of the grid, the divergence there, and B."""

    grid_index: int
    prior_variance: float
    kl: float
    complexity: float


@dataclass(frozen=True)
class SampledBound:
    """Errors counted over independent pairs of weights and samples, and the bound on unseen data that follows."""

    num_errors: int
    num_draws: int
    error_bound: float
    bound: float


def price(posterior: Posterior, prior: Posterior, variance: float, count: int, grid: PriorGrid, delta: float) -> Price:
    """The cheaper of the two grid points around a prior variance."""
    displacement = float((posterior_means(posterior) - posterior_means(prior)).square().sum())
    variances, skew = posterior_variances(posterior).numpy(), posterior_skew(posterior)
    candidates = []
    for index in grid.indices_near(variance):
        kl = gaussian_kl(displacement, variances, grid.variance(index)) + skew
        candidates.append(Price(index, grid.variance(index), kl, complexity(kl, count, index, delta)))
    return min(candidates, key=lambda candidate: candidate.complexity)


def sampled_bound(
    network: StochasticNetwork, data: Data, num_draws: int, seed: int, complexity: float, delta: float
) -> SampledBound:
    """Draw (weights, sample) pairs uniformly, count errors, and invert twice: for the draws, then for the samples."""
    generator = torch.Generator().manual_seed(seed)
    for layer in network.layers.values():
        layer.generator = generator
    inputs = data.inputs.to(next(network.parameters()).dtype)
    num_errors, num_rows = 0, _num_rows(network)
    for start in range(0, num_draws, num_rows):
        chosen = torch.randint(len(inputs), (min(num_rows, num_draws - start),), generator=generator)
        num_errors += _num_wrong(network, inputs[chosen], data.targets[chosen])
    error_bound = sampled_error_bound(num_errors, num_draws, delta)
    return SampledBound(num_errors, num_draws, error_bound, binary_kl_inverse(error_bound, complexity))


def stochastic_error(network: StochasticNetwork, data: Data) -> float:
    """The share of samples that one draw of weights for each gets wrong."""
    return _share_wrong(network, data, _num_rows(network))


def classification_error(model: nn.Module, data: Data) -> float:
    """The share of samples that the network itself gets wrong, evaluated as when it is used, not as in training."""
    return _share_wrong(copy.deepcopy(model).eval(), data, _CHUNK)


def _num_rows(network: StochasticNetwork) -> int:
    """Pairs at a time: fewer where every one has a draw of many weights in memory."""
    drawn = (layer.weight.numel() for layer in network.layers.values() if isinstance(layer, StochasticConvolution))
    return max(1, min(_CHUNK, _DRAWN_WEIGHTS // max(drawn, default=1)))


def _share_wrong(network: nn.Module, data: Data, num_rows: int) -> float:
    dtype = next(network.parameters()).dtype
    pieces = zip(torch.split(data.inputs, num_rows), torch.split(data.targets, num_rows), strict=True)
    # Copies, because a network may write into what it is given.
    return sum(_num_wrong(network, some.to(dtype, copy=True), labels) for some, labels in pieces) / len(data.inputs)


@torch.no_grad()
def _num_wrong(network: nn.Module, inputs: Tensor, labels: Tensor) -> int:
    """Answers that are not the label; one that is not a number is wrong."""
    outputs = network(inputs)
    return int(((outputs.argmax(1) != labels) | ~outputs.isfinite().all(1)).sum())
