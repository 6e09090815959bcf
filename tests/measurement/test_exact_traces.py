"""Traces and diagonals that need no probe, because the structure of an operator tells them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from cases import Residual, chain
from hessmap.errors import InvalidInput
from hessmap.linalg.operator import DenseOperator
from hessmap.measurement.diagonal import exact_diagonal
from hessmap.measurement.probes import ProbedOperator
from hessmap.records import Record


def samples(count: int = 40, width: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 4, (count,), generator=generator)


def network(activation: type[nn.Module] = nn.ReLU, width: int = 12) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return chain(8, width, 10, 4, activation=activation).double()


@pytest.mark.parametrize("method", ["auto", "exact"])
@pytest.mark.parametrize("kind", [hm.Problem])
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
def test_the_trace_of_a_network_of_layers_is_exact_without_a_product(kind, activation, method: str) -> None:
    hessian = hm.loss_hessian(kind(network(activation), "cross_entropy", *samples(), l2=0.01))
    truth = hm.loss_hessian(hm.Problem(network(activation), "cross_entropy", *samples(), l2=0.01)).to_dense().diagonal()
    trace, diagonal = (
        hm.trace_estimate(hessian, method=method),
        hm.measurement.diagonal_estimate(hessian, method=method),
    )
    for found in (trace, diagonal):
        assert (found.method, found.num_probes, found.num_products, found.reached) == ("exact", 0, 0, True)
        assert found.provenance.data_hash == hessian.problem.data_hash
        assert Record.from_json(found.to_json()) == found
    assert trace.value == pytest.approx(float(truth.sum()), rel=1e-13)
    assert trace.standard_error == 0.0
    assert trace.interval == (trace.value, trace.value)
    assert np.abs(diagonal.values - truth.numpy()).max() <= 1e-13 * float(truth.abs().max())
    assert (diagonal.relative_error, float(np.abs(diagonal.standard_errors).max())) == (0.0, 0.0)


@pytest.mark.parametrize("method", ["hutchinson", "hutch++"])
def test_a_method_with_probes_still_probes(method: str) -> None:
    hessian = hm.loss_hessian(hm.Problem(network(), "cross_entropy", *samples()))
    exact = hm.trace_estimate(hessian)
    found = hm.trace_estimate(hessian, method=method, relative_error=0.05)
    assert (found.method, found.num_products > 0, found.standard_error > 0) == (method, True, True)
    assert abs(found.value - exact.value) < 5 * found.standard_error
    assert hm.measurement.diagonal_estimate(hessian, method=method).num_probes > 0


def test_blocks_and_the_other_hessians_are_exact_as_well() -> None:
    problem = hm.Problem(network(nn.Tanh), "cross_entropy", *samples())
    whole = hm.trace_estimate(hm.loss_hessian(problem)).value
    blocks = [hm.trace_estimate(hm.loss_hessian(problem).block(name)) for name in problem.layout.names]
    parts = [hm.trace_estimate(make(problem)) for make in (hm.outer_product_hessian, hm.functional_hessian)]
    for found in (blocks, parts):
        assert {one.method for one in found} == {"exact"}
        assert sum(one.num_products for one in found) == 0
        assert sum(one.value for one in found) == pytest.approx(whole, rel=1e-12)


def test_known_eigenpairs_are_not_needed_where_the_trace_is_exact() -> None:
    hessian = hm.loss_hessian(hm.Problem(network(), "cross_entropy", *samples()))
    pairs = hm.top_eigenpairs(hessian, 3)
    assert hm.trace_estimate(hessian, known=pairs) == hm.trace_estimate(hessian)
    probed = hm.trace_estimate(hessian, known=pairs, method="hutch++")
    assert (probed.method, probed.num_products == probed.num_probes) == ("hutch++", True)


def test_probes_where_the_structure_does_not_tell_or_costs_more() -> None:
    inputs, labels = samples(30, 5)
    residual = hm.loss_hessian(hm.Problem(Residual().double().eval(), "cross_entropy", inputs, labels))
    assert hm.trace_estimate(residual, relative_error=0.2).method != "exact"
    assert hm.measurement.diagonal_estimate(residual, relative_error=0.5).method == "hutch++"
    wide = hm.loss_hessian(hm.Problem(network(nn.Tanh, width=400), "cross_entropy", *samples()))
    found = hm.trace_estimate(
        wide, relative_error=0.5
    )  # 400 pull-backs of a second derivative are more than 80 products
    assert found.method != "exact"
    exact = hm.trace_estimate(wide, method="exact")
    assert (exact.method, exact.num_products) == ("exact", 0)
    assert abs(found.value - exact.value) < 5 * found.standard_error


@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh, nn.GELU])
def test_single_precision_tells_its_rounding(activation: type[nn.Module]) -> None:
    inputs, labels = samples(2000)
    model = network(activation, width=60)
    exact = hm.trace_estimate(hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels)), method="exact")
    narrow = hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels, dtype=torch.float32))
    found, diagonal = (
        hm.trace_estimate(narrow, method="exact"),
        hm.measurement.diagonal_estimate(narrow, method="exact"),
    )
    wide = hm.measurement.diagonal_estimate(
        hm.loss_hessian(hm.Problem(model, "cross_entropy", inputs, labels)), method="exact"
    )
    assert found.num_products == 0
    assert 0 < found.standard_error <= 1e-4 * abs(found.value)
    # The copy's weights are rounded as well, which is no error of the estimate.
    assert abs(found.value - exact.value) <= 4 * found.standard_error
    assert np.linalg.norm(diagonal.values - wide.values) <= 4 * np.linalg.norm(diagonal.standard_errors)
    assert diagonal.reached


def test_operators_that_are_written_down_need_no_product() -> None:
    matrix = torch.randn(100, 100, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    dense = DenseOperator(matrix + matrix.T)
    assert hm.trace_estimate(dense).value == pytest.approx(2 * float(matrix.trace()), rel=1e-13)
    assert hm.trace_estimate(dense).num_products == 0
    assert hm.trace_estimate((matrix + matrix.T).numpy()).method == "hutch++"
    broken = (matrix + matrix.T).fill_diagonal_(float("nan"))
    with pytest.raises(InvalidInput, match="the products of an operator must be finite"):
        hm.trace_estimate(DenseOperator(broken))


def test_a_diagonal_by_products_counts_them() -> None:
    matrix = np.diag(np.concatenate([np.zeros(20), np.arange(20.0)]))
    probed = ProbedOperator(matrix, 0)
    found = exact_diagonal(matrix, probed, "exact", 80)
    assert found is not None
    assert np.array_equal(found.numpy(), matrix.diagonal())
    assert probed.num_products == 40
    assert exact_diagonal(matrix, ProbedOperator(matrix, 0), "hutchinson", 80) is None
