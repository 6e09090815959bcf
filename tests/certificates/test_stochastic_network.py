"""Stochastic networks against plain draws of their weights, and divergences against textbook ones."""

from __future__ import annotations

import copy
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from certificate_cases import PLAIN, WHOLE, Composed, started, two, vectors
from hand_drawn_networks import generator, normal, require_errors_of_networks_drawn_by_hand, stochastic
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

from hessmap.certificates.draws import Sampler
from hessmap.certificates.pairs import PairNetwork
from hessmap.certificates.posterior import best_grid_point, divergence
from hessmap.certificates.stochastic import StochasticLayer, StochasticNetwork
from hessmap.datasets import Data
from hessmap.errors import HessmapError, UnsupportedNetwork
from hessmap.theory.pac_bayes import PriorGrid

NUM_DRAWS = 40_000
EVERY = PLAIN | WHOLE


@pytest.mark.parametrize("name", EVERY)
def test_every_network_errs_as_networks_whose_weights_are_drawn_by_hand(name: str) -> None:
    make, samples = EVERY[name]
    require_errors_of_networks_drawn_by_hand(make(), samples(), "pairs" if name in PLAIN else "networks")


@pytest.mark.parametrize("name", EVERY)
def test_fit_of_a_whole_network_follows_the_gradients_of_the_network_drawn(name: str) -> None:
    make, samples = EVERY[name]
    model, _ = started(make())
    network = StochasticNetwork(model, generator(), dtype=torch.float64)
    inputs = samples().inputs
    inputs = inputs.double() if inputs.is_floating_point() else inputs

    outputs = network.outputs(inputs.clone())
    means = [mean for layer in network.layers.values() for mean in (layer.weight, layer.bias) if mean is not None]
    found = torch.autograd.grad(outputs.square().sum(), means, allow_unused=True)

    by_name = dict(network.model.named_parameters())
    places = [place for one in network.places.values() for place in (one.weight, one.bias) if place is not None]
    loss = network.model(inputs.clone()).square().sum()
    wanted = torch.autograd.grad(loss, [by_name[place] for place in places], allow_unused=True)
    for one, other in zip(found, wanted, strict=True):
        assert (one is None or not one.any()) if other is None else torch.allclose(one.flatten(), other.flatten())
    assert any(one is not None and one.any() for one in found)


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


@pytest.mark.parametrize("method", ["answers", "outputs"])
def test_linear_layer_has_the_law_of_drawn_weights(method: str) -> None:
    network = stochastic(nn.Linear(3, 4).double())
    (layer,) = network.layers.values()
    sample = normal(3, seed=5)
    weights, shifts = drawn_weights(layer, NUM_DRAWS, seed=7)

    with torch.no_grad():
        found = getattr(PairNetwork(network, ()), method)(sample.expand(NUM_DRAWS, -1))

    assert_same_law(found, weights @ sample + shifts)


@pytest.mark.parametrize("options", [{"stride": 2}, {"padding": 1}, {"dilation": 2}])
@pytest.mark.parametrize("method", ["answers", "outputs"])
def test_convolution_has_the_law_of_drawn_weights_at_all_positions_together(
    method: str, options: dict[str, int]
) -> None:
    plain = nn.Conv2d(2, 3, 2, **options).double()
    network = stochastic(plain)
    (layer,) = network.layers.values()
    sample = normal(2, 3, 3, seed=5)
    weights, shifts = drawn_weights(layer, NUM_DRAWS, seed=7)

    with torch.no_grad():
        found = getattr(PairNetwork(network, ()), method)(sample.expand(NUM_DRAWS, -1, -1, -1)).flatten(1)
        kernels = weights.reshape(-1, 2, 2, 2)
        wanted = nn.functional.conv2d(sample[None], kernels, shifts.flatten(), **options)

    assert_same_law(found, wanted.reshape(NUM_DRAWS, -1))


