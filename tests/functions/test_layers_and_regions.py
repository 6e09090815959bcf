"""The view of layers, balance, class regions and denoising, on cases that can be known by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput, UnsupportedNetwork


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def planted() -> nn.Module:
    """Two dimensions behind the first layer, kept by an identity on positive numbers, then widened."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 6)).double()
    with torch.no_grad():
        model[0].weight[:] = drawn(5, 2) @ drawn(2, 6)
        model[0].bias[:] = 1000.0
        model[2].weight[:], model[2].bias[:] = torch.eye(5), 0.0
    return model


def test_a_planted_bottleneck_is_found_with_the_mean_direction_only_in_the_uncentred_rank():
    view = hm.maps.functions.bottleneck_view(planted(), drawn(40, 6), relative_tolerance=1e-9)
    assert [layer.centred_rank for layer in view.layers] == [2, 2, 2]
    assert [layer.rank for layer in view.layers] == [3, 3, 3]
    assert view.bottlenecks == ("0", "2")
    assert view.identities == ("2",)
    middle = view.layers[1]
    assert (middle.nonlinearity, middle.similarity) == pytest.approx((0.0, 1.0))
    assert middle.weight_singular_values == pytest.approx(np.ones(5))
    assert view.layers[2].nonlinearity is None
    assert view.is_chain
    interval = hm.function_rank(planted(), drawn(40, 6), relative_tolerance=1e-9).bottleneck
    assert (interval.lower, interval.upper, interval.upper_kind) == (2, 2, "measurement")


