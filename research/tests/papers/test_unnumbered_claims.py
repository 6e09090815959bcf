"""What the papers state without a number: each claim against automatic differentiation, exact ranks or a search."""

from __future__ import annotations

from itertools import pairwise
from math import comb

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

import hessmap as hm
from hessmap.exact import generic_rank
from hessmap.measurement import effective_dimension
from hessmap.networks import Convolutional, FullyConnected
from hessmap.theory import predict_ranks
from hessmap.theory.fully_connected import linear
from hessmap.theory.functions import (
    diagonal_representation_cost,
    leaky_relu,
    linear_representation_cost,
    singular_value_upper_bound,
)

WIDTHS = [(3, 4, 2), (2, 3, 4, 3), (3, 2, 3, 2, 3)]


def drawn(widths: tuple[int, ...], num_samples: int = 7) -> tuple[list[Tensor], list[Tensor], Tensor, Tensor]:
    """Weights, a direction, inputs (as columns) and residuals of a linear network."""
    generator = torch.Generator().manual_seed(sum(widths))

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shapes = [(after, before) for before, after in pairwise(widths)]
    weights, direction = ([normal(*shape) for shape in shapes] for _ in range(2))
    return weights, direction, normal(widths[0], num_samples), normal(widths[-1], num_samples)


def product(weights: list[Tensor], size: int) -> Tensor:
    """W_n .. W_1; the identity where there are none."""
    found = torch.eye(size, dtype=torch.float64)
    for weight in weights:
        found = weight @ found
    return found


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_derivatives_of_linear_networks_are_products_of_weights(widths: tuple[int, ...]) -> None:
    """Paper 0, equations 1 and 2: dF / dW_k = W_L .. W_{k+1} (x) x^T W_1^T .., and the gradient of the squared loss."""
    weights, _, inputs, residuals = drawn(widths)
    x = inputs[:, 0]
    for k in range(len(weights)):
        above, below = product(weights[k + 1 :], widths[k + 1]), product(weights[:k], widths[0])

        def output(weight: Tensor, k: int = k) -> Tensor:
            return product([*weights[:k], weight, *weights[k + 1 :]], widths[0]) @ x

        jacobian = torch.func.jacrev(output)(weights[k])
        printed = torch.kron(above, (below @ x)[None, :]).reshape(jacobian.shape)
        torch.testing.assert_close(jacobian, printed)
        target = output(weights[k]) - residuals[:, 0]

        def risk(weight: Tensor, k: int = k, target: Tensor = target) -> Tensor:
            return 0.5 * (output(weight, k) - target).square().sum()

        gradient = torch.func.grad(risk)(weights[k])
        torch.testing.assert_close(gradient, (above.T @ residuals[:, :1]) @ (below @ x)[None, :])


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_the_range_of_the_outer_product_hessian_is_one_compressed_matrix(widths: tuple[int, ...]) -> None:
    """Paper 0, section 3.2: row block k of H_o v is W_{k+1}^T .. Delta Sigma W_1^T .., with one Delta for all k."""
    weights, direction, inputs, _ = drawn(widths)

    def outputs(*some: Tensor) -> Tensor:
        return product(list(some), widths[0]) @ inputs

    _, change = torch.func.jvp(outputs, tuple(weights), tuple(direction))
    _, pull = torch.func.vjp(outputs, *weights)
    delta = sum(
        product(weights[k + 1 :], widths[k + 1]) @ direction[k] @ product(weights[:k], widths[0])
        for k in range(len(weights))
    )
    assert isinstance(delta, Tensor)
    for k, found in enumerate(pull(change)):
        above, below = product(weights[k + 1 :], widths[k + 1]), product(weights[:k], widths[0])
        torch.testing.assert_close(found, above.T @ delta @ (inputs @ inputs.T) @ below.T)


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_the_range_of_the_functional_hessian_splits_at_the_layer(widths: tuple[int, ...]) -> None:
    """Paper 0, section 3.2: W_{k+1}^T .. Omega [Delta^<k]^T + [Delta^>k]^T Omega W_1^T .., by a double backward."""
    weights, direction, inputs, residuals = drawn(widths)
    omega = residuals @ inputs.T

    def value(*some: Tensor) -> Tensor:
        return (omega * product(list(some), widths[0])).sum()

    gradient = torch.func.grad(value, argnums=tuple(range(len(weights))))
    _, products = torch.func.jvp(gradient, tuple(weights), tuple(direction))
    for k, found in enumerate(products):
        before = torch.zeros(widths[k], widths[0], dtype=torch.float64)
        behind = torch.zeros(widths[-1], widths[k + 1], dtype=torch.float64)
        for other in range(len(weights)):
            if other < k:
                before += (
                    product(weights[other + 1 : k], widths[other + 1])
                    @ direction[other]
                    @ product(weights[:other], widths[0])
                )
            if other > k:
                behind += (
                    product(weights[other + 1 :], widths[other + 1])
                    @ direction[other]
                    @ product(weights[k + 1 : other], widths[k + 1])
                )
        above, below = product(weights[k + 1 :], widths[k + 1]), product(weights[:k], widths[0])
        torch.testing.assert_close(found, above.T @ omega @ before.T + behind.T @ omega @ below.T)


