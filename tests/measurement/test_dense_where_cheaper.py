"""Where probes would take more products than the matrix has columns, the matrix is formed, and the record says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import hessmap as hm
from hessmap.errors import UnknownName
from hessmap.linalg.operator import DenseOperator, SymmetricOperator
from hessmap.maps.curvature_map.estimates import resolved_density
from hessmap.measurement.diagonal import exact_diagonal
from hessmap.measurement.probes import ProbedOperator
from hessmap.measurement.spectral_sums import negative_share
from hessmap.measurement.trace import block_traces
from hessmap.records import DensityCurve, Record, SpectralEstimate
from known_spectra import Counted, Floats, rotated

EPSILON = 0.3


def decaying(size: int) -> Floats:
    """Positive, over six decades: the logarithm is steep where few probes see anything."""
    return 10.0 ** -np.linspace(0, 6, size)


TRUTHS: dict[str, tuple[Callable[..., SpectralEstimate], Callable[[Floats], float]]] = {
    "trace": (hm.trace_estimate, lambda values: float(values.sum())),
    "norm": (hm.measurement.frobenius_norm_estimate, lambda values: float(np.linalg.norm(values))),
    "log determinant": (
        lambda matrix, **options: hm.measurement.log_determinant_estimate(matrix, 1e-4, **options),
        lambda values: float(np.log(values + 1e-4).sum()),
    ),
    "effective dimension": (
        lambda matrix, **options: hm.measurement.effective_dimension_estimate(matrix, EPSILON, **options),
        lambda values: float((np.abs(values) / (np.abs(values) + EPSILON)).sum()),
    ),
    "rank": (
        lambda matrix, **options: hm.measurement.rank_estimate(matrix, relative_tolerance=1e-3, **options),
        lambda values: int((np.abs(values) > 1e-3).sum()),
    ),
}


def assert_exact(found: SpectralEstimate, truth: float, num_products: int) -> None:
    assert (found.method, found.standard_error, found.num_probes, found.reached) == ("exact", 0.0, 0, True)
    assert found.value == pytest.approx(truth, rel=1e-10)
    assert found.interval[0] - 1e-10 * abs(truth) <= truth <= found.interval[1] + 1e-10 * abs(truth)
    assert found.num_products <= num_products + 8  # some more ask whether an operator is symmetric
    assert Record.from_json(found.to_json()) == found


@pytest.mark.parametrize("quantity", TRUTHS)
@pytest.mark.parametrize("size", [1, 49, 80])
def test_small_operators_take_one_product_a_dimension(quantity: str, size: int) -> None:
    measure, truth = TRUTHS[quantity]
    operator = Counted(rotated(decaying(size)))
    assert_exact(measure(operator), truth(decaying(size)), size)
    assert operator.count <= size + 8


@pytest.mark.parametrize("quantity", ["log determinant", "effective dimension", "rank"])
@pytest.mark.parametrize("size", [82, 200, 512])
def test_sums_over_the_spectrum_take_no_more_products_than_their_first_probes(quantity: str, size: int) -> None:
    measure, truth = TRUTHS[quantity]
    assert_exact(measure(Counted(rotated(decaying(size)))), truth(decaying(size)), size)
    probed = measure(Counted(rotated(decaying(size))), method="quadrature", max_products=1024)
    assert (probed.method, probed.num_probes >= 8) == ("quadrature, 64 steps", True)


@pytest.mark.parametrize("quantity", TRUTHS)
def test_probes_that_would_not_end_give_way_to_the_matrix(quantity: str) -> None:
    """A hundredth of the usual error takes ten thousand times as many probes."""
    measure, truth = TRUTHS[quantity]
    size, options = 600, {"relative_error": 1e-5, "max_products": 100_000}
    operator = Counted(rotated(decaying(size)))
    found = measure(operator, **options)
    assert_exact(found, truth(decaying(size)), size + 600)
    capped = measure(operator, relative_error=1e-5, max_products=599)
    assert (capped.method != "exact", capped.reached, capped.num_products <= 640) == (True, False, True)


def test_a_diagonal_gives_way_as_well() -> None:
    matrix = rotated(decaying(300))
    found = hm.measurement.diagonal_estimate(Counted(matrix), relative_error=1e-4)
    assert (found.method, found.relative_error, found.reached, found.num_probes) == ("exact", 0.0, True, 0)
    assert found.values == pytest.approx(matrix.diagonal(), rel=1e-12)
    assert found.num_products <= 300 + 80 + 8
    assert hm.measurement.diagonal_estimate(Counted(matrix), relative_error=1e-4, max_products=299).method == "hutch++"
    small = hm.measurement.diagonal_estimate(Counted(rotated(decaying(77))), relative_error=0.5)
    assert (small.method, small.num_products <= 77 + 8) == ("exact", True)


def test_traces_of_blocks_give_way_as_well() -> None:
    for size, options in ((12, {}), (40, {"relative_error": 1e-6, "max_products": 500})):
        matrix, numbers = rotated(decaying(size)), torch.arange(size) % 3
        found = block_traces(Counted(matrix), numbers, **options)
        expected = [matrix.diagonal()[np.arange(size) % 3 == block].sum() for block in range(3)]
        assert found.values == pytest.approx(np.array(expected), rel=1e-12)
        assert not found.standard_errors.any()
        assert_exact(found.whole, float(decaying(size).sum()), size + 32)


@pytest.mark.parametrize("size", [1, 82, 700])
def test_a_density_of_few_dimensions_is_that_of_all_eigenvalues(size: int) -> None:
    values = np.sort(np.cos(np.arange(size)))
    found = hm.density_estimate(Counted(rotated(values)))
    assert (found.method, found.num_probes, found.confidence) == ("exact", 0, 1.0)
    assert found.num_products <= size + 8
    assert found.nodes[0] == pytest.approx(values, abs=1e-12)
    assert np.ptp(found.upper - found.lower) <= 1e-9 * found.density.max()
    assert Record.from_json(found.to_json()) == found
    curve = DensityCurve.of_eigenvalues(values)
    assert (curve.num_probes, curve.confidence) == (found.num_probes, found.confidence)
    assert hm.density_estimate(Counted(rotated(values)), method="quadrature").num_probes == 16


def test_a_density_of_many_dimensions_is_probed() -> None:
    operator = Counted(np.diag(decaying(1025)))
    assert hm.density_estimate(operator, num_steps=16).method == "quadrature"
    assert hm.density_estimate(operator, num_steps=80, memory_budget=2**20).method == "quadrature"
    assert hm.density_estimate(Counted(np.diag(decaying(200))), method="exact", num_steps=2).num_products <= 208


def test_what_is_read_off_an_exact_density_is_exact() -> None:
    values = np.append(np.linspace(-1.0, 2.0, 90), 10.0)
    density = hm.density_estimate(rotated(values))
    share = negative_share(density)
    assert (share.method, share.standard_error, share.num_probes) == ("exact", 0.0, 0)
    assert share.value == pytest.approx(-values[values < 0].sum() / np.abs(values).sum(), rel=1e-12)
    dimension = hm.measurement.effective_dimension_estimate(density, EPSILON)
    assert_exact(dimension, TRUTHS["effective dimension"][1](values), 91)
    assert hm.measurement.rank_estimate(density, relative_tolerance=1e-6).value == 91
    assert dimension.asked is None


@pytest.mark.parametrize("size", [0, 3, 100])
def test_a_method_can_be_asked_for(size: int) -> None:
    matrix = rotated(decaying(size)) if size else np.zeros((0, 0))
    assert hm.measurement.frobenius_norm_estimate(matrix, method="exact").method == "exact"
    if size:
        assert hm.measurement.rank_estimate(matrix, method="exact").method == "exact"
        assert hm.measurement.frobenius_norm_estimate(matrix, method="hutch++").method == "hutch++"
    for measure in (hm.density_estimate, hm.measurement.frobenius_norm_estimate, hm.measurement.rank_estimate):
        with pytest.raises(UnknownName, match="method must be one of"):
            measure(np.eye(3), method="lanczos")


class Written(SymmetricOperator):
    """An operator that knows its diagonal, or does not."""

    def __init__(self, matrix: Floats, knows: bool) -> None:
        self.matrix, self.knows = torch.from_numpy(matrix), knows

    @property
    def size(self) -> int:
        return len(self.matrix)

    def matmat(self, vectors: Tensor) -> Tensor:
        return self.matrix @ vectors

    def exact_diagonal(self, max_products: float | None = None) -> Tensor | None:
        return self.matrix.diagonal() if self.knows else None


@pytest.mark.parametrize("scale", [1e-200, 1.0, 8.0, 1e200])
@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("products_before", [0, 1, 5])
def test_an_exact_diagonal_has_one_unit(scale: float, knows: bool, products_before: int) -> None:
    """Whether a product came first, which sets the unit of the products, or not."""
    matrix = scale * rotated(np.arange(1.0, 21.0))
    probed = ProbedOperator(Written(matrix, knows), 0)
    for _ in range(products_before):
        probed.product(probed.signs(2))
    found = exact_diagonal(probed.matrix, probed, "exact", 80)
    assert found.numpy() == pytest.approx(matrix.diagonal(), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 0.1, 1e160, 1e300])
def test_exact_records_are_in_the_unit_of_the_matrix(scale: float) -> None:
    matrix = scale * rotated(np.arange(1.0, 31.0))
    for given in (matrix, DenseOperator(torch.from_numpy(matrix)), Written(matrix, True), Written(matrix, False)):
        options: dict[str, Any] = {"method": "exact"}
        trace, diagonal = hm.trace_estimate(given, **options), hm.measurement.diagonal_estimate(given, **options)
        assert trace.value == pytest.approx(465 * scale, rel=1e-12)
        assert diagonal.values == pytest.approx(matrix.diagonal(), rel=1e-12)
        assert (diagonal.relative_error, diagonal.reached) == (0.0, True)
    probed = hm.measurement.diagonal_estimate(
        scale * rotated(np.arange(1.0, 101.0)), method="hutchinson", max_products=64
    )
    assert 0.01 < probed.relative_error < 1.0


def shown_width(curve: DensityCurve) -> float:
    """Of a density with one peak; smaller by far than the spread of one whose eigenvalues are told apart."""
    assert np.trapezoid(curve.density, curve.grid) == pytest.approx(1, abs=0.02)
    return float(1 / curve.density.max())


@pytest.mark.parametrize("size", [5, 200])
@pytest.mark.parametrize("value", [1.0, -3.0, 1e-150, 1e150])
def test_a_spread_of_rounding_is_no_width(size: int, value: float) -> None:
    values = np.linalg.eigvalsh(rotated(np.full(size, value)))
    curve = DensityCurve.of_eigenvalues(values)
    assert shown_width(curve) > 1e-2 * abs(value)
    for method in ("exact", "quadrature"):
        assert hm.density_estimate(rotated(np.full(size, value)), method=method).width > 1e-3 * abs(value)
    apart = value * (1 + 1e-9 * np.arange(size))
    assert shown_width(DensityCurve.of_eigenvalues(apart)) < 1e-6 * abs(value)
    assert DensityCurve.of_eigenvalues(apart).width < 1e-6 * abs(value)
    assert hm.density_estimate(np.diag(apart)).width < 1e-6 * abs(value)


@pytest.mark.parametrize("lowest", [0.9, 0.3, 0.1, 0.01, 0.0, -0.5])
def test_a_density_is_on_the_scale_that_resolves_more(lowest: float) -> None:
    """No peak of two clusters is wider than 9% of its eigenvalue, or than the 64th part of the range."""
    values = np.r_[np.full(20, lowest), np.full(20, 1.0)]
    curve = DensityCurve.of_eigenvalues(values)
    assert np.trapezoid(curve.density, curve.grid) == pytest.approx(1, abs=0.02)
    for value in (lowest, 1.0):
        widest = max(0.09 * abs(value), 1e-6)
        if lowest >= 0.3:
            widest = min(widest, 1.01 * (1.0 - lowest) / 64)
        peak = np.interp(value, curve.grid, curve.density)
        assert peak > 0.95 * 0.5 / (widest * np.sqrt(2 * np.pi))


@pytest.mark.parametrize("values", [[2.0, 2.1, 2.2], [-5.0, 1.0, 100.0], [3.0] * 4])
def test_an_exact_density_is_resolved_as_all_eigenvalues_are(values: list[float]) -> None:
    found = resolved_density(hm.density_estimate(np.diag(values), num_probes=2, num_steps=8))
    assert found == DensityCurve.of_eigenvalues(np.sort(values))
    assert found.num_probes == 0
