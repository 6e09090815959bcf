"""The explicit kernel of a deep linear loss Hessian, and the spectrum without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linear_networks import drawn

from hessmap.errors import UnsupportedNetwork
from hessmap.measurement import numerical_rank, spectrum
from hessmap_research.deep_linear import (
    DeepLinear,
    DeepLinearHessian,
    explicit_kernel,
    kernel_residual,
    reduce_deep_linear,
)
from hessmap_research.deep_linear.reduction import reduced_spectrum

WIDTHS = {
    "bottleneck at the input": (3, 6, 5, 4),
    "bottleneck inside": (6, 5, 3, 4, 7),
    "bottleneck at the output": (8, 6, 5, 3),
    "bottleneck in the first hidden layer": (6, 2, 5, 4),
    "tie of input and output": (4, 7, 6, 4),
    "tie of two hidden layers": (6, 3, 5, 3, 6),
    "all equal": (4, 4, 4, 4),
    "one hidden layer": (7, 5, 4),
    "no hidden layer": (5, 3),
    "width one": (3, 1, 4),
}
each_network = pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS.keys())


def generic_rank(widths: tuple[int, ...]) -> int:
    """q (d + K - q) + 2 q M - (L - 1) q^2 for full input and residual rank."""
    q = min(widths)
    return q * (widths[0] + widths[-1] - q) + 2 * q * sum(widths[1:-1]) - (len(widths) - 2) * q * q


def with_omega(network: DeepLinear, omega: torch.Tensor) -> DeepLinear:
    return DeepLinear(network.weights, None, network.input_second_moment, omega)


def assert_same_spectrum(network: DeepLinear, tolerance: float = 1e-13, **options: bool) -> None:
    found = reduced_spectrum(reduce_deep_linear(network, **options))
    known = spectrum(DeepLinearHessian(network).to_dense())
    assert len(found.eigenvalues) == len(known.eigenvalues)
    assert (np.diff(found.eigenvalues) <= 0).all()
    assert np.abs(found.eigenvalues - known.eigenvalues).max() <= tolerance * known.norm


@each_network
def test_reduced_spectrum_equals_the_dense_one(widths: tuple[int, ...]) -> None:
    assert_same_spectrum(drawn(widths).network)


@each_network
def test_reduced_matrix_has_the_size_of_the_rank(widths: tuple[int, ...]) -> None:
    network = drawn(widths).network
    reduction = reduce_deep_linear(network)
    assert reduction.is_reduced
    assert len(reduction.matrix) == generic_rank(widths)
    assert reduction.num_zeros == network.num_parameters - generic_rank(widths)
    assert reduction.kernel_residual < 1e-14
    assert torch.equal(reduction.matrix, reduction.matrix.T)
    found = reduced_spectrum(reduction)
    assert found.method == "reduced by the explicit kernel"
    assert found.num_zeros == reduction.num_zeros
    assert found.kernel_residual == reduction.kernel_residual
    assert found.smallest_kept > 1e-9 * found.norm
    assert int((found.eigenvalues == 0).sum()) == reduction.num_zeros
    rank = numerical_rank(found)
    assert (rank.value, rank.decidable) == (generic_rank(widths), True)


@each_network
def test_kernel_vectors_are_orthonormal_and_mapped_to_zero(widths: tuple[int, ...]) -> None:
    network = drawn(widths).network
    dense = DeepLinearHessian(network).to_dense()
    for layer, (_, place) in zip(explicit_kernel(network), network.layout, strict=True):
        outputs, inputs = layer.null_vectors
        directions = torch.kron(outputs, inputs)
        assert directions.shape[1] == layer.dimension
        assert torch.allclose(directions.T @ directions, torch.eye(layer.dimension, dtype=torch.float64), atol=1e-14)
        assert torch.linalg.matrix_norm(dense[:, place] @ directions) <= 1e-14 * torch.linalg.matrix_norm(dense, 2)


@pytest.mark.parametrize("relative", [1e-3, 1e-6, 1e-10])
def test_the_check_bites_when_the_kernel_belongs_to_another_omega(relative: float) -> None:
    network = drawn((8, 6, 5, 3)).network
    noise = torch.randn(3, 8, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    omega = network.residual_input_moment
    other = with_omega(network, omega + relative * noise * omega.abs().max())
    kernel = explicit_kernel(other)
    assert kernel_residual(network, kernel) > relative / 10
    reduction = reduce_deep_linear(network, kernel)
    assert not reduction.is_reduced
    assert "||H K|| / ||H||" in reduction.obstacle
    assert reduction.num_zeros == 0
    found, known = reduced_spectrum(reduction), spectrum(DeepLinearHessian(network).to_dense())
    assert found == replace(known, method=f"dense: {reduction.obstacle}")


@each_network
def test_the_residual_bounds_the_true_one(widths: tuple[int, ...]) -> None:
    network = drawn(widths).network
    noise = torch.randn(*network.residual_input_moment.shape, generator=torch.Generator().manual_seed(9)).double()
    kernel = explicit_kernel(with_omega(network, network.residual_input_moment + 1e-3 * noise))
    dense = DeepLinearHessian(network).to_dense()
    columns = [
        dense[:, place] @ torch.kron(*layer.null_vectors)
        for layer, (_, place) in zip(kernel, network.layout, strict=True)
    ]
    true = torch.linalg.matrix_norm(torch.cat(columns, dim=1)) / torch.linalg.matrix_norm(dense, 2)
    assert float(true) * (1 - 1e-9) <= kernel_residual(network, kernel) <= 100 * float(true) + 1e-14


def test_a_network_with_bias_falls_back_to_dense() -> None:
    network = drawn((5, 4, 3), bias=True).network
    with pytest.raises(UnsupportedNetwork, match="explicit kernel is known for networks without bias"):
        explicit_kernel(network)
    reduction = reduce_deep_linear(network)
    assert "without bias" in reduction.obstacle
    assert torch.equal(reduction.matrix, DeepLinearHessian(network).to_dense())


def test_inputs_that_do_not_span_their_space_fall_back_to_dense() -> None:
    network = drawn((8, 6, 5, 3), num_samples=6).network
    reduction = reduce_deep_linear(network)
    assert reduction.obstacle == "the inputs have rank 6 in 8 dimensions"
    assert_same_spectrum(network)


@pytest.mark.parametrize("residual_rank", [0, 1, 2])
def test_a_residual_of_small_rank_falls_back_to_dense(residual_rank: int) -> None:
    network = drawn((8, 6, 5, 3)).network
    left, values, right = torch.linalg.svd(network.residual_input_moment, full_matrices=False)
    values[residual_rank:] = 0
    network = with_omega(network, (left * values) @ right)
    reduction = reduce_deep_linear(network)
    assert reduction.obstacle == f"the residual moment has rank {residual_rank}, the bottleneck 3"
    assert_same_spectrum(network)


@pytest.mark.parametrize(("num_samples", "residual_share"), [(6, 1.0), (2, 1.0), (40, 0.0)])
def test_a_partial_kernel_keeps_the_spectrum_where_it_is_allowed(num_samples: int, residual_share: float) -> None:
    network = drawn((8, 6, 5, 3), num_samples=num_samples).network
    network = with_omega(network, residual_share * network.residual_input_moment)
    reduction = reduce_deep_linear(network, allow_partial=True)
    assert reduction.is_reduced
    assert reduction.num_zeros == (8 - 3) * (6 - 3) + (6 - 3) * (5 - 3)
    assert_same_spectrum(network, allow_partial=True)


def test_weights_of_maximal_rank_whose_product_is_not_keep_their_spectrum() -> None:
    """Singh, Bachmann & Hofmann (2021) assume maximal rank of each weight; here the products lose rank."""
    first = torch.tensor([[1.0, 0], [0, 1], [0, 0]], dtype=torch.float64)
    second = torch.tensor([[1.0, 0, 0], [0, 0, 1]], dtype=torch.float64)
    third = torch.tensor([[1.0, 0], [0, 0], [0, 1]], dtype=torch.float64)
    last = torch.tensor([[1.0, 0, 0], [0, 1, 0]], dtype=torch.float64)
    case = replace(drawn((2, 3, 2, 3, 2)), weights=[first, second, third, last])
    outer = DeepLinearHessian(case.network, "outer_product")
    assert numerical_rank(outer.to_dense()).value == 3
    assert_same_spectrum(case.network)


def test_a_residual_tuned_to_lose_rank_shows_in_the_smallest_kept_eigenvalue() -> None:
    """Net 1-1-1 with Omega = -2 w1 w2 Sigma has rank 1, although generic weights and residuals give 2."""
    weights = tuple(torch.tensor([[value]], dtype=torch.float64) for value in (1.5, 0.5))
    second = torch.tensor([[2.0]], dtype=torch.float64)
    network = DeepLinear(weights, None, second, -2 * 1.5 * 0.5 * second)
    found = reduced_spectrum(reduce_deep_linear(network))
    assert found.num_zeros == 0
    assert found.smallest_kept <= 1e-15
    assert numerical_rank(found).value == 1


def test_a_vanishing_hessian_has_only_zeros() -> None:
    case = drawn((5, 4, 3, 2))
    network = replace(case, weights=[torch.zeros_like(weight) for weight in case.weights]).network
    for allow_partial in (False, True):
        found = reduced_spectrum(reduce_deep_linear(network, allow_partial=allow_partial))
        assert not found.eigenvalues.any()
        assert len(found.eigenvalues) == network.num_parameters
        assert numerical_rank(found).value == 0


@pytest.mark.parametrize("factor", [1e-10, 1e6, 1e12])
def test_the_size_of_the_residual_does_not_make_the_check_bite(factor: float) -> None:
    network = drawn((8, 6, 5, 3)).network
    network = with_omega(network, factor * network.residual_input_moment)
    assert reduce_deep_linear(network).is_reduced
    assert_same_spectrum(network)


def test_the_error_bound_covers_the_difference_to_the_dense_spectrum() -> None:
    network = drawn((16, 12, 10, 5)).network
    found, known = reduced_spectrum(reduce_deep_linear(network)), spectrum(DeepLinearHessian(network).to_dense())
    assert found.eigenvalue_error is not None
    assert known.eigenvalue_error is not None
    difference = np.abs(found.eigenvalues - known.eigenvalues).max()
    assert difference <= found.eigenvalue_error + known.eigenvalue_error


def test_the_error_bound_includes_what_the_kernel_leaves() -> None:
    reduction = reduce_deep_linear(drawn((8, 6, 5, 3)).network)
    found = reduced_spectrum(replace(reduction, kernel_residual=1e-3))
    assert found.eigenvalue_error == pytest.approx(1e-3 * found.norm, rel=1e-9)


@given(widths=st.lists(st.integers(1, 6), min_size=2, max_size=5), seed=st.integers(0, 10**6))
def test_any_widths_keep_their_spectrum(widths: list[int], seed: int) -> None:
    network = drawn(widths, seed=seed).network
    reduction = reduce_deep_linear(network)
    assert reduction.is_reduced
    assert len(reduction.matrix) == generic_rank(tuple(widths))
    assert_same_spectrum(network)