def test_effective_and_stable_rank_and_the_impact_of_relu_are_those_of_the_formulas():
    """One unit is off for every sample, so that a singular value is zero: zero times its logarithm is zero."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        model[0].bias[3] = -1000.0
    inputs = drawn(20, 3)
    layer = hm.maps.functions.bottleneck_view(model, inputs).layers[0]
    before = model[0](inputs).detach()
    after = before.relu()
    values = torch.linalg.svdvals(after - after.mean(0))
    shares = values / values.sum()
    assert layer.nonlinearity == pytest.approx(float((before - after).norm() / before.norm()))
    assert layer.effective_rank == pytest.approx(float(torch.special.entr(shares).sum().exp()))
    assert layer.stable_rank == pytest.approx(float(values.square().sum() / values[0] ** 2))
    assert layer.singular_values == pytest.approx(torch.linalg.svdvals(after).numpy())


def test_too_few_samples_do_not_bound_the_bottleneck_rank():
    interval = hm.function_rank(planted(), drawn(4, 6), relative_tolerance=1e-9).bottleneck
    assert (interval.upper, interval.upper_kind) == (5, "theorem")


class Voronoi(nn.Module):
    """Logits -|x - site|^2 / 2 up to a common term: affine, so that the interpolant is exact."""

    def __init__(self, sites: list[list[float]]) -> None:
        super().__init__()
        self.sites = nn.Parameter(torch.tensor(sites, dtype=torch.float64))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        return points @ self.sites.T - 0.5 * self.sites.square().sum(1)


def test_the_tripoint_of_three_sites_is_their_circumcentre():
    regions = hm.maps.functions.class_regions(
        Voronoi([[0.0, 0.0], [1.0, 0.1], [0.2, 1.1]]), (-1, 2, -1, 2), grid_size=20
    )
    assert (regions.counts, regions.agrees) == ((1, 1), True)
    sites = np.array([[0.0, 0.0], [1.0, 0.1], [0.2, 1.1]])
    distances = np.linalg.norm(sites - regions.tripoints[0], axis=1)
    assert distances == pytest.approx(np.full(3, distances[0]), abs=1e-12)
    assert regions.tripoint_classes.tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("grid_size", [21, 60])
def test_voronoi_cells_have_the_vertices_of_scipy_and_boundaries_at_equal_distance(grid_size):
    from scipy.spatial import Voronoi as Oracle

    sites = np.random.default_rng(3).uniform(-1, 1, size=(7, 2))
    vertices = Oracle(sites).vertices
    inside = vertices[(np.abs(vertices) < 1.2).all(axis=1)]
    regions = hm.maps.functions.class_regions(
        Voronoi(sites.tolist()), (-1.2, 1.2, -1.2, 1.2), grid_size=grid_size, largest_grid=130
    )
    assert regions.agrees
    assert len(inside) == regions.num_tripoints >= 4
    order = [np.argmin(np.abs(inside - point).sum(axis=1)) for point in regions.tripoints]
    assert regions.tripoints == pytest.approx(inside[order], abs=1e-9)
    middles = regions.boundaries.mean(axis=1)
    nearest = np.sort(np.linalg.norm(middles[:, None] - sites, axis=2), axis=1)
    assert nearest[:, 0] == pytest.approx(nearest[:, 1], abs=1e-9)


def test_parallel_stripes_have_no_tripoint():
    stripes = nn.Linear(2, 4)
    with torch.no_grad():
        stripes.weight[:] = torch.tensor([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
        stripes.bias[:] = torch.tensor([0.0, 0.0, -1.0, -3.0])
    regions = hm.maps.functions.class_regions(stripes, (-1.0, 3.0, -1.0, 1.0), grid_size=30)
    assert regions.num_tripoints == 0
    assert regions.agrees
    assert len(np.unique(regions.labels)) == 4


def test_a_projection_on_the_curve_denoises_and_the_identity_does_not():
    line = np.stack([np.linspace(-3, 3, 4001), np.zeros(4001)], axis=1)
    projection = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        projection.weight[:] = torch.tensor([[1.0, 0.0], [0.0, 0.5]])
    assert hm.maps.functions.denoising_score(nn.Identity(), line, num_points=50).mean == 1.0
    half = hm.maps.functions.denoising_score(projection, line, num_points=400)
    assert half.median == pytest.approx(0.5, abs=0.01)
    assert half.standard_error < 0.05


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: hm.maps.functions.class_regions(nn.Linear(3, 2), (0, 1, 0, 1)),
            InvalidInput,
            "that takes two inputs; on points of",
        ),
        (
            lambda: hm.maps.functions.class_regions(nn.Linear(2, 1), (0, 1, 0, 1)),
            InvalidInput,
            "at least two outputs; it has 1",
        ),
        (
            lambda: hm.maps.functions.class_regions(nn.Linear(2, 2), (1, 0, 0, 1)),
            InvalidInput,
            "left, right, bottom, top",
        ),
        (
            lambda: hm.maps.functions.denoising_score(nn.Linear(2, 3), drawn(5, 2)),
            InvalidInput,
            "it has 2 inputs and 3 outputs",
        ),
        (
            lambda: hm.maps.functions.denoising_score(nn.Identity(), drawn(5, 2), noise=0.0),
            InvalidInput,
            "noise must be positive",
        ),
        (
            lambda: hm.maps.functions.balance(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))),
            UnsupportedNetwork,
            "is Tanh",
        ),
        (
            lambda: hm.maps.functions.balance(nn.Linear(2, 2)),
            UnsupportedNetwork,
            "at least two linear layers; there are 1",
        ),
        (
            lambda: hm.maps.functions.bottleneck_view(nn.Identity(), drawn(5, 2)),
            UnsupportedNetwork,
            "Identity has none",
        ),
        (lambda: hm.maps.functions.bottleneck_view(nn.Linear(2, 2), drawn(1, 2)), InvalidInput, "at least two samples"),
    ],
)
def test_what_cannot_be_viewed_is_refused_in_one_sentence(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_activations_that_overflow_name_their_layer():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 2)).double()
    with torch.no_grad():
        model[0].weight[:], model[1].weight[:] = 1e200, 1e200
    with pytest.raises(InvalidInput, match="activations must be finite; layer '1' gives NaN or inf"):
        hm.maps.functions.bottleneck_view(model, drawn(5, 2).abs())
