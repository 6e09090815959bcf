"""Stochastic networks against plain draws of their weights, and prices against textbook divergences."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from hessmap.certificates.evaluation import price
from hessmap.certificates.posterior import posterior_variances
from hessmap.certificates.stochastic import StochasticLayer, StochasticNetwork
from hessmap.errors import UnsupportedNetwork
from hessmap.theory.pac_bayes import PriorGrid

NUM_DRAWS = 40_000


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


@torch.no_grad()
def stochastic(model: nn.Module, seed: int = 0) -> StochasticNetwork:
    """A stochastic copy in random bases with random deviations."""
    network = StochasticNetwork(model, generator(seed), dtype=torch.float64)
    for place, layer in enumerate(network.layers.values()):
        layer.log_deviations.copy_(0.4 * normal(*layer.log_deviations.shape, seed=place) - 0.5)
        if layer.bias_log_deviations is not None:
            layer.bias_log_deviations.copy_(0.4 * normal(*layer.bias_log_deviations.shape, seed=place + 9) - 0.5)
        for basis in (layer.output_basis, layer.input_basis):
            basis.copy_(torch.linalg.qr(normal(*basis.shape, seed=place + 20)).Q)
    return network


@torch.no_grad()
def drawn_weights(layer: StochasticLayer, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    scaled = normal(count, *layer.weight.shape, seed=seed) * layer.log_deviations.exp()
    weights = layer.weight + layer.output_basis @ scaled @ layer.input_basis.T
    shifts = (normal(count, len(layer.weight), seed=seed + 1) * layer.bias_log_deviations.exp()) @ layer.output_basis.T
    return weights, layer.bias + shifts


def assert_same_law(found: torch.Tensor, wanted: torch.Tensor) -> None:
    """Means within 5 standard errors, covariances within 5 % of the largest variance."""
    spread = wanted.std(0) / NUM_DRAWS**0.5
    assert ((found.mean(0) - wanted.mean(0)).abs() < 5 * 2**0.5 * spread).all()
    covariance, other = torch.cov(found.T), torch.cov(wanted.T)
    assert (covariance - other).abs().max() < 0.05 * other.diagonal().max()


def test_linear_layer_has_the_law_of_drawn_weights() -> None:
    network = stochastic(nn.Linear(3, 4).double())
    (layer,) = network.layers.values()
    sample = normal(3, seed=5)
    weights, shifts = drawn_weights(layer, NUM_DRAWS, seed=7)

    with torch.no_grad():
        found = network(sample.expand(NUM_DRAWS, -1))

    assert_same_law(found, weights @ sample + shifts)


@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 1}, {"dilation": 2}])
def test_convolution_has_the_law_of_drawn_weights_at_all_positions_together(options: dict[str, int]) -> None:
    plain = nn.Conv2d(2, 3, 2, **options).double()
    network = stochastic(plain)
    (layer,) = network.layers.values()
    sample = normal(2, 3, 3, seed=5)
    weights, shifts = drawn_weights(layer, NUM_DRAWS, seed=7)

    with torch.no_grad():
        found = network(sample.expand(NUM_DRAWS, -1, -1, -1)).flatten(1)
        kernels = weights.reshape(-1, 2, 2, 2)
        wanted = nn.functional.conv2d(sample[None], kernels, shifts.flatten(), **options)

    assert_same_law(found, wanted.reshape(NUM_DRAWS, -1))


def test_two_samples_of_a_batch_have_independent_weights() -> None:
    network = stochastic(nn.Linear(2, 1).double())
    pairs = torch.ones(2 * NUM_DRAWS, 2, dtype=torch.float64)

    with torch.no_grad():
        first, second = network(pairs).reshape(2, NUM_DRAWS)

    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / NUM_DRAWS**0.5


def test_price_is_the_divergence_of_two_gaussians_in_any_basis() -> None:
    model = nn.Linear(2, 3).double()
    posterior = stochastic(model).posterior()
    prior = StochasticNetwork(nn.Linear(2, 3).double(), generator(), dtype=torch.float64).posterior()
    (layer,), (start,) = posterior.values(), prior.values()
    grid = PriorGrid()

    paid = price(posterior, prior, grid.variance(40), 100, grid, 0.05)

    rotation = torch.block_diag(torch.kron(layer.output_basis, layer.input_basis), layer.output_basis)
    covariance = rotation @ torch.diag(posterior_variances(posterior)) @ rotation.T
    identity = torch.eye(9, dtype=torch.float64)
    wanted = kl_divergence(
        MultivariateNormal(layer.means, (covariance + covariance.T) / 2),
        MultivariateNormal(start.means, grid.variance(40) * identity),
    )
    assert paid.grid_index == 40
    assert paid.kl == pytest.approx(float(wanted), rel=1e-10)


def test_price_takes_the_cheaper_of_two_grid_points() -> None:
    posterior = stochastic(nn.Linear(2, 3).double()).posterior()
    grid = PriorGrid()

    between = price(posterior, posterior, grid.variance(40) * 0.999, 100, grid, 0.05)

    ends = [price(posterior, posterior, grid.variance(index), 100, grid, 0.05) for index in (40, 41)]
    assert between.complexity == min(end.complexity for end in ends)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(inputs))


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    model[2].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), "linear and convolutional layers; 1.weight does not"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False)), "not depend on the data; 1 is a batch-norm"),
        (tied(), "parameters that are used once; some are tied"),
        (nn.Conv1d(2, 2, 1, groups=2), "convolutions of one group; got 2"),
        (nn.Conv1d(2, 2, 1, padding=1, padding_mode="circular"), "zero padding; got 'circular'"),
    ],
)
def test_networks_without_a_certificate_are_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(UnsupportedNetwork, match=words):
        StochasticNetwork(model, generator())


def test_layer_applied_twice_is_refused() -> None:
    with pytest.raises(UnsupportedNetwork, match="applied once a sample; layer is applied 2 times"):
        StochasticNetwork(Twice(), generator())(torch.zeros(1, 2))


def test_linear_layer_over_tokens_is_refused() -> None:
    with pytest.raises(UnsupportedNetwork, match=r"one vector a sample; one is applied to inputs of shape \(1, 3, 2\)"):
        StochasticNetwork(nn.Linear(2, 2), generator())(torch.zeros(1, 3, 2))