@pytest.mark.parametrize("widths", [(3, 4, 2), (4, 2, 3), (3, 3, 4, 3), (4, 2, 5, 3)], ids=str)
def test_rank_deficiency_is_the_parameters_of_a_network_with_all_widths_less_q(widths: tuple[int, ...]) -> None:
    """Paper 0, section 4.4; exact ranks of generic weights and residuals over GF(P)."""
    rank = generic_rank(FullyConnected(widths), "loss", "squared", seed=1).value
    q = min(widths)
    smaller = sum((before - q) * (after - q) for before, after in pairwise(widths))
    assert FullyConnected(widths).num_parameters - rank == smaller


def test_with_bias_rank_deficiency_fails_behind_a_bottleneck() -> None:
    """Paper 0, section 7.2: sum (M_i + 1 - q') (M_{i+1} - q') is right for wide layers, and not for 5-1-3."""
    for widths, is_right in (((3, 5, 4), True), ((2, 4, 4, 3), True), ((5, 1, 3), False)):
        network = FullyConnected(widths, bias=True)
        rank = generic_rank(network, "loss", "squared", seed=1).value
        q = min(widths[0] + 1, *widths[1:])
        smaller = sum((before + 1 - q) * (after - q) for before, after in pairwise(widths))
        assert (network.num_parameters - rank == smaller) is is_right, widths


@pytest.mark.parametrize("residual_rank", [1, 2, 3])
@pytest.mark.parametrize("widths", [(3, 4, 3), (4, 3, 4, 3)], ids=str)
def test_the_sum_of_both_ranks_exceeds_that_of_the_loss_by_2qs_less_q_squared(
    widths: tuple[int, ...], residual_rank: int
) -> None:
    """Paper 0, section 4.4, for q = min(q0, s)."""
    found = {
        part: generic_rank(FullyConnected(widths), part, "squared", residual_rank=residual_rank, seed=2).value
        for part in ("outer_product", "functional", "loss")
    }
    q = linear.active_bottleneck_rank(widths, residual_rank)
    assert found["outer_product"] + found["functional"] - found["loss"] == 2 * q * residual_rank - q * q


@pytest.mark.parametrize(("dim", "num_samples"), [(4, 8), (4, 16), (10, 20), (10, 40)])
def test_how_often_assumption_a2_holds(dim: int, num_samples: int) -> None:
    """Paper 0, S6.4: a unit keeps the rank of Gaussian inputs if d of the N samples are active, a binomial number."""
    generator = np.random.default_rng(dim + num_samples)
    exact = sum(comb(num_samples, number) for number in range(dim, num_samples + 1)) / 2**num_samples
    draws = 4000
    kept = 0
    for _ in range(draws):
        inputs, weight = generator.normal(size=(num_samples, dim)), generator.normal(size=dim)
        kept += np.linalg.matrix_rank(inputs[inputs @ weight > 0]) == dim
    assert abs(kept / draws - exact) < 4 * np.sqrt(exact * (1 - exact) / draws) + 1e-3
    assert round(exact, 4) == {(4, 8): 0.6367, (4, 16): 0.9894, (10, 20): 0.5881, (10, 40): 0.9997}[dim, num_samples]


def test_gulls_measure_tends_to_the_rank() -> None:
    """Papers 0 (introduction) and 1 (section 4): sum l / (l + e) as e goes to 0."""
    model = FullyConnected((4, 3, 2)).build(seed=0)
    data = hm.datasets.gaussian(num_samples=20, dim=4, output_dim=2, seed=1)
    spectrum = hm.spectrum(hm.outer_product_hessian(hm.Problem(model, "squared", *data)))
    rank = hm.numerical_rank(spectrum).value
    top = float(spectrum.eigenvalues.max())
    measures = [effective_dimension(spectrum, epsilon * top).value for epsilon in (1e-2, 1e-5, 1e-8)]
    assert measures == sorted(measures)
    assert abs(measures[-1] - rank) < 1e-3 < rank - measures[0]


