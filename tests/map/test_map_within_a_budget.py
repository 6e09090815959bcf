"""Maps with few products: every layer has a top eigenvalue, no error exceeds its number, outliers stand apart."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor, nn

import hessmap as hm
from hessmap.maps.curvature_map import estimates
from hessmap.maps.curvature_map.estimates import resolved_density
from hessmap.maps.curvature_map.plan import ProductBudget
from hessmap.measurement import density_estimate
from hessmap.records import CurvatureMap, DensityCurve, Record, SharpnessMeasurement, SpectralEstimate, share_text
from hessmap.records.spectra import number_with_error
from hessmap.views.plots.spectrum import density_figure, spectrum_figure
from hessmap.views.tables import map_view

_NUMBER = r"(-?\d[\d,]*(?:\.\d+)?(?:e[-+]\d+)?)"
NUMBERS = re.compile(rf"{_NUMBER}%? \(?± {_NUMBER}")


class Residual(nn.Module):
    """Convolutions with normalisation around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 4)
        self.inner = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.last = nn.Linear(4, 3)

    def forward(self, images: Tensor) -> Tensor:
        found = torch.relu(self.norm(self.stem(images)))
        return self.last((found + torch.relu(self.inner(found))).mean((2, 3)))


class Transformer(nn.Module):
    """One layer of attention on token ids, with an output at every token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 9)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embed(tokens)))


def chain(depth: int = 9) -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(5, 6), nn.Tanh()]
    for _ in range(depth):
        layers += [nn.Linear(6, 6), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(6, 3))


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(24, 3, 6, 6), torch.arange(24) % 3


def tokens() -> tuple[Tensor, Tensor]:
    ids = torch.randint(9, (16, 5))
    return ids, (ids + 1) % 9


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]] = {
    "convolutions": (Residual, images),
    "attention": (Transformer, tokens),
    "many layers": (chain, lambda: (torch.randn(20, 5), torch.arange(20) % 3)),
}


class CountedBudget(ProductBudget):
    """A budget whose clock counts products, one second each."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.now = 0.0
        super().__init__(*arguments, **{**options, "clock": lambda: self.now})

    def spend(self, products: int, seconds: float) -> None:
        self.now += products
        super().spend(products, float(products))


def map_of(name: str, num_products: float, monkeypatch: pytest.MonkeyPatch, **options: Any) -> CurvatureMap:
    """The map from about so many products, whatever the machine."""
    monkeypatch.setattr(estimates, "ProductBudget", CountedBudget)
    monkeypatch.setattr("hessmap.maps.curvature_map.estimates.seconds_per_product", lambda hessian: 1.0)
    monkeypatch.setattr("hessmap.maps.curvature_map.estimates.time.perf_counter", lambda: 0.0)
    return hm.map(problem(name), dense=False, seconds=num_products, **options)


def problem(name: str) -> hm.Problem:
    torch.manual_seed(0)
    build, data = CASES[name]
    model = build()
    return hm.Problem(model, "cross_entropy", *data())


