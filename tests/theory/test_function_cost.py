"""Costs of representing a function: closed forms, bounds that hold for every network, networks that are built."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from golden_tables import each, table
from hessmap.errors import InvalidInput
from hessmap.theory import functions

CASES = table("nonlinear-rank")["cases"]


def stored(beginning: str) -> list:
    found = [case for case in CASES if case["id"].startswith(beginning)]
    assert found, beginning
    return found


def network(generator: np.random.Generator, widths: tuple[int, ...]) -> list[functions.Layer]:
    return [
        functions.Layer(generator.normal(size=(after, before)) / before**0.5, 0.3 * generator.normal(size=after))
        for before, after in itertools.pairwise(widths)
    ]


def outputs_of(layers: list[functions.Layer], inputs: np.ndarray) -> np.ndarray:
    """The outputs of a ReLU network, one sample a row."""
    values = inputs
    for layer in layers[:-1]:
        values = np.maximum(values @ layer.weight.T + layer.bias, 0.0)
    return values @ layers[-1].weight.T + layers[-1].bias


def test_every_stored_case_has_a_test():
    beginnings = ("jacot_cor1", "jacot_diag", "jacot_ex1", "jacot_krr", "jacot_prop10", "jacot_schatten")
    assert all(case["id"].startswith(beginnings) for case in CASES)


@each(stored("jacot_cor1"))
def test_relu_from_leaky_units_with_the_corrected_sign(case):
    slope, x = case["inputs"]["a"], case["inputs"]["x"]
    assert functions.relu_from_leaky([x], slope) == pytest.approx(case["expected"]["correct"], abs=case["tol"])
    printed = (functions.leaky_relu(x, slope) - slope * functions.leaky_relu(-x, slope)) / (1 - slope**2)
    assert printed == pytest.approx(case["expected"]["printed"], abs=case["tol"])


@each(stored("jacot_diag"))
def test_cost_of_diagonal_networks(case):
    """x -> w . x with w the product of L vectors: the closed form of linear maps with |w| for the singular values."""
    depth = case["inputs"]["L"]
    found = depth * functions.schatten_quasi_norm(np.abs(case["inputs"]["w"]), depth)
    assert found == pytest.approx(case["expected"]["R"], abs=case["tol"])


@each(stored("jacot_schatten"))
def test_cost_of_linear_networks_and_the_factors_that_attain_it(case):
    matrix, depth = np.array(case["inputs"]["A"]), case["inputs"]["L"]
    cost = functions.linear_representation_cost(matrix, depth)
    assert cost == pytest.approx(case["expected"]["R"], abs=case["tol"])
    assert cost / depth == pytest.approx(case["expected"]["R_over_L"], abs=case["tol"])
    factors = functions.balanced_factors(matrix, depth)
    assert len(factors) == depth
    assert np.linalg.multi_dot(factors[::-1]) == pytest.approx(matrix, abs=1e-12)
    assert sum(np.square(factor).sum() for factor in factors) == pytest.approx(cost, abs=1e-11)


@each(stored("jacot_ex1_-"))
def test_the_corrected_cross_map_has_jacobian_rank_one(case):
    point = case["inputs"]["x"]
    assert functions.cross_map([point])[0].tolist() == case["expected"]["f"]
    assert np.linalg.matrix_rank(functions.cross_map_jacobian(point)) == case["expected"]["jac_rank"]


@each(stored("jacot_ex1_jump"))
def test_the_printed_cross_map_jumps_across_the_axes_and_the_corrected_does_not(case):
    points = [case["inputs"]["x_plus"], case["inputs"]["x_minus"]]
    wanted = [case["expected"]["f_plus"], case["expected"]["f_minus"]]
    assert functions.printed_cross_map(points) == pytest.approx(np.array(wanted), abs=case["tol"])
    assert np.abs(np.diff(functions.cross_map(points), axis=0)).max() < 1e-11


@each(stored("jacot_krr"))
def test_rank_of_the_kernel_ridge_jacobian(case):
    sizes = case["inputs"]
    dim = sizes["rankX"]
    wanted = case["expected"]["rank"]
    assert functions.kernel_ridge_jacobian_rank(sizes["d_in"], sizes["N"], sizes["d_out"], dim) == wanted
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(sizes["N"], dim)) @ generator.normal(size=(dim, sizes["d_in"]))
    fit = functions.kernel_ridge(inputs, generator.normal(size=(sizes["N"], sizes["d_out"])), ridge=0.1)
    assert np.linalg.matrix_rank(fit.jacobian(generator.normal(size=sizes["d_in"])), tol=1e-9) == wanted


@each(stored("jacot_prop10"))
def test_rank_one_interpolators_pay_for_the_path_through_the_outputs(case):
    bound = functions.rank_one_lower_bound(case["inputs"]["X"], case["inputs"]["Y"])
    wanted, tolerance = case["expected"], case["tol"]
    assert bound.path.kind == "exact"
    assert bound.path.value == pytest.approx(wanted["tsp"], abs=tolerance)
    assert bound.diameter == pytest.approx(wanted["diam"], abs=tolerance)
    assert bound.slope == pytest.approx(wanted["bound"], abs=tolerance)
    assert bound.squared_norm(case["inputs"]["L"]) == pytest.approx(wanted["normbound"], abs=tolerance)


@pytest.mark.parametrize(("in_affine_plane", "wanted", "printed"), [(False, 3, 4), (True, 3, 4)])
def test_the_printed_kernel_ridge_rank_is_wrong_where_it_forgets(in_affine_plane, wanted, printed):
    """Three dimensions of inputs that span them all; an affine plane off the origin in four dimensions."""
    generator = np.random.default_rng(1)
    dim = 4 if in_affine_plane else 3
    inputs = generator.normal(size=(12, 2)) @ generator.normal(size=(2, 4)) + 1.0 if in_affine_plane else None
    inputs = generator.normal(size=(12, 3)) if inputs is None else inputs
    fit = functions.kernel_ridge(inputs, generator.normal(size=(12, 6)), ridge=0.1, kernel="laplace")
    measured = np.linalg.matrix_rank(fit.jacobian(generator.normal(size=dim)), tol=1e-9)
    rank, affine = np.linalg.matrix_rank(inputs), np.linalg.matrix_rank(inputs - inputs.mean(0), tol=1e-9)
    assert measured == functions.kernel_ridge_jacobian_rank(dim, 12, 6, int(affine)) == wanted
    assert functions.printed_kernel_ridge_jacobian_rank(12, 6, int(rank)) == printed


@pytest.mark.parametrize("kernel", ["gaussian", "laplace"])
def test_the_kernel_ridge_jacobian_is_the_slope_of_the_predictor(kernel):
    generator = np.random.default_rng(2)
    fit = functions.kernel_ridge(
        generator.normal(size=(6, 3)), generator.normal(size=(6, 2)), ridge=0.1, kernel=kernel, width=1.5
    )
    point, step = generator.normal(size=3), 1e-6
    slopes = (fit(point + step * np.eye(3)) - fit(point - step * np.eye(3))) / (2 * step)
    assert fit.jacobian(point) == pytest.approx(slopes.T, abs=1e-8)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.lists(st.integers(1, 5), min_size=2, max_size=7))
def test_no_factors_are_cheaper_than_the_closed_form(seed, scale, widths):
    generator = np.random.default_rng(seed)
    factors = [scale * generator.normal(size=(after, before)) for before, after in itertools.pairwise(widths)]
    product = np.linalg.multi_dot([np.eye(widths[-1]), *factors[::-1], np.eye(widths[0])])
    paid = sum(np.square(factor).sum() for factor in factors)
    assert paid >= functions.linear_representation_cost(product, len(factors)) * (1 - 1e-9)


def test_the_shortest_path_is_that_of_all_orders():
    points = np.random.default_rng(3).normal(size=(6, 2))
    orders = [points[list(order)] for order in itertools.permutations(range(6))]
    wanted = min(np.linalg.norm(np.diff(path, axis=0), axis=1).sum() for path in orders)
    assert functions.shortest_path(points).value == pytest.approx(wanted, rel=1e-14)
    tree = functions.shortest_path(points, largest_exact=5)
    assert tree.kind == "lower_bound"
    assert 0.5 * wanted <= tree.value <= wanted


@share_of_examples(0.25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
def test_a_built_rank_one_interpolator_fits_and_pays_at_least_the_bound(seed, outputs):
    generator = np.random.default_rng(seed)
    inputs, wanted = generator.normal(size=(6, 2)), generator.normal(size=(6, outputs))
    direction = generator.normal(size=2)
    layers = functions.rank_one_network(inputs, wanted, direction)
    assert outputs_of(layers, inputs) == pytest.approx(wanted, abs=1e-6 * (1 + functions.squared_norm(layers)))
    bound = functions.rank_one_lower_bound(inputs, wanted)
    constant = functions.rank_one_constant(inputs, wanted, [direction])
    assert constant == pytest.approx(functions.squared_norm(layers) - 3)
    assert all(bound.squared_norm(depth) <= depth + constant for depth in (3, 5, 20))


@share_of_examples(0.25)
@given(st.integers(0, 2**32 - 1), st.integers(5, 12))
def test_a_deepened_network_is_the_same_function_within_the_promised_cost(seed, depth):
    generator = np.random.default_rng(seed)
    layers = network(generator, (3, 6, 2, 5, 4))
    low, high = -np.ones(3), np.ones(3)
    deeper = functions.deepened_network(layers, depth, low, high)
    inputs = generator.uniform(-1, 1, size=(50, 3))
    assert len(deeper.layers) == depth
    assert outputs_of(deeper.layers, inputs) == pytest.approx(outputs_of(layers, inputs), abs=1e-10)
    constant = functions.cost_constant(layers, 2, low, high)
    assert deeper.squared_norm <= 2 * depth + constant + 1e-9


def test_deep_enough_the_identity_layers_go_where_the_network_is_narrowest():
    layers = network(np.random.default_rng(4), (3, 6, 2, 5, 4))
    deeper = functions.deepened_network(layers, 400, -np.ones(3), np.ones(3))
    assert deeper.inner_dim == 2
    assert deeper.squared_norm / 400 == pytest.approx(2, abs=0.3)


def test_depths_of_recovery_end_where_rank_one_becomes_cheaper():
    found = functions.recovery_depths(3, constant=7.5, rank_one_constant=100.0, rank_one_slope=0.0, least_depth=2)
    assert found.expected == (8, 46)
    assert 3 * 46 + 7.5 < 46 + 100
    assert 3 * 47 + 7.5 > 47 + 100
    assert found.proved is None
    assert functions.recovery_depths(2, 50.0, 60.0, 10.0, least_depth=2).expected is None


@given(
    rank=st.integers(1, 5),
    constant=st.floats(-60.0, 40.0),
    slope=st.floats(0.0, 1e6),
    least_depth=st.integers(1, 30),
)
def test_nothing_is_said_of_depths_at_which_the_cost_is_not_known(rank, constant, slope, least_depth):
    """A constant far below zero, as wide layers give it, makes k L + C negative at depths that no network has."""
    found = functions.recovery_depths(rank, constant, 50.0, slope, least_depth=least_depth, largest=60)
    for depths in (found.expected, found.proved):
        assert depths is None or least_depth <= depths[0] <= depths[1]
    if found.proved is not None:
        inside = range(found.proved[0], found.proved[1] + 1)
        assert all(rank * depth + constant < depth * slope ** (2 / depth) for depth in inside)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: functions.linear_representation_cost([1.0], 2), "a linear map must be a matrix; got shape"),
        (lambda: functions.linear_representation_cost([[1.0]], 0), "num_layers must be at least 1; got 0"),
        (lambda: functions.rank_one_lower_bound([[1.0]], [[1.0]]), "at least two rows of a matrix; got shape"),
        (lambda: functions.rank_one_lower_bound([[1.0], [1.0]], [[1.0], [2.0]]), "not all be equal; their diameter"),
        (lambda: functions.rank_one_network([[0.0, 0], [0.0, 1]], [[0.0], [1.0]], [1, 0]), "1 of them coincide"),
        (lambda: functions.deepened_network([([[1.0]], None)], 1, [0], [1]), "num_layers must be above the 1"),
        (
            lambda: functions.deepened_network([([[1.0]], None)], 3, [0, 0], [1, 1]),
            "the dimension of the inputs; got shapes",
        ),
        (lambda: functions.cost_constant([([[1.0]], None)], 2, [0], [1]), "must have rank 2; the ranks are 1"),
        (lambda: functions.kernel_ridge_jacobian_rank(3, 2, 1, 2), "affine_dim must be between 0 and 1; got 2"),
        (lambda: functions.kernel_ridge([[0.0]], [[0.0]], ridge=1.0, kernel="cauchy"), "one of gaussian, laplace"),
        (lambda: functions.cross_map([[1.0]]), "rows of two numbers; got shape"),
        (lambda: functions.relu_from_leaky([1.0], 1.0), "between -1 and 1; got 1.0"),
        (lambda: functions.balance_defect_prediction(1.0, -1.0, 1.0), "ridge must not be negative; got -1"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
