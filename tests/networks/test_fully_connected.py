"""Architectures: counts, texts, refusals, and how they are built."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from hessmap.errors import InvalidInput, UnknownName
from hessmap.networks import ACTIVATIONS, INITIALISATIONS, FullyConnected, Polynomial, activation_module

polynomials = st.lists(st.floats(-4, 4), min_size=2, max_size=5).filter(lambda c: any(c[1:])).map(Polynomial)
networks = st.builds(
    FullyConnected,
    st.lists(st.integers(1, 6), min_size=2, max_size=5),
    bias=st.booleans(),
    activation=st.sampled_from(tuple(ACTIVATIONS)) | polynomials,
)


@st.composite
def networks_with_biases(draw):
    net = draw(networks)
    return replace(net, bias=draw(st.lists(st.booleans(), min_size=net.num_layers, max_size=net.num_layers)))


@given(networks | networks_with_biases())
def test_number_of_parameters_is_that_of_the_built_model(net):
    model = net.build()
    assert sum(parameter.numel() for parameter in model.parameters()) == net.num_parameters
    assert len(list(model)) == 2 * net.num_layers - 1


@share_of_examples(2)
@given(networks | networks_with_biases())
def test_a_network_reads_back_from_its_own_text(net):
    assert FullyConnected.parse(str(net)) == net


def test_a_bias_in_some_layers_is_written_behind_their_widths():
    assert FullyConnected.parse("64-30b-10") == FullyConnected((64, 30, 10), bias=(True, False))
    assert FullyConnected.parse("64-30b-10b relu") == FullyConnected((64, 30, 10), bias=True, activation="relu")
    assert FullyConnected((3, 2, 1), bias=[False, False]).bias is False
    with pytest.raises(InvalidInput, match=r"'64b' is the input and has none"):
        FullyConnected.parse("64b-30-10")
    with pytest.raises(InvalidInput, match=r"or as b after the width of each layer that has one; got both"):
        FullyConnected.parse("64-30b-10 bias")
    with pytest.raises(InvalidInput, match=r"bias of 2 layers must be True or False for each; got \(True,\)"):
        FullyConnected((3, 2, 1), bias=[True])
    with pytest.raises(InvalidInput, match=r"bias of 2 layers must be True or False for each; got \(True, 1\)"):
        FullyConnected((3, 2, 1), bias=[True, 1])


def test_properties_name_the_parts_of_the_widths():
    net = FullyConnected([np.int64(5), 4, 3, 2], bias=True)
    assert net.widths == (5, 4, 3, 2)
    assert all(type(width) is int for width in net.widths)
    assert (net.input_dim, net.hidden_widths, net.output_dim, net.num_layers) == (5, (4, 3), 2, 3)
    assert net.num_parameters == 6 * 4 + 5 * 3 + 4 * 2
    assert net.is_linear
    assert hash(net) == hash(FullyConnected((5, 4, 3, 2), bias=True))


def test_a_network_is_frozen():
    with pytest.raises(AttributeError, match="cannot assign to field 'bias'"):
        FullyConnected((2, 1)).bias = True


def test_without_a_hidden_layer_the_activation_is_identity():
    assert FullyConnected((3, 2), activation="relu") == FullyConnected((3, 2))


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((3,), r"must contain an input and an output; got \(3,\)"),
        ((), r"must contain an input and an output; got \(\)"),
        ((3, 0, 1), r"widths\[1\] is 0"),
        ((3, -2), r"widths\[1\] is -2"),
        ((3, 2.5), r"widths\[1\] is 2.5"),
        ((3, True), r"widths\[1\] is True"),
        ("3-2", r"the text '3-2'\. Use FullyConnected.parse"),
        (7, r"got 7\. Give for example"),
    ],
)
def test_widths_that_are_no_positive_integers_are_refused(widths, message):
    with pytest.raises(InvalidInput, match=message):
        FullyConnected(widths)


def test_an_unknown_activation_is_answered_with_the_near_name():
    with pytest.raises(UnknownName, match="Did you mean 'tanh'"):
        FullyConnected((3, 2, 1), activation="tahn")


def test_a_bias_that_is_no_truth_value_is_refused():
    with pytest.raises(InvalidInput, match="bias must be True or False; got 'relu'"):
        FullyConnected((3, 2, 1), "relu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be written as '64-30-20-10'"),
        ("64x30", "must be written as '64-30-20-10'"),
        ("64-30-10 relu tanh", "at most one activation; got relu and tanh"),
        ("64-0-10", r"widths\[1\] is 0"),
        ("64--10", "must be written as '64-30-20-10'"),
        ("64-30-10 polynomial(0;1)", r"must be written as 'polynomial\(0,1,0.5\)'"),
    ],
)
def test_a_text_that_names_no_network_is_refused(text, message):
    with pytest.raises(InvalidInput, match=message):
        FullyConnected.parse(text)


@pytest.mark.parametrize(
    ("coefficients", "message"),
    [
        ((), "degree at least 1"),
        ((3,), "degree at least 1"),
        ((3, 0, 0), "degree at least 1"),
        ((0, float("nan")), "coefficient 1 is nan"),
    ],
)
def test_polynomials_that_are_constant_or_not_finite_are_refused(coefficients, message):
    with pytest.raises(InvalidInput, match=message):
        Polynomial(coefficients)


def test_polynomials_drop_zeros_of_highest_order():
    assert Polynomial((0, 1, 0.5, 0)) == Polynomial((0, 1, 0.5))
    assert str(Polynomial((-0.0, 1, 0.1))) == "polynomial(0,1,0.1)"


@given(polynomials, st.floats(-3, 3))
def test_the_polynomial_module_is_numpys_polynomial(polynomial, point):
    value = activation_module(polynomial)(torch.tensor(point, dtype=torch.float64))
    expected = np.polynomial.Polynomial(polynomial.coefficients)(point)
    size = np.polynomial.Polynomial(np.abs(polynomial.coefficients))(abs(point))
    assert abs(value.item() - expected) <= 1e-14 * size


def test_the_erf_module_is_the_error_function():
    from scipy.special import erf

    points = torch.linspace(-3, 3, 13, dtype=torch.float64)
    assert np.allclose(activation_module("erf")(points).numpy(), erf(points.numpy()), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("init", INITIALISATIONS)
def test_building_leaves_the_global_random_state_alone_and_depends_on_the_seed_only(init):
    net = FullyConnected((5, 7, 3), bias=True, activation="tanh")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = net.build(seed=4, init=init)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again, other = net.build(seed=4, init=init), net.build(seed=5, init=init)
    for one, same, different in zip(first.parameters(), again.parameters(), other.parameters(), strict=True):
        assert one.dtype == torch.float64
        assert one.requires_grad
        assert torch.equal(one, same)
        assert not torch.equal(one, different)
        assert (one != 0).all()


def test_building_in_single_precision_is_possible():
    assert FullyConnected((3, 2)).build(dtype=torch.float32)[0].weight.dtype == torch.float32


LAWS = {  # variance of the weight, its bound, variance of the bias; fan_in = 300, fan_out = 200
    "gaussian": (1 / 300, None, 1 / 300),
    "uniform": (1 / 900, 1 / 300**0.5, 1 / 900),
    "glorot": (2 / 500, (6 / 500) ** 0.5, 1 / 300),
    "kaiming": (2 / 300, None, 1 / 300),
}


@pytest.mark.parametrize("init", LAWS)
def test_weights_follow_the_stated_law(init):
    layer = FullyConnected((300, 200), bias=True).build(init=init)[0]
    variance, bound, bias_variance = LAWS[init]
    weight = layer.weight.detach()
    # 60,000 weights: the sample variance is within 6 standard errors (at most 0.6 % each) of the stated one.
    assert weight.var().item() == pytest.approx(variance, rel=0.035)
    assert abs(weight.mean().item()) < 6 * (variance / weight.numel()) ** 0.5
    assert layer.bias.var().item() == pytest.approx(bias_variance, rel=0.6)
    if bound is not None:
        assert 0.99 * bound < weight.abs().max().item() <= bound
    else:
        assert weight.abs().max().item() > 3.5 * variance**0.5


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4)])
def test_orthogonal_weights_have_orthonormal_rows_or_columns(shape):
    weight = FullyConnected(shape).build(init="orthogonal")[0].weight.detach()
    gram = weight @ weight.T if weight.shape[0] <= weight.shape[1] else weight.T @ weight
    assert torch.allclose(gram, torch.eye(min(shape), dtype=torch.float64), atol=1e-14)


def test_an_unknown_init_is_answered_with_the_near_name():
    with pytest.raises(UnknownName, match="Did you mean 'gaussian'"):
        FullyConnected((3, 2)).build(init="gausian")


def test_importing_networks_does_not_import_torch():
    code = "import sys, hessmap.networks as n; n.FullyConnected((3, 2, 1)); print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "False"


def test_a_name_that_networks_lacks_is_an_attribute_error():
    import hessmap.networks

    with pytest.raises(AttributeError, match="no attribute 'Transformer'"):
        _ = hessmap.networks.Transformer