def test_two_samples_of_a_batch_have_independent_weights() -> None:
    network = stochastic(nn.Linear(2, 1).double())
    pairs = torch.ones(2 * NUM_DRAWS, 2, dtype=torch.float64)

    with torch.no_grad():
        first, second = PairNetwork(network, ()).answers(pairs).reshape(2, NUM_DRAWS)

    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 5 / NUM_DRAWS**0.5


def test_divergence_is_that_of_two_gaussians_in_any_basis() -> None:
    posterior = stochastic(nn.Linear(2, 3).double()).posterior()
    prior = StochasticNetwork(nn.Linear(2, 3).double(), generator(), dtype=torch.float64).posterior()
    (layer,), (start,) = posterior.values(), prior.values()

    found = divergence(posterior, prior, 0.07)

    rotation = torch.block_diag(torch.kron(layer.output_basis, layer.input_basis), layer.output_basis)
    covariance = rotation @ torch.diag(layer.variances) @ rotation.T
    wanted = kl_divergence(
        MultivariateNormal(layer.means, (covariance + covariance.T) / 2),
        MultivariateNormal(start.means, 0.07 * torch.eye(9, dtype=torch.float64)),
    )
    assert found == pytest.approx(float(wanted), rel=1e-10)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_divergence_is_never_rounded_down(seed: int, scale: float) -> None:
    """Bases are orthonormal to single precision only, and sixty digits know what that costs."""
    mpmath.mp.dps = 60
    posterior = stochastic(nn.Linear(3, 4), seed, dtype=torch.float32).posterior()
    prior = {name: copy.copy(layer) for name, layer in posterior.items()}
    (layer,), variance = posterior.values(), 0.05 * scale
    outputs, inputs = (mpmath.matrix(basis.double().tolist()) for basis in (layer.output_basis, layer.input_basis))
    trace = log_determinant = mpmath.mpf(0)
    for logs, bases in ((layer.log_deviations, (outputs, inputs)), (layer.bias_log_deviations[:, None], (outputs,))):
        for row, values in enumerate(logs.double().tolist()):
            for column, value in enumerate(values):
                square = mpmath.exp(2 * mpmath.mpf(value))
                for basis, place in zip(bases, (row, column), strict=False):
                    square *= sum(basis[k, place] ** 2 for k in range(basis.rows))
                trace += square
                log_determinant += 2 * mpmath.mpf(value)
    log_determinant += 2 * (4 * mpmath.log(abs(mpmath.det(outputs))) + 4 * mpmath.log(abs(mpmath.det(inputs))))
    exact = (trace / variance - 16 - log_determinant + 16 * mpmath.log(variance)) / 2

    found = divergence(posterior, prior, variance)

    assert exact <= found <= exact + 1e-11 * (1 + abs(exact))


def test_every_parameter_is_in_the_divergence_once() -> None:
    for name, (make, _) in EVERY.items():
        model, initial = started(make())
        network, start = (StochasticNetwork(one, generator()) for one in (model, initial))
        found = divergence(network.posterior(), start.posterior(), np.exp(-6))

        count = sum(parameter.numel() for parameter in model.parameters())
        assert found == pytest.approx(0.5 * count * 0.1**2 / np.exp(-6), rel=1e-4), name


def test_better_of_two_grid_points_is_taken() -> None:
    posterior, grid = stochastic(nn.Linear(2, 3).double()).posterior(), PriorGrid()
    indices = grid.indices_near(grid.variance(40) * 0.999)

    best = best_grid_point(posterior, posterior, indices, 100, grid, 0.05)

    ends = [best_grid_point(posterior, posterior, [index], 100, grid, 0.05) for index in (40, 41)]
    assert indices == (40, 41)
    assert best.complexity == min(end.complexity for end in ends)


