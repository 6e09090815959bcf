"""The oracle itself, compared with differences that are exact because every parameter enters to the first power."""

import random

import pytest

from exact_oracle import (
    PRIME,
    functional_hessian,
    generic_hessians,
    hessians,
    jacobian,
    offsets,
    random_matrix,
    random_network,
    rank,
    trace,
)

ARCHITECTURES = [((3, 2), False), ((2, 3, 2), False), ((2, 2, 1, 3), False), ((2, 3, 2), True), ((1, 2, 2, 2), True)]


def outputs_at(layers, sample, parameters):
    flat = iter(parameters)
    moved = [[[next(flat) for _ in row] for row in layer] for layer in layers]
    return trace(moved, sample).outputs


def shifted(parameters, *places):
    return [value + places.count(place) for place, value in enumerate(parameters)]


@pytest.mark.parametrize(("widths", "bias"), ARCHITECTURES)
def test_jacobian_equals_exact_differences_of_the_outputs(widths, bias):
    draw = random.Random(1)
    layers = random_network(draw, widths, bias)
    sample = random_matrix(draw, 1, widths[0])[0]
    parameters = [entry for layer in layers for row in layer for entry in row]
    base = outputs_at(layers, sample, parameters)
    found = jacobian(layers, trace(layers, sample))
    for place in range(len(parameters)):
        moved = outputs_at(layers, sample, shifted(parameters, place))
        assert [row[place] for row in found] == [(new - old) % PRIME for new, old in zip(moved, base, strict=True)]


@pytest.mark.parametrize(("widths", "bias"), ARCHITECTURES)
def test_functional_hessian_equals_exact_second_differences(widths, bias):
    draw = random.Random(2)
    layers = random_network(draw, widths, bias)
    sample = random_matrix(draw, 1, widths[0])[0]
    residual = random_matrix(draw, 1, widths[-1])[0]
    parameters = [entry for layer in layers for row in layer for entry in row]

    def weighted(*places):
        moved = outputs_at(layers, sample, shifted(parameters, *places))
        return sum(factor * value for factor, value in zip(residual, moved, strict=True))

    base, single = weighted(), [weighted(place) for place in range(len(parameters))]
    found = functional_hessian(layers, trace(layers, sample), residual)
    for i in range(len(parameters)):
        for j in range(i):
            assert found[i][j] == (weighted(i, j) - single[i] - single[j] + base) % PRIME
            assert found[j][i] == found[i][j]
        assert found[i][i] == 0


def test_relu_signs_come_from_the_integers():
    layers = [[[1, -2], [3, 1]], [[1, 1]]]
    met = trace(layers, [1, 1], relu=True)
    assert met.slopes == [[0, 1]]
    assert met.outputs == [4]
    assert jacobian(layers, met) == [[0, 0, 1, 1, 0, 4]]


def test_layer_offsets_count_the_bias():
    layers = random_network(random.Random(0), (2, 3, 1), True)
    assert offsets(layers) == [0, 9, 13]


def test_weights_of_maximal_rank_whose_products_are_not_lose_outer_product_rank():
    layers = [
        [[1, 0], [0, 1], [0, 0]],
        [[1, 0, 0], [0, 0, 1]],
        [[1, 0], [0, 0], [0, 1]],
        [[1, 0, 0], [0, 1, 0]],
    ]
    assert all(rank(layer) == 2 for layer in layers)
    identity = [[1, 0], [0, 1]]
    found = hessians(layers, identity, [[0, 0], [0, 0]], [identity, identity])
    assert rank(found.outer_product) == 3
    assert rank(generic_hessians((2, 3, 2, 3, 2)).outer_product) == 4


def test_one_special_residual_scale_loses_rank_of_the_loss_hessian():
    # 1-1-1 at w1 = w2 = 1 on x = 1: the outer product is [[1, 1], [1, 1]], so Omega = -2 leaves rank one.
    layers = [[[1]], [[1]]]
    assert hessians(layers, [[1]], [[-2]], [[[1]]]).ranks() == (1, 2, 1)
    assert hessians(layers, [[1]], [[-3]], [[[1]]]).ranks() == (1, 2, 2)
