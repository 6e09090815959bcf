"""Closed-form Hessians of deep linear networks against automatic differentiation."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from linear_networks import Drawn, drawn, relative_error

from hessmap.errors import InvalidInput, UnknownName
from hessmap.networks import FullyConnected
from hessmap.records import PARTS, Part
from hessmap_research.deep_linear import DeepLinear, DeepLinearHessian

WIDTHS = [(3, 2), (4, 3, 2), (2, 5, 3), (3, 4, 2, 3), (5, 2, 4, 3), (3, 2, 4, 3, 2), (1, 1, 1), (2, 1, 3, 1, 2)]

each_network = pytest.mark.parametrize("widths", WIDTHS, ids=lambda widths: "-".join(map(str, widths)))
with_and_without_bias = pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
each_part = pytest.mark.parametrize("part", PARTS)


@each_network
@with_and_without_bias
@each_part
def test_dense_form_equals_automatic_differentiation(widths: tuple[int, ...], bias: bool, part: Part) -> None:
    case = drawn(widths, bias)
    found = DeepLinearHessian(case.network, part).to_dense()
    if part == "functional" and len(widths) == 2:
        assert not found.any()
        return
    assert relative_error(found, case.hessian(part)) < 1e-12


@each_network
@with_and_without_bias
@each_part
def test_products_equal_the_dense_form(widths: tuple[int, ...], bias: bool, part: Part) -> None:
    """Two derivations: products differentiate the gradient along a direction, the dense form writes out blocks."""
    operator = DeepLinearHessian(drawn(widths, bias).network, part)
    vectors = torch.randn(operator.size, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    dense = operator.to_dense()
    assert (operator @ vectors - dense @ vectors).abs().max() <= 1e-13 * max(1.0, float(dense.abs().max()))
    assert (operator @ vectors[:, 0] - dense @ vectors[:, 0]).abs().max() <= 1e-13 * max(1.0, float(dense.abs().max()))


@each_network
@with_and_without_bias
def test_dense_forms_are_symmetric_to_the_last_digit_and_add_up(widths: tuple[int, ...], bias: bool) -> None:
    network = drawn(widths, bias).network
    outer, functional, loss = (DeepLinearHessian(network, part).to_dense() for part in PARTS)
    for matrix in (outer, functional, loss):
        assert torch.equal(matrix, matrix.T)
    assert relative_error(outer + functional, loss) < 1e-15


@with_and_without_bias
def test_layout_is_that_of_the_built_network(bias: bool) -> None:
    widths = (4, 3, 5, 2)
    model = FullyConnected(widths, bias=bias).build(seed=0)
    layout = drawn(widths, bias).network.layout
    assert layout.shapes == tuple((name, tuple(value.shape)) for name, value in model.named_parameters())


def test_blocks_are_cut_by_name() -> None:
    operator = DeepLinearHessian(drawn((4, 3, 2), bias=True).network)
    dense = operator.to_dense()
    assert relative_error(operator.block("0.bias").to_dense(), dense[12:15, 12:15]) < 1e-14
    assert relative_error(operator.block("0.weight", "2.bias").to_dense(), dense[:12, 21:23]) < 1e-14


@with_and_without_bias
def test_functional_hessian_of_residuals_near_1e_10_is_right_relative_to_itself(bias: bool) -> None:
    """Integers everywhere, and residuals of a few bits times 2^-33, so that outputs - targets has no rounding."""
    generator = torch.Generator().manual_seed(2)
    widths, num_samples = (4, 3, 5, 2), 8

    def integers(*shape: int) -> torch.Tensor:
        return torch.randint(-3, 4, shape, generator=generator).double()

    weights = [integers(after, before) for before, after in pairwise(widths)]
    biases = [integers(after) for after in widths[1:]] if bias else None
    masses = torch.full((num_samples,), 1 / num_samples, dtype=torch.float64)
    plain = Drawn(weights, biases, integers(num_samples, 4), torch.zeros(num_samples, 2, dtype=torch.float64), masses)
    outputs, residuals = plain.outputs(plain.parameters), integers(num_samples, 2)
    known = Drawn(weights, biases, plain.inputs, outputs - residuals, masses).hessian("functional")
    tiny = Drawn(weights, biases, plain.inputs, outputs - 2.0**-33 * residuals, masses).network
    found = DeepLinearHessian(tiny, "functional")
    assert relative_error(2.0**33 * found.to_dense(), known) < 1e-10
    assert relative_error(2.0**33 * found.matmat(torch.eye(found.size, dtype=torch.float64)), known) < 1e-10


@with_and_without_bias
@pytest.mark.parametrize("widths", [(4, 3, 2), (9, 8, 5, 7)])
def test_scale_is_the_norm_of_the_loss_hessian_for_every_part(widths: tuple[int, ...], bias: bool) -> None:
    network = drawn(widths, bias).network
    norm = float(torch.linalg.matrix_norm(DeepLinearHessian(network).to_dense(), 2))
    for part in PARTS:
        assert DeepLinearHessian(network, part).scale == pytest.approx(norm, rel=1e-8)


def test_norm_is_found_where_both_signs_are_extreme() -> None:
    """With a large Omega the spectrum is nearly symmetric about zero: two extreme eigenvalues of equal magnitude."""
    case = drawn((12, 9, 6)).network
    network = DeepLinear(case.weights, None, case.input_second_moment, 1e8 * case.residual_input_moment)
    eigenvalues = torch.linalg.eigvalsh(DeepLinearHessian(network).to_dense())
    assert DeepLinearHessian(network).norm == pytest.approx(float(eigenvalues.abs().max()), rel=1e-8)


def test_moments_are_means_with_the_weights_of_the_samples() -> None:
    case = drawn((3, 2), bias=True)
    network = case.network
    extended = torch.cat([case.inputs, torch.ones(len(case.inputs), 1, dtype=torch.float64)], dim=1)
    residuals = case.outputs(case.parameters) - case.targets
    assert torch.allclose(network.input_second_moment, torch.einsum("n,ni,nj->ij", case.masses, extended, extended))
    assert torch.allclose(network.residual_input_moment, torch.einsum("n,nk,nj->kj", case.masses, residuals, extended))
    uniform = DeepLinear.from_data(case.weights, case.biases, case.inputs, case.targets)
    assert torch.allclose(uniform.input_second_moment, extended.T @ extended / len(extended))


def test_data_that_do_not_fit_the_network_are_refused() -> None:
    weights, three, four = [torch.eye(2).double()], torch.ones(3, 2).double(), torch.ones(4, 2).double()
    with pytest.raises(InvalidInput, match=r"one sample a row; got shapes \(3, 2\) and \(4, 2\)"):
        DeepLinear.from_data(weights, None, three, four)
    with pytest.raises(
        InvalidInput, match=r"must contain 2 and 2 numbers per sample.* got shapes \(3, 1\) and \(3, 2\)"
    ):
        DeepLinear.from_data(weights, None, three[:, :1], three)
    with pytest.raises(InvalidInput, match="3 numbers, none negative, that sum to 1; got shape .* and sum 3"):
        DeepLinear.from_data(weights, None, three, three, torch.ones(3).double())


def test_the_norm_of_a_vanishing_hessian_is_zero() -> None:
    """At the origin of three layers every second derivative vanishes."""
    weights = [torch.zeros(9, 9, dtype=torch.float64)] * 3
    network = DeepLinear.from_data(weights, None, torch.ones(4, 9).double(), torch.ones(4, 9).double())
    assert DeepLinearHessian(network).norm == 0


def test_what_is_no_deep_linear_network_is_refused() -> None:
    eye = torch.eye(2, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="at least one layer; got no weights"):
        DeepLinear((), None, eye, eye)
    with pytest.raises(InvalidInput, match=r"the one before gives; weights\[0\] gives 2 and weights\[1\] takes 3"):
        DeepLinear((eye, torch.ones(2, 3, dtype=torch.float64)), None, eye, eye)
    with pytest.raises(InvalidInput, match=r"weights\[0\] must be float64; got torch\.float32"):
        DeepLinear((eye.float(),), None, eye, eye)
    with pytest.raises(InvalidInput, match=r"biases\[0\] must have 2 entries; got shape \(3,\)"):
        DeepLinear((eye,), (torch.ones(3, dtype=torch.float64),), eye, eye)
    with pytest.raises(InvalidInput, match="every layer must have a bias or none; got 0 biases"):
        DeepLinear((eye,), (), eye, eye)
    with pytest.raises(InvalidInput, match=r"input_second_moment must have shape \(2, 2\); got \(3, 3\)"):
        DeepLinear((eye,), None, torch.eye(3, dtype=torch.float64), eye)
    with pytest.raises(InvalidInput, match="residual_input_moment must be finite; there is NaN or inf"):
        DeepLinear((eye,), None, eye, eye * torch.nan)
    with pytest.raises(InvalidInput, match="input_second_moment must be symmetric; it is not"):
        DeepLinear((eye,), None, torch.ones(2, 2, dtype=torch.float64).tril(), eye)
    with pytest.raises(UnknownName, match="part must be one of outer_product, functional, loss; got 'fisher'"):
        DeepLinearHessian(DeepLinear((eye,), None, eye, eye), "fisher")  # type: ignore[arg-type]