class Remembering(nn.Module):
    """Keeps a multiple of its weight from the first call."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.kept = nn.Linear(6, 2), None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.kept is None:
            self.kept = (2 * self.a.weight).detach()
        return inputs @ self.kept.T


def reading(read: Callable[[nn.Linear], torch.Tensor], *, own: bool) -> nn.Module:
    """A function that remembers a weight, of the network itself or of a layer that nobody registered."""
    layer = nn.Linear(6, 2)
    return Composed(lambda m, x: m.a(x) + x @ read(layer).T, a=layer if own else nn.Linear(6, 2))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Remembering, "only on the weights and the samples; two evaluations with the same weights"),
        (lambda: reading(lambda layer: layer.weight, own=True), "use its own weights; a copy reads the weights"),
        (lambda: reading(lambda layer: layer.weight.data, own=True), "must use its own weights; a copy reads"),
        (lambda: reading(lambda layer: layer.weight[:].detach(), own=True), "use its own weights; a copy reads"),
        (lambda: reading(lambda layer: layer.weight, own=False), "trainable tensors that are not among its parameters"),
        (lambda: two(lambda m, x: m.b(m.a(x - x.mean(0))), inputs=4), "depend on the other samples of a batch"),
        (lambda: two(lambda m, x: m.b(m.a(x) + torch.rand(4)), inputs=4), "two evaluations with the same weights"),
        (nn.Flatten, "a network with parameters; it has none"),
    ],
)
def test_networks_that_do_not_answer_from_their_weights_and_the_sample_are_refused(
    make: Callable[[], nn.Module], words: str
) -> None:
    model = make()
    with torch.random.fork_rng(), pytest.raises(UnsupportedNetwork, match=words):
        Sampler(StochasticNetwork(model, generator()), vectors().inputs, model)


def test_other_tensors_from_elsewhere_are_named() -> None:
    table = torch.ones(2, 6)
    model = Composed(lambda m, x: m.a(x) + x @ table.T, a=nn.Linear(6, 2))

    sampler = Sampler(StochasticNetwork(model, generator()), vectors().inputs, model)

    assert sampler.doubts == ("it reads a tensor of shape (2, 6) from elsewhere: changes of it cannot be detected",)


def test_constants_of_a_forward_pass_are_no_doubt() -> None:
    model = two(lambda m, x: m.b(m.a(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.ones(4)), inputs=4)

    assert Sampler(StochasticNetwork(model, generator()), vectors().inputs, model).doubts == ()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.LazyLinear(2), "every parameter must have its values; weight is lazy"),
        (nn.Linear(6, 2, device="meta"), "every parameter must have its values; weight is lazy or on the meta device"),
        (nn.Linear(6, 2, dtype=torch.complex64), "weights must be real; weight is torch.complex64"),
        (Composed(lambda m, x: m.a(x), a=nn.Linear(6, 2), kept=torch.ones(2, requires_grad=True) * 2), "be copyable"),
    ],
)
def test_networks_without_values_or_copies_are_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(HessmapError, match=words):
        StochasticNetwork(model, generator())


def test_weights_that_are_no_numbers_are_refused() -> None:
    model = nn.Linear(6, 2)
    with torch.no_grad():
        model.weight[0, 0] = torch.nan
    with pytest.raises(HessmapError, match="weights must be finite; weight has NaN or inf"):
        StochasticNetwork(model, generator())


def test_few_samples_are_all_answered_by_every_network() -> None:
    model, _ = started(WHOLE["layer norm"][0]())
    data = vectors(7)

    found = Sampler(StochasticNetwork(model, generator()), data.inputs, model).draws(Data(*data), 5, seed=0)

    assert (found.num_draws, found.samples_per_draw) == (5, 7)


class ChangesItsMind(nn.Module):
    """Uses its weight a second time from some call on."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.weights, self.calls = nn.Linear(6, 2), [], 0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        outputs = self.a(inputs)
        return outputs + inputs @ self.weights[0].T if self.calls > 400 else outputs


def test_second_use_that_comes_late_ends_the_draws_of_pairs() -> None:
    model = ChangesItsMind()
    model.weights.append(model.a.weight)
    data = vectors()
    sampler = Sampler(StochasticNetwork(model, generator()), data.inputs, model)
    assert sampler.kind == "pairs"
    sampler.pairs.network.calls = 1000

    assert sampler.draws(data, 50, seed=0).kind == "networks"
    assert sampler.kind == "networks"
