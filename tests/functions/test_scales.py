"""What does not depend on the scale of a function is found at every scale: squares of 1e-200 vanish."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.errors import InvalidInput
from hessmap.maps.functions.bottleneck import similarity
from hessmap.theory.functions.costs import diameter, shortest_path

INPUTS = torch.randn(40, 2, generator=torch.Generator().manual_seed(0)).double()
SCALES = [1e-200, 1e-150, 1.0, 1e150, 1e200]


@pytest.mark.parametrize("scale", SCALES)
def test_lengths_of_paths_scale_with_their_points(scale: float) -> None:
    """More points than are ordered exactly: the tree of points too far apart for squares never ended."""
    line = scale * np.arange(40.0)[:, None] * np.array([[3.0, 4.0]])
    assert shortest_path(line).value == pytest.approx(195 * scale)
    assert shortest_path(line[:4]).value == pytest.approx(15 * scale)
    assert diameter(line) == pytest.approx(195 * scale)


def test_points_beyond_the_range_of_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="the distances of points must be in the range of float64"):
        shortest_path([[1.5e308], [-1.5e308]])


@pytest.mark.parametrize("scale", SCALES)
def test_similarity_does_not_see_the_scale(scale: float) -> None:
    generator = np.random.default_rng(0)
    one, other = generator.standard_normal((30, 4)), generator.standard_normal((30, 3))
    assert similarity(scale * one, other) == pytest.approx(similarity(one, other))
    assert similarity(one, scale * one) == pytest.approx(1.0)


@pytest.mark.parametrize("scale", SCALES)
def test_the_rank_of_a_map_does_not_see_its_scale(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    left, right, inputs = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((5, 2), (2, 5), (60, 5))
    )
    model = nn.Linear(5, 5, bias=False).double()
    model.weight.data = scale * left @ right
    assert hm.function_rank(model, inputs).value == 2
    assert hm.maps.functions.bottleneck_view(model, inputs).layers[0].similarity == pytest.approx(
        hm.maps.functions.bottleneck_view(_rescaled(model, 1 / scale), inputs).layers[0].similarity
    )


@pytest.mark.parametrize("scale", SCALES[:-1])
def test_the_cost_of_a_map_is_found_at_any_scale(scale: float) -> None:
    found = hm.maps.functions.representation_cost(_identity(scale), INPUTS)
    with np.errstate(under="ignore"):
        assert found.bound("jacobians").squared_norm == pytest.approx(float(2 * np.float64(scale) ** 2))


def test_a_cost_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the squared norm of the weights must be in the range of float64"):
        hm.maps.functions.representation_cost(_identity(1e200), INPUTS)


def _identity(scale: float) -> nn.Linear:
    model = nn.Linear(2, 2, bias=False).double()
    model.weight.data = scale * torch.eye(2, dtype=torch.float64)
    return model


def _rescaled(model: nn.Linear, factor: float) -> nn.Linear:
    other = nn.Linear(5, 5, bias=False).double()
    other.weight.data = factor * model.weight.data
    return other
