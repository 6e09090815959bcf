"""Piecewise linear functions built as networks, and what rank-k minima look like: against direct evaluation."""

from __future__ import annotations

from itertools import pairwise
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hessmap.errors import InvalidInput
from hessmap.theory import functions

Floats = NDArray[np.float64]


def outputs(layers: list[functions.Layer], points: Floats, slope: float = 0.0) -> Floats:
    """What the network gives at the rows of ``points``, one unit at a time by its definition."""
    for place, layer in enumerate(layers):
        points = points @ layer.weight.T + layer.bias
        if place < len(layers) - 1:
            points = np.where(points >= 0, points, slope * points)
    return points


@given(
    dim=st.integers(1, 7),
    num_maxima=st.integers(1, 4),
    slope=st.sampled_from([-0.5, 0.0, 0.25, 0.75]),
    seed=st.integers(0, 10**6),
)
def test_corollary_1_a_signed_sum_of_maxima_is_a_network_of_the_stated_depth(
    dim: int, num_maxima: int, slope: float, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    counts = [dim + 1, *generator.integers(1, dim + 2, num_maxima - 1)]
    maxima = [
        (float(generator.choice([-1.0, 1.0])), generator.normal(size=(count, dim)), generator.normal(size=count))
        for count in counts
    ]
    points = 3 * generator.normal(size=(40, dim))
    wanted = sum(sign * (points @ slopes.T + offsets).max(axis=1) for sign, slopes, offsets in maxima)
    layers = functions.piecewise_linear_network(maxima)
    assert len(layers) == ceil(log2(dim + 1)) + 1
    np.testing.assert_allclose(outputs(layers, points)[:, 0], wanted, atol=1e-9)
    leaky = functions.leaky_network(layers, slope)
    assert [len(one.bias) for one in leaky[:-1]] == [2 * len(one.bias) for one in layers[:-1]]
    np.testing.assert_allclose(outputs(leaky, points, slope)[:, 0], wanted, atol=1e-8)


def test_maxima_that_do_not_pair_up_and_steep_units_are_refused() -> None:
    with pytest.raises(InvalidInput, match="every piece must have an offset"):
        functions.piecewise_linear_network([(1.0, [[1.0], [2.0]], [0.0])])
    with pytest.raises(InvalidInput, match="at least one maximum"):
        functions.piecewise_linear_network([])
    with pytest.raises(InvalidInput, match="between -1 and 1"):
        functions.leaky_network([([[1.0]], None)], slope=1.0)


@given(ranks=st.lists(st.integers(1, 4), min_size=1, max_size=9), seed=st.integers(0, 1000))
def test_the_block_of_a_split_is_the_longest_run_of_the_least_rank(ranks: list[int], seed: int) -> None:
    """Against all runs, listed one by one; and the three parts make up the whole."""
    norms = np.random.default_rng(seed).uniform(size=len(ranks) + 1)
    found = functions.norm_split(list(norms), ranks)
    runs = [
        (start, end)
        for start in range(1, len(ranks) + 1)
        for end in range(start, len(ranks) + 1)
        if set(ranks[start - 1 : end]) == {min(ranks)}
    ]
    assert (found.start, found.end) == max(runs, key=lambda run: (run[1] - run[0], -run[0]))
    assert found.squared_norm == pytest.approx(norms.sum())
    assert found.inside == pytest.approx(norms[found.start : found.end].sum())
    assert found.above_rank == pytest.approx(norms.sum() - min(ranks) * len(norms))


def test_a_deepened_network_has_its_bottleneck_where_layers_were_inserted_and_pays_k_a_layer() -> None:
    generator = np.random.default_rng(0)
    layers = [(generator.normal(size=shape), None) for shape in ((6, 5), (6, 6), (2, 6), (4, 2))]
    low, high = -np.ones(5), np.ones(5)
    for depth in (80, 400):
        made = functions.deepened_network(layers, depth, low, high)
        widths = [len(layer.bias) for layer in made.layers[:-1]]
        split = functions.norm_split([layer.squared_norm for layer in made.layers], widths)
        assert (split.rank, split.num_layers) == (2, depth)
        assert split.num_inside >= depth - 4
        assert split.before + split.behind < made.squared_norm
    assert split.inside_per_layer == pytest.approx(2, abs=0.25)


def test_a_network_without_layers_or_with_too_few_ranks_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a rank for every layer but the last"):
        functions.norm_split([1.0], [])


@pytest.mark.parametrize("rank", [2, 3])
def test_theorem_2_one_constant_serves_every_number_of_samples(rank: int) -> None:
    """Lengths of shortest paths over N^(1 - 1/k) stay above one number with probability 0.9, from 20 to 1,000 samples.

    Spanning trees are no longer than paths. The bound on the norm follows at every depth.
    """
    least = []
    for count in (20, 140, 1000):
        lengths = []
        for seed in range(10 if count < 1000 else 3):
            points = np.random.default_rng(seed).uniform(size=(count, rank))
            bound = functions.rank_one_lower_bound(points, points)
            assert bound.path.kind == "lower_bound"
            lengths.append(bound.path.value / (rank**0.5 * count ** (1 - 1 / rank)))
        least.append(min(lengths))
    assert min(least) > 0.35
    assert max(least) / min(least) < 1.5  # no drift over fifty times the samples


@pytest.mark.parametrize("num_samples", [5, 9, 12])
def test_theorem_2_interpolators_of_rank_one_cost_what_the_bound_says(num_samples: int) -> None:
    """||W||^2 >= L slope^(2/L) for every built interpolator at every depth, and L + C_N from above."""
    generator = np.random.default_rng(num_samples)
    inputs = generator.uniform(-1, 1, (num_samples, 3))
    wanted = inputs @ generator.normal(size=(3, 2))
    bound = functions.rank_one_lower_bound(inputs, wanted)
    box = inputs.min(axis=0), inputs.max(axis=0)
    for direction in generator.normal(size=(4, 3)):
        layers = functions.rank_one_network(inputs, wanted, direction)
        constant = functions.rank_one_constant(inputs, wanted, [direction])
        for depth in (4, 10, 50):
            made = functions.deepened_network(layers, depth, *box)
            np.testing.assert_allclose(outputs(list(made.layers), inputs), wanted, atol=1e-8)
            assert bound.squared_norm(depth) <= made.squared_norm
            assert made.squared_norm <= depth + constant + 1e-9


@given(dim=st.integers(2, 6), seed=st.integers(0, 10**6), data=st.data())
def test_an_autoencoder_of_the_rank_of_its_data_is_locally_a_projection(
    dim: int, seed: int, data: st.DataObject
) -> None:
    """f = h(g(x)) of inner dimension k with f(x) = x on a k-dimensional plane: its Jacobian P has P P = P, range T.

    g and h are piecewise linear networks that only agree on the plane; P is taken by differences inside a region.
    """
    rank = data.draw(st.integers(1, dim - 1))
    generator = np.random.default_rng(seed)
    basis, offset = generator.normal(size=(dim, rank)), generator.normal(size=dim)
    normals = np.linalg.svd(basis)[0][:, rank:]  # of the plane
    inverse = np.linalg.pinv(basis) + generator.normal(size=(rank, dim - rank)) @ normals.T
    bend = generator.normal(size=(rank, dim - rank))

    def autoencoder(point: Floats) -> Floats:
        off = normals.T @ (point - offset)
        hidden = inverse @ (point - offset) + bend @ np.abs(off - 0.5)  # a kink that the plane does not meet
        return offset + basis @ (hidden - bend @ np.full(dim - rank, 0.5))

    start = offset + basis @ generator.normal(size=rank)
    np.testing.assert_allclose(autoencoder(start), start, atol=1e-9)
    step = 1e-3
    jacobian = np.column_stack([(autoencoder(start + step * e) - start) / step for e in np.eye(dim)])
    scale = np.linalg.norm(jacobian) ** 2
    np.testing.assert_allclose(jacobian @ jacobian, jacobian, atol=1e-7 * scale)
    np.testing.assert_allclose(jacobian @ basis, basis, atol=1e-7 * scale)
    assert np.linalg.matrix_rank(jacobian, tol=1e-6 * scale**0.5) == rank


@given(dims=st.tuples(*[st.integers(1, 4)] * 5), seed=st.integers(0, 10**6))
def test_compositions_and_sums_pass_through_the_bottlenecks_of_their_parts(
    dims: tuple[int, int, int, int, int], seed: int
) -> None:
    """Properties 2 and 3 of the bottleneck rank: f(g(x)) through that of f or of g, f + g through both side by side."""
    start, inner_g, between, inner_f, end = dims
    generator = np.random.default_rng(seed)

    def part(before: int, after: int) -> list[functions.Layer]:
        shapes = ((5, before), (after, 5))
        return [functions.Layer(generator.normal(size=shape), generator.normal(size=shape[0])) for shape in shapes]

    g, f = (part(start, inner_g), part(inner_g, between)), (part(between, inner_f), part(inner_f, end))
    points = generator.normal(size=(20, start))
    whole = outputs(f[1], outputs(f[0], outputs(g[1], outputs(g[0], points))))
    narrow_f = outputs(f[0], outputs(g[1], outputs(g[0], points)))  # of inner_f dimensions, and f[1] does the rest
    np.testing.assert_array_equal(outputs(f[1], narrow_f), whole)
    assert (narrow_f.shape[1], outputs(g[0], points).shape[1]) == (inner_f, inner_g)
    other = part(start, inner_f), part(inner_f, between)
    beside = np.hstack([outputs(g[0], points), outputs(other[0], points)])
    assert beside.shape[1] == inner_g + inner_f
    total = outputs(g[1], beside[:, :inner_g]) + outputs(other[1], beside[:, inner_g:])
    separate = outputs(g[1], outputs(g[0], points)) + outputs(other[1], outputs(other[0], points))
    np.testing.assert_allclose(total, separate, rtol=0, atol=1e-13 * abs(separate).max())


def test_cost_over_depth_of_the_cross_map_has_a_bound_of_rank_two() -> None:
    """Example 1 as a network of three layers, deepened: 2 L + C at every depth, the upper side of Remark 4."""
    layers = [
        ([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], None),
        (
            [[sign * first, -sign * first, sign, sign] for first in (1.0,) for sign in (1.0, -1.0)]
            + [[sign, -sign, -sign, -sign] for sign in (1.0, -1.0)]
            + [[sign, sign, sign, -sign] for sign in (1.0, -1.0)]
            + [[-sign, -sign, sign, -sign] for sign in (1.0, -1.0)],
            None,
        ),
        ([[0.5, 0.5, -0.5, -0.5, 0, 0, 0, 0], [0, 0, 0, 0, 0.5, 0.5, -0.5, -0.5]], None),
    ]
    points = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    low, high = -np.ones(2), np.ones(2)
    constant = functions.cost_constant(layers, 2, low, high)
    costs = []
    for depth in (8, 32, 128):
        made = functions.deepened_network(layers, depth, low, high)
        np.testing.assert_allclose(outputs(list(made.layers), points), functions.cross_map(points), atol=1e-9)
        assert made.squared_norm <= 2 * depth + constant
        costs.append(made.squared_norm / depth)
    assert all(after < before for before, after in pairwise(costs))
    assert abs(costs[-1] - 2) < 0.4
