"""Ranks of piecewise linear functions: the properties that Jacot 2023 asks of a rank, and costs over depth.

Leaky ReLUs of slope 1/2, written with the integers 2 and 1, and integer weights: Jacobians are integer matrices, whose
ranks are exact. A square layer with an invertible weight is a bijection.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from flint import fmpz_mat
from numpy.typing import NDArray
from scipy.linalg import block_diag

from hessmap.theory import functions

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
GENERATOR = np.random.default_rng(0)
POINTS = GENERATOR.integers(-9, 10, (12, 3))


def rank(matrix: Integers) -> int:
    return int(fmpz_mat(matrix.tolist()).rank())


def jacobian(layers: Sequence[Integers], point: Integers) -> tuple[Integers, Integers]:
    """Value and derivative, both times a power of two, of W_L sigma(.. sigma(W_1 x))."""
    value, slope = point, np.eye(len(point), dtype=np.int64)
    for place, weight in enumerate(layers):
        value, slope = weight @ value, weight @ slope
        if place < len(layers) - 1:
            scale = np.where(value > 0, 2, 1)
            value, slope = scale * value, scale[:, None] * slope
    return value, slope


def largest_rank(layers: Sequence[Integers], points: Integers = POINTS) -> int:
    return max(rank(jacobian(layers, point)[1]) for point in points)


def drawn(*widths: int, seed: int) -> list[Integers]:
    generator = np.random.default_rng(seed)
    return [generator.integers(-3, 4, (after, before)) for before, after in pairwise(widths)]


def bijection(size: int, seed: int) -> list[Integers]:
    """Two invertible layers with leaky units between: a piecewise linear bijection."""
    found = [matrix for matrix in drawn(*[size] * 30, seed=seed) if rank(matrix) == size]
    return found[:2]


@pytest.mark.parametrize("seed", range(6))
def test_compositions_sums_and_affine_maps(seed: int) -> None:
    """Properties 2, 3 and 4 of the Jacobian rank."""
    first, second = drawn(3, 2, 4, seed=seed), drawn(4, 3, 3, seed=seed + 50)
    images = np.array([jacobian(first, point)[0] for point in POINTS])
    joined = [*first, np.eye(4, dtype=np.int64), *second]
    at_most = min(largest_rank(first), largest_rank(second, images))
    assert largest_rank(joined) <= at_most
    other = drawn(3, 2, 4, seed=seed + 100)
    sums = [jacobian(first, point)[1] + jacobian(other, point)[1] for point in POINTS]
    assert max(map(rank, sums)) <= largest_rank(first) + largest_rank(other)
    assert largest_rank(first[:1]) == rank(first[0])


@pytest.mark.parametrize("value", [1, 2, 3])
def test_claim_1_bijections_have_full_rank_and_change_none(value: int) -> None:
    before, after = bijection(3, seed=1), bijection(4, seed=2)
    left, right = drawn(value, 4, seed=3)[0], drawn(3, value, seed=4)[0]
    middle = left @ right
    assert (rank(middle), largest_rank(before)) == (value, 3)
    for point in POINTS:  # psi A phi: the same rank everywhere
        assert rank(jacobian([*before[:-1], before[-1], middle, *after], point)[1]) == value


def test_theorem_1_both_sides_close_on_the_rank_as_depth_grows() -> None:
    """A map of rank 2 through 3 - 2 - 3: Proposition 3 below, identity layers above; k + C / L all along."""
    generator = np.random.default_rng(5)
    layers = [(generator.normal(size=shape), None) for shape in ((5, 3), (2, 5), (3, 2))]
    low, high = -np.ones(3), np.ones(3)
    constant = functions.cost_constant(layers, 2, low, high)
    gaps = []
    for depth in (5, 20, 100, 1000):
        slope = np.linalg.multi_dot([layers[2][0], layers[1][0], np.diag(np.ones(5)), layers[0][0]])
        below = functions.schatten_quasi_norm(np.linalg.svd(slope)[1][:2], depth)
        above = functions.deepened_network(layers, depth, low, high).squared_norm / depth
        assert below <= above <= 2 + constant / depth + 1e-9
        gaps.append(above - below)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.1
    assert abs(above - 2) < 0.1


def test_theorem_4_the_cost_of_an_affine_map_tends_to_its_rank() -> None:
    matrix = np.diag([3.0, 0.5, 0.0])
    costs = [functions.linear_representation_cost(matrix, depth) / depth for depth in (2, 10, 100, 10_000)]
    assert abs(costs[-1] - 2) < 1e-3 < abs(costs[0] - 2)


def values(layers: Sequence[tuple[Floats, Floats]], points: Floats) -> Floats:
    """What a ReLU network with these weights and biases gives at the columns of ``points``."""
    for place, (weight, bias) in enumerate(layers):
        points = weight @ points + bias[:, None]
        if place < len(layers) - 1:
            points = np.maximum(points, 0)
    return points


def test_theorem_4_networks_in_parallel_cost_the_sum() -> None:
    """f of rank 1 and g of rank 2 side by side: f + g at a cost of 3 L and a constant."""
    low, high = np.zeros(2), np.ones(2)
    one, two = [(np.array([[1.0, 2.0], [0.5, 1.0]]), None)], [(np.array([[1.0, -1.0], [0.0, 1.0]]), None)]
    constants = [functions.cost_constant(given, rank, low, high) for given, rank in ((one, 1), (two, 2))]
    points = np.random.default_rng(0).uniform(size=(2, 20))
    for depth in (5, 50, 500):
        nets = [functions.deepened_network(given, depth, low, high).layers for given in (one, two)]
        pairs = list(zip(*nets, strict=True))
        first = (np.vstack([layer.weight for layer in pairs[0]]), np.concatenate([layer.bias for layer in pairs[0]]))
        middle = [
            (block_diag(*(layer.weight for layer in pair)), np.concatenate([layer.bias for layer in pair]))
            for pair in pairs[1:-1]
        ]
        last = (np.hstack([layer.weight for layer in pairs[-1]]), sum(layer.bias for layer in pairs[-1]))
        parallel = [first, *middle, last]
        np.testing.assert_allclose(values(parallel, points), (one[0][0] + two[0][0]) @ points, atol=1e-9)
        cost = sum(float((weight**2).sum() + (bias**2).sum()) for weight, bias in parallel)
        assert cost <= 3 * depth + 2 * sum(map(abs, constants)) + 12


def test_a_classifier_of_rank_one_has_no_tripoint_and_one_of_rank_two_may() -> None:
    """Classes by h(u . x) change along one direction: three of them meet nowhere."""
    import torch
    from torch import nn

    import hessmap as hm

    narrow = nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 6), nn.ReLU(), nn.Linear(6, 4)).double()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in narrow.parameters():
            parameter.normal_(generator=generator)
    assert hm.maps.functions.class_regions(narrow, (-3, 3, -3, 3), grid_size=41).num_tripoints == 0
    corner = nn.Linear(2, 3, bias=False)
    corner.weight.data = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert hm.maps.functions.class_regions(corner, (-1.0, 1.0, -1.0, 1.5), grid_size=41).num_tripoints == 1