@pytest.mark.parametrize("num_products", [1, 70, 250])
@pytest.mark.parametrize("name", CASES)
def test_every_layer_has_a_top_eigenvalue_from_few_products(
    name: str, num_products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = map_of(name, num_products, monkeypatch)
    given = problem(name)
    whole = hm.loss_hessian(given).to_dense()
    start, work = 0, found.work
    assert work is not None
    few = 3 * len(found.network.layers) + 60  # three for each layer, and those that no stage can do without
    assert work.num_products <= max(num_products + 60, few)
    for layer, block in zip(found.network.layers, stages_blocks(given), strict=True):
        top = float(torch.linalg.eigvalsh(whole[block][:, block])[-1])
        assert layer.top_eigenvalue is not None
        assert layer.top_residual is not None
        assert isinstance(layer.top_converged, bool)
        assert layer.top_eigenvalue <= top * (1 + 1e-6) + 1e-12
        if layer.top_converged:
            assert layer.top_residual <= 1e-2 * abs(layer.top_eigenvalue) + 1e-12
        start += layer.num_parameters
    assert start == given.num_parameters
    frame = [layer.top_eigenvalue for layer in found.network.layers]
    assert np.isfinite(np.array(frame, dtype=float)).all()
    assert Record.from_json(found.to_json()) == found


def stages_blocks(given: hm.Problem) -> list[Tensor]:
    from hessmap.maps.curvature_map.layers import blocks_of

    return [block.places for block in blocks_of(given)]


def test_the_layers_come_before_traces_densities_and_dimensions(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    map_of("attention", 100, monkeypatch, progress=steps.append)
    place = steps.index("largest eigenvalues of the layers")
    assert steps[place - 1] == "largest eigenvalues"
    for later in ("trace of the network and of its layers", "density of the eigenvalues", "effective dimension"):
        assert steps.index(later) > place


@pytest.mark.parametrize("num_products", [1, 70, 120])
@pytest.mark.parametrize("name", CASES)
def test_no_text_has_an_error_above_its_number(name: str, num_products: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = map_of(name, num_products, monkeypatch)
    console = Console(width=300, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(map_view(found))
    console.file.close()
    for text in (*found.summary, *console.export_text().splitlines(), *(value for _, value in found.rows())):
        for value, error in NUMBERS.findall(text):
            assert float(error.replace(",", "")) < abs(float(value.replace(",", ""))), text
        assert "nan" not in text.lower().split()


def estimate(value: float, error: float, method_error: float = 0.0, interval: Any = None) -> SpectralEstimate:
    known = SpectralEstimate.of_known("trace", value, 500)
    ends = (value - 3 * error - method_error, value + 3 * error + method_error) if interval is None else interval
    return replace(known, standard_error=error, method_error=method_error, interval=ends)


def test_numbers_below_their_error_are_ranges() -> None:
    assert number_with_error(155.2, 6.7) == "155 ± 7"
    assert number_with_error(1964.0, 4600.0) == "between -2.64e+03 and 6.56e+03"
    assert number_with_error(-3.0, 5.0) == "between -8 and 2"
    assert number_with_error(0.0, 1.0) == "between -1 and 1"
    assert number_with_error(2.0, float("inf")) == "not resolved"
    assert estimate(2.0, 7.0).with_error == "between -19 and 23"
    assert estimate(20.0, 7.0).with_error == "20 ± 7"
    assert estimate(2.0, float("inf")).with_error == "not resolved"
    assert share_text(estimate(0.2, 0.01, 0.3, (0.0, 0.55))) == "at most 55%"
    assert share_text(estimate(0.2, 0.21, 0.0, (0.1, 0.55))) == "between 10% and 55%"
    assert share_text(estimate(0.2, 0.01)) == "20.00% ± 1.0%"


def test_bounds_are_shown_where_numbers_are_not_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    from hessmap.maps.curvature_map.curvature_map import summary

    network = map_of("attention", 10_000, monkeypatch).network
    whole = network.whole
    assert whole is not None
    loose = SharpnessMeasurement(2.0, 5.0, False, 1.0, 4, whole.sharpness.size, 0)
    dimension = estimate(364.0, 20.0, 2200.0, (0.0, 576.0))
    changed = replace(whole, sharpness=loose, effective_dimension=dimension, trace=estimate(3.0, 40.0))
    layers = tuple(replace(layer, share_error=0.9, top_converged=False) for layer in network.layers)
    values = [value for _, value in changed.rows()]
    assert values[:3] == ["at least 2 (not converged)", "at most 1", "between -117 and 123"]
    assert values[4] == "at most 576 of 500"
    assert not any("±" in text for text in summary(replace(network, whole=changed, layers=layers), None))
    without = replace(whole, effective_dimension=None, gap="it is not resolved within the time")
    assert without.rows()[4][1] == "not available (it is not resolved within the time)"


SPECTRA: dict[str, tuple[NDArray[np.float64], tuple[float, ...]]] = {
    "a bulk around zero": (np.linspace(-0.05, 0.05, 997), (400.0, 80.0, 20.0)),
    "a bulk above zero": (np.geomspace(1e-4, 0.1, 995), (30.0, 12.0, 5.0, 2.0)),
    "outliers on both sides": (np.linspace(-0.1, 0.1, 998), (-60.0, 9.0)),
    "mostly zeros": (np.r_[np.zeros(900), np.linspace(0.01, 0.02, 97)], (7.0, 3.0, 1.0)),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("is_known", [False, True])
def test_outliers_stand_apart_from_the_bulk(name: str, is_known: bool) -> None:
    """Between two outliers, and between them and the bulk, the curve falls below a tenth of a single eigenvalue."""
    bulk, outliers = SPECTRA[name]
    values = np.r_[bulk, outliers]
    found = density_estimate(np.diag(values), num_probes=2, num_steps=24)
    curve = DensityCurve.of_eigenvalues(values) if is_known else resolved_density(found)
    assert np.trapezoid(curve.density, curve.grid) == pytest.approx(1, abs=0.02)
    counted = np.concatenate([[0.0], np.cumsum(np.diff(curve.grid) * (curve.density[1:] + curve.density[:-1]) / 2)])
    places = np.arcsinh(curve.grid / curve.linear_part)
    heights = len(values) * curve.density * np.hypot(curve.grid, curve.linear_part)
    single = 1 / (curve.width * np.sqrt(2 * np.pi))
    for outlier in outliers:
        at = float(np.arcsinh(outlier / curve.linear_part))
        assert heights[np.abs(places - at) < curve.width].max() > (0.3 * single if is_known else 0.02 * single)
        for beside in (at - 0.33, at + 0.33):
            if places.min() < beside < places.max():
                assert heights[np.abs(places - beside).argmin()] < 0.1 * single
        inside = (at - 0.33 < places) & (places < at + 0.33)
        mass = len(values) * float(np.ptp(counted[inside]))
        assert 0.0 < mass < (1.01 if is_known else 10.0)


def test_the_figure_of_a_map_has_a_symmetric_logarithmic_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    found = map_of("attention", 200, monkeypatch)
    for figure in (spectrum_figure(found), hm.plot(found, "density"), found.plot("density")):
        (axes,) = figure.axes
        assert axes.get_xscale() == "symlog"
        assert axes.get_yscale() == "log"
        assert "symmetric logarithmic" in axes.get_xlabel()
        ticks = axes.get_xticks()
        assert 0.0 in ticks
        assert 3 <= len(ticks) <= 12
    zero = density_figure(DensityCurve.of_eigenvalues(np.zeros(5)))
    assert zero.axes[0].lines


@pytest.mark.parametrize("values", [np.linspace(1.0, 2.0, 9), 1 + 1e-9 * np.arange(9), np.full(4, -30.0), [-0.3, 5.0]])
def test_a_density_has_at_least_two_ticks_beside_its_curve(values: NDArray[np.float64]) -> None:
    (axes,) = density_figure(DensityCurve.of_eigenvalues(np.array(values))).axes
    low, high = axes.get_xlim()
    assert sum(low <= tick <= high for tick in axes.get_xticks()) >= 2
    assert ("logarithmic" in axes.get_xlabel()) == (axes.get_xscale() == "symlog")


def test_a_network_in_float32_products_has_the_numbers_of_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    straight = map_of("convolutions", 400, monkeypatch)
    monkeypatch.setattr(estimates, "_SINGLE_FROM", 10)
    single = map_of("convolutions", 400, monkeypatch)
    assert any("were made in float32" in note for note in single.network.notes)
    assert not any("were made in float32" in note for note in straight.network.notes)
    for one, other in zip(straight.network.layers, single.network.layers, strict=True):
        assert one.top_eigenvalue == pytest.approx(other.top_eigenvalue, rel=1e-2, abs=1e-5)
    first, second = straight.network.whole, single.network.whole
    assert first is not None
    assert second is not None
    assert first.trace.value == pytest.approx(second.trace.value, rel=1e-3)
    assert first.negative_share.value == pytest.approx(second.negative_share.value, abs=1e-3)


def test_a_float32_copy_with_other_products_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "_SINGLE_FROM", 10)
    monkeypatch.setattr(estimates, "_MOST_APART", 0.0)
    hessian = hm.loss_hessian(problem("many layers"))
    assert estimates.fast_hessian(hessian, 0) is hessian
