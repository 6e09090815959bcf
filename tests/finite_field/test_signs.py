"""Signs of pre-activations against fractions, where float64 alone gets them wrong."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessmap.exact.evaluation import signs
from hessmap.exact.network import Affine, Chain, ExactActivation, Floats, Identity, LeakyRelu
from hessmap.networks import Polynomial


def as_mlp(matrices: list[Floats], activations: list[ExactActivation], has_bias: bool = False) -> Chain[Floats]:
    layers = tuple(Affine(matrix, np.full(matrix.shape, -1), has_bias) for matrix in matrices)
    return Chain(layers, tuple(activations), 0)


def fraction_signs(chain: Chain[Floats], inputs: Floats) -> tuple[list[list[list[bool]]], int]:
    """The oracle: one sample and one number at a time, in fractions."""
    patterns: list[list[list[bool]]] = [[] for _ in chain.activations]
    ties = 0
    for sample in inputs:
        values = [Fraction(x) for x in sample]
        for place, activation in enumerate(chain.activations):
            layer = chain.layers[place]
            extended = [*values, Fraction(1)] if layer.has_bias else values
            values = [sum(Fraction(w) * x for w, x in zip(row, extended, strict=True)) for row in layer.weights]
            if isinstance(activation, LeakyRelu):
                patterns[place].append([value > 0 for value in values])
                ties += sum(value == 0 for value in values)
                values = [value if value > 0 else Fraction(activation.slope) * value for value in values]
            elif isinstance(activation, Polynomial):
                values = [sum(Fraction(c) * v**k for k, c in enumerate(activation.coefficients)) for v in values]
    return patterns, ties


def check(chain: Chain[Floats], inputs: Floats) -> int:
    found = signs(chain, inputs)
    expected, ties = fraction_signs(chain, inputs)
    for pattern, oracle, activation in zip(found.patterns, expected, chain.activations, strict=True):
        if isinstance(activation, LeakyRelu):
            assert pattern is not None
            assert pattern.tolist() == oracle
        else:
            assert pattern is None
    assert found.num_ties == ties
    return found.num_exact_samples


def test_a_sum_that_cancels_in_float64_has_its_exact_sign() -> None:
    matrix = np.array([[1.0, 1.0, 1.0]])
    inputs = np.array([[1e16, 1.0, -1e16], [-1e16, -1.0, 1e16], [2.0**60, 2.0**-60, -(2.0**60)], [1.0, -1.0, 0.0]])
    assert check(as_mlp([matrix, np.eye(1)], [LeakyRelu()]), inputs) == 4


def test_samples_far_from_every_kink_need_no_integers() -> None:
    generator = np.random.default_rng(0)
    matrices = [generator.normal(size=(5, 4)), generator.normal(size=(3, 5)), generator.normal(size=(2, 3))]
    assert check(as_mlp(matrices, [LeakyRelu(0.01), LeakyRelu()]), generator.normal(size=(50, 4))) == 0


def test_dead_layers_are_ties_without_bias_and_none_with_bias() -> None:
    dead = [np.array([[-1.0], [-2.0]]), np.array([[1.0, 1.0]]), np.array([[1.0]])]
    found = signs(as_mlp(dead, [LeakyRelu(), LeakyRelu()]), np.array([[1.0], [2.0]]))
    assert found.num_ties == 2
    with_bias = [np.hstack([matrix, np.ones((len(matrix), 1))]) for matrix in dead]
    assert check(as_mlp(with_bias, [LeakyRelu(), LeakyRelu()], has_bias=True), np.array([[3.0], [2.0]])) == 0


def test_underflow_and_overflow_are_decided_exactly() -> None:
    tiny = np.array([[5e-324, 5e-324]])
    inputs = np.array([[0.3, -0.2], [0.2, -0.3], [0.25, -0.25]])
    assert check(as_mlp([tiny, np.eye(1)], [LeakyRelu()]), inputs) == 3
    huge = np.array([[1e300, 1e300]])
    check(as_mlp([huge, np.eye(1)], [LeakyRelu()]), np.array([[1e300, -1e300], [1e299, -1e300]]))


def test_a_kink_behind_a_polynomial_is_decided_in_integers() -> None:
    generator = np.random.default_rng(1)
    matrices = [generator.normal(size=(3, 2)), generator.normal(size=(3, 3)), generator.normal(size=(1, 3))]
    chain = as_mlp(matrices, [Polynomial((0.1, -1, 0.3)), LeakyRelu()])
    assert check(chain, generator.normal(size=(9, 2))) == 9


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5, -0.25, 2.0])
def test_rounding_in_the_first_layer_cannot_flip_a_sign_in_the_second(slope: float) -> None:
    """The second layer subtracts what the first one computes twice in different orders."""
    generator = np.random.default_rng(2)
    row = generator.normal(size=8)
    first = np.vstack([row, row[::-1]])
    inputs = generator.normal(size=(200, 4))
    symmetric = np.hstack([inputs, inputs[:, ::-1]])
    second = np.array([[1.0, -1.0], [-1.0, 1.0]])
    chain = as_mlp([first, second, np.eye(2)], [LeakyRelu(slope), LeakyRelu()])
    check(chain, symmetric)
    assert signs(chain, symmetric).num_ties >= 400


def test_integers_of_a_leaky_layer_meet_the_next_bias_at_the_same_scale() -> None:
    """The unit comes out at -0.5: a bias of 0.5 makes a tie, one bit more a positive sign, one less a negative."""
    first = np.array([[-2.0, 0.0]])
    second = np.array([[1.0, 0.5], [1.0, 0.5 + 2.0**-52], [1.0, 0.5 - 2.0**-53]])
    chain = as_mlp([first, second, np.ones((1, 4))], [LeakyRelu(0.25), LeakyRelu()], has_bias=True)
    assert check(chain, np.array([[1.0]])) == 1
    found = signs(chain, np.array([[1.0]]))
    assert found.num_ties == 1
    assert found.patterns[1] is not None
    assert found.patterns[1].tolist() == [[False, True, False]]


small = st.integers(-3, 3).map(float)


@given(
    st.lists(small, min_size=6, max_size=6),
    st.lists(small, min_size=6, max_size=6),
    st.lists(small, min_size=8, max_size=8),
    st.sampled_from([Identity(), LeakyRelu(), LeakyRelu(0.1), Polynomial((0, 1, 0.1))]),
)
def test_signs_of_small_integer_networks_with_many_ties(
    first: list[float], second: list[float], data: list[float], activation: ExactActivation
) -> None:
    matrices = [np.array(first).reshape(3, 2), np.array(second).reshape(2, 3), np.eye(2)]
    check(as_mlp(matrices, [activation, LeakyRelu()]), np.array(data).reshape(4, 2))
