"""Repeated eigenvalues, counted in float64 spectra of small networks."""

from itertools import pairwise

import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap_research.studies.fcn import spectrum_plateaus as plateaus


def outer_product_eigenvalues(layers, inputs, activation, slope, bias):
    """Eigenvalues of the mean of J^T J, and those of the second moment of the last layer's inputs."""
    hessian, moment = 0.0, 0.0
    for sample in inputs:
        entering, slopes, current = [], [], sample
        for place, layer in enumerate(layers):
            current = np.append(current, 1.0) if bias else current
            entering.append(current)
            current = layer @ current
            if place < len(layers) - 1:
                slopes.append(slope(current))
                current = activation(current)
        blocks, back = [], np.eye(len(layers[-1]))
        for place in reversed(range(len(layers))):
            blocks.insert(0, np.kron(back, entering[place][None, :]))
            if place:
                back = (back @ layers[place][:, : len(slopes[place - 1])]) * slopes[place - 1]
        jacobian = np.hstack(blocks)
        hessian = hessian + jacobian.T @ jacobian / len(inputs)
        moment = moment + np.outer(entering[-1], entering[-1]) / len(inputs)
    return np.linalg.eigvalsh(hessian), np.linalg.eigvalsh(moment)


def count_near(values, target):
    return int(np.sum(np.abs(values - target) < 1e-9 * values.max()))


ACTIVATIONS = {
    "identity": (lambda z: z, np.ones_like),
    "tanh": (np.tanh, lambda z: 1 - np.tanh(z) ** 2),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("widths", [(4, 3, 2, 6), (5, 2, 7), (2, 4, 3, 5)])
def test_every_moment_eigenvalue_repeats_as_often_as_predicted(widths, name, bias):
    generator = np.random.default_rng(7)
    layers = [generator.normal(size=(b, a + bias)) for a, b in pairwise(widths)]
    inputs = generator.normal(size=(30, widths[0]))
    spectrum, moment = outer_product_eigenvalues(layers, inputs, *ACTIVATIONS[name], bias)
    nonzero = moment[moment > 1e-10 * moment.max()]
    predicted = plateaus.outer_product_plateaus(widths[-2], widths[-1], len(nonzero))
    assert predicted.num_plateaus == len(nonzero)
    assert [count_near(spectrum, value) for value in nonzero] == [predicted.multiplicity] * len(nonzero)
    if name == "identity":
        assert len(nonzero) == min(widths[:-1]) + bias


def test_relu_plateaus_are_at_least_as_long():
    generator = np.random.default_rng(3)
    layers = [generator.normal(size=(b, a)) for a, b in [(4, 6), (6, 3), (3, 8)]]
    relu = (lambda z: np.maximum(z, 0.0), lambda z: (z > 0).astype(float))
    spectrum, moment = outer_product_eigenvalues(layers, generator.normal(size=(40, 4)), *relu, False)
    nonzero = moment[moment > 1e-10 * moment.max()]
    predicted = plateaus.outer_product_plateaus(3, 8, len(nonzero))
    assert min(count_near(spectrum, value) for value in nonzero) >= predicted.multiplicity == 5


def test_no_plateau_is_promised_without_more_outputs_than_penultimate_units():
    assert plateaus.outer_product_plateaus(5, 5, 5) == (0, 0)
    assert plateaus.outer_product_plateaus(5, 8, 0) == (0, 0)


def test_moment_rank_beyond_the_width_is_refused():
    with pytest.raises(InvalidInput, match=r"penultimate_moment_rank must be at most 4, .* one for a bias; got 5"):
        plateaus.outer_product_plateaus(3, 8, 5)


@pytest.mark.parametrize("moment_rank", [1, 3])
def test_functional_spectrum_of_one_hidden_linear_layer_is_exact(moment_rank):
    generator = np.random.default_rng(1)
    d, hidden, outputs = 5, 4, 3
    moment = generator.normal(size=(outputs, moment_rank)) @ generator.normal(size=(moment_rank, d))
    hessian = np.zeros(((d + outputs) * hidden,) * 2)
    for unit in range(hidden):
        incoming = slice(unit * d, (unit + 1) * d)
        outgoing = [hidden * d + output * hidden + unit for output in range(outputs)]
        hessian[outgoing, incoming] = moment
        hessian[incoming, outgoing] = moment.T
    singular = np.linalg.svd(moment, compute_uv=False)
    predicted = plateaus.functional_spectrum(singular[:moment_rank], d, hidden, outputs)
    listed = [value for value, multiplicity in predicted for _ in range(multiplicity)]
    np.testing.assert_allclose(listed, np.linalg.eigvalsh(hessian)[::-1], atol=1e-12)


def test_equal_singular_values_share_one_plateau():
    found = plateaus.functional_spectrum([2.0, 2.0, 0.0], 3, 4, 3)
    assert [tuple(pair) for pair in found] == [(2.0, 8), (0.0, 8), (-2.0, 8)]


@pytest.mark.parametrize(
    ("values", "message"),
    [([1.0, 2.0, 3.0], r"at most 2 singular values; got 3"), ([-1.0], r"must be non-negative; got -1\.0")],
)
def test_impossible_singular_values_are_refused(values, message):
    with pytest.raises(InvalidInput, match=message):
        plateaus.functional_spectrum(values, 2, 4, 3)