def test_the_tangent_kernel_has_the_non_zero_spectrum_of_the_outer_product_hessian() -> None:
    """Paper 1, section 5.3, for a convolutional network under ReLU."""
    network = Convolutional(6, (1, 2), (3,), outputs=2, activation="relu")
    model = network.build(seed=0)
    data = hm.datasets.gaussian(num_samples=5, dim=6, output_dim=2, seed=1)
    problem = hm.Problem(model, "squared", *data)
    hessian = hm.spectrum(hm.outer_product_hessian(problem)).eigenvalues
    jacobian = hm.output_jacobian(problem).reshape(10, -1).numpy()
    kernel = np.sort(np.linalg.eigvalsh(jacobian @ jacobian.T))[::-1]
    scale = float(np.max(hessian)) / kernel[0]
    np.testing.assert_allclose(np.sort(hessian)[::-1][:10], scale * kernel, atol=1e-10 * float(np.max(hessian)))


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
@pytest.mark.parametrize(("dim", "filters", "outputs"), [(4, 3, 2), (3, 5, 4), (5, 2, 3)])
def test_a_filter_as_long_as_the_input_is_a_dense_layer(dim: int, filters: int, outputs: int, loss: str) -> None:
    """Paper 1: fully connected networks are the case k = d."""
    convolution = predict_ranks(Convolutional(dim, (1, filters), (dim,), outputs=outputs), loss)
    dense = predict_ranks(FullyConnected((dim, filters, outputs)), loss)
    for part in ("outer_product", "functional", "loss"):
        assert getattr(convolution, part).value == getattr(dense, part).value


@pytest.mark.parametrize("num_layers", [2, 3, 5])
def test_diagonal_networks_cost_the_quasi_norm_of_their_vector(num_layers: int) -> None:
    """Paper 3, section 1: a search over all diagonals whose product is w."""
    target = np.array([0.7, -2.0, 1.3])

    def cost(logarithms: np.ndarray) -> float:
        free = np.exp(logarithms.reshape(num_layers - 1, 3))
        last = np.abs(target) / free.prod(0)
        return float((free**2).sum() + (last**2).sum())

    starts = np.random.default_rng(num_layers).normal(size=(3, (num_layers - 1) * 3))
    least = min(minimize(cost, start).fun for start in starts)
    assert least == pytest.approx(diagonal_representation_cost(target, num_layers), rel=1e-6)


@pytest.mark.parametrize("num_layers", [2, 4, 7])
def test_the_second_singular_value_is_bounded_by_the_norm(num_layers: int) -> None:
    """Paper 3, section 4: any network's own squared norm bounds the Jacobian at any point; equal values meet it."""
    generator = torch.Generator().manual_seed(num_layers)
    for _ in range(20):
        weights = [torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(num_layers)]
        point = torch.randn(4, generator=generator, dtype=torch.float64)

        def network(x: Tensor, weights: list[Tensor] = weights) -> Tensor:
            for weight in weights[:-1]:
                x = (weight @ x).relu()
            return weights[-1] @ x

        values = torch.linalg.svdvals(torch.func.jacrev(network)(point))
        cost = float(sum(weight.square().sum() for weight in weights))
        for k in range(1, 5):
            assert float(values[k - 1]) <= singular_value_upper_bound(cost, num_layers, k) * (1 + 1e-12)
    equal = linear_representation_cost(np.diag([1.5, 1.5]), num_layers)
    assert singular_value_upper_bound(equal, num_layers) == pytest.approx(1.5)


@pytest.mark.parametrize(("right", "left"), [(1.0, 0.0), (2.0, -0.5), (0.5, 3.0), (-1.0, 0.25), (0.0, -2.0)])
def test_homogeneous_activations_are_leaky_relus_up_to_scales(right: float, left: float) -> None:
    """Paper 3, section 2: sigma(x) = c sigma_a(b x) with |a| < 1 and c a sign."""
    x = np.linspace(-2, 2, 41)
    sigma = np.where(x >= 0, right * x, left * x)
    if abs(right) > abs(left):
        c, b, a = np.sign(right), abs(right), left / right
    else:
        c, b, a = -np.sign(left), -abs(left), right / left
    assert abs(a) < 1
    np.testing.assert_allclose(c * leaky_relu(b * x, a), sigma, atol=1e-15)
