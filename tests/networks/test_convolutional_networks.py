"""Convolutional and locally connected architectures: counts, texts, what they compute, and the way back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import hessmap as hm
from example_shares import share_of_examples
from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.networks import (
    ACTIVATIONS,
    INITIALISATIONS,
    Convolutional,
    FullyConnected,
    LocallyConnected,
    Polynomial,
    describe,
    parse_network,
)

activations = st.sampled_from((*ACTIVATIONS, Polynomial((0, 1, 0.5))))


@st.composite
def convolutional_networks(draw):
    depth = draw(st.integers(1, 3))
    length = draw(st.integers(1, 12))
    kernels, strides, paddings, current = [], [], [], length
    for _ in range(depth):
        paddings.append(draw(st.integers(0, 2)))
        kernels.append(draw(st.integers(1, current + 2 * paddings[-1])))
        strides.append(draw(st.integers(1, 3)))
        current = (current + 2 * paddings[-1] - kernels[-1]) // strides[-1] + 1
    channels = draw(st.lists(st.integers(1, 4), min_size=depth + 1, max_size=depth + 1))
    outputs, activation = draw(st.integers(1, 5)), draw(activations)
    bias = draw(st.booleans() | st.lists(st.booleans(), min_size=depth + 1, max_size=depth + 1))
    return Convolutional(length, channels, kernels, strides, outputs, bias, activation, paddings)


local_networks = st.builds(
    LocallyConnected,
    *[st.integers(1, 5)] * 4,
    shared_weights=st.booleans(),
    activation=activations,
)
networks = convolutional_networks() | local_networks


@share_of_examples(2)
@given(networks)
def test_a_network_counts_its_parameters_reads_its_text_and_is_described_back(net):
    model = net.build()
    counts = [
        sum(parameter.numel() for parameter in layer.parameters())
        for layer in model
        if isinstance(layer, nn.Conv1d | nn.Linear)
    ]
    assert tuple(counts) == net.layer_parameters
    assert sum(counts) == net.num_parameters
    assert model(torch.zeros(2, net.input_dim, dtype=torch.float64)).shape == (2, net.output_dim)
    assert parse_network(str(net)) == type(net).parse(str(net)) == net
    assert describe(model) == net
    assert hash(net) == hash(parse_network(str(net)))


@given(convolutional_networks())
def test_lengths_are_those_that_torch_gives(net):
    values = torch.zeros(1, net.input_dim, dtype=torch.float64)
    seen = []
    for layer in net.build():
        values = layer(values)
        if isinstance(layer, nn.Conv1d):
            seen.append(values.shape[1:])
    assert seen == [(channels, length) for channels, length in zip(net.channels[1:], net.lengths[1:], strict=True)]
    assert net.widths == (net.input_dim, *(shape.numel() for shape in seen), net.outputs)


def test_a_convolution_slides_its_filter_over_the_channels():
    net = Convolutional(4, channels=(2, 1), kernels=(2,), outputs=1)
    model = net.build(seed=3)
    (filters, dense), inputs = [p.detach() for p in model.parameters()], torch.randn(1, 8, dtype=torch.float64)
    image = inputs.reshape(2, 4)
    hidden = torch.stack([(filters[0] * image[:, place : place + 2]).sum() for place in range(3)])
    torch.testing.assert_close(model(inputs)[0], dense @ hidden, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("shared", [False, True])
def test_a_locally_connected_layer_sees_patch_by_patch(shared):
    net = LocallyConnected(patches=3, patch_size=2, filters=4, outputs=2, shared_weights=shared)
    model = net.build(seed=3)
    filters, dense = (p.detach() for p in model.parameters())
    inputs = torch.randn(1, 6, dtype=torch.float64)
    each = filters.reshape(1 if shared else 3, 4, 2).expand(3, 4, 2)
    hidden = torch.einsum("tmk,tk->tm", each, inputs.reshape(3, 2)).flatten()
    torch.testing.assert_close(model(inputs)[0], dense @ hidden, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("init", INITIALISATIONS)
def test_weights_follow_their_law_with_the_fan_of_a_filter(init):
    net = Convolutional(40, channels=(16, 64), kernels=(9,), outputs=3)
    weight = net.build(seed=1, init=init)[1].weight.detach()
    fan_in, fan_out = 16 * 9, 64 * 9
    variance = {
        "gaussian": 1 / fan_in,
        "uniform": 1 / (3 * fan_in),
        "orthogonal": 1 / fan_in,
        "glorot": 2 / (fan_in + fan_out),
        "kaiming": 2 / fan_in,
    }[init]
    assert float(weight.square().mean()) == pytest.approx(variance, rel=0.05)
    if init == "orthogonal":
        rows = weight.flatten(1)
        torch.testing.assert_close(rows @ rows.T, torch.eye(64, dtype=torch.float64), rtol=0, atol=1e-12)


def test_every_patch_has_orthonormal_filters():
    weight = LocallyConnected(3, 5, 4, 2).build(init="orthogonal")[1].weight.detach().reshape(3, 4, 5)
    expected = torch.eye(4, dtype=torch.float64).expand(3, 4, 4)
    torch.testing.assert_close(weight @ weight.mT, expected, rtol=0, atol=1e-12)


def test_building_uses_its_seed_alone():
    state = torch.random.get_rng_state()
    first, second, other = (Convolutional(9).build(seed=seed) for seed in (4, 4, 5))
    assert torch.equal(torch.random.get_rng_state(), state)
    for one, two, three in zip(first.parameters(), second.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
        assert not torch.equal(one, three)


def test_the_public_face_shows_both_and_counts_are_plain_integers():
    net = hm.Convolutional(np.int64(20), channels=[1, np.int32(8), 16])
    assert net == Convolutional(20)
    assert net.strides == (1, 1)
    assert type(net.input_length) is int
    assert hm.networks.LocallyConnected is LocallyConnected
    assert isinstance(parse_network("4-3-2"), FullyConnected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"input_length": 0}, "input_length must be an integer of at least 1; got 0"),
        ({"input_length": 9.0}, "input_length must be an integer of at least 1; got 9.0"),
        ({"kernels": (3, 12)}, r"must fit into its input; kernels\[1\] is 12, its input has 7 positions"),
        ({"kernels": (3, 12), "paddings": (0, 2)}, r"has 7 positions and 2 \* 2 zeros"),
        (
            {"kernels": (3,)},
            r"channels must contain 2 integers for 1 kernels; got \(1, 8, 16\). Begin with the channels",
        ),
        ({"strides": (1,)}, r"strides must contain 2 integers for 2 kernels; got \(1,\)"),
        ({"paddings": (-1, 0)}, r"paddings\[0\] must be an integer of at least 0; got -1"),
        ({"kernels": (), "channels": (1,)}, "at least one convolution; kernels is empty"),
        ({"kernels": 3}, "kernels must be a sequence of integers; got 3"),
        ({"outputs": True}, "outputs must be an integer of at least 1; got True"),
        ({"bias": 1}, "bias must be True or False; got 1"),
        ({"activation": "rleu"}, "Did you mean 'relu'"),
    ],
)
def test_impossible_convolutions_are_refused(arguments, message):
    with pytest.raises(InvalidInput, match=message):
        Convolutional(**{"input_length": 9, **arguments})


@pytest.mark.parametrize(
    "text",
    ["conv-1x20", "conv-1x20-10", "conv-20-8x3-10", "conv-1x20/2-8x3-10", "conv 1x20", "conv-1x20-8x3-10x2", "conv"],
)
def test_an_unreadable_convolution_is_answered_with_the_shape_of_a_readable_one(text):
    with pytest.raises(InvalidInput, match=r"must be written as 'conv-1x20-8x3-16x3-10'.*1 channel of length 20"):
        parse_network(text)


@pytest.mark.parametrize("text", ["local-5x4-3", "local-5-3-10", "local"])
def test_an_unreadable_local_network_is_answered_with_the_shape_of_a_readable_one(text):
    with pytest.raises(InvalidInput, match=r"must be written as 'local-5x4-3-10'.*5 patches of 4 inputs"):
        parse_network(text)


def test_one_patch_has_nothing_to_share():
    assert LocallyConnected(1, 4, 3, 2, shared_weights=True) == LocallyConnected(1, 4, 3, 2)


def test_a_convolution_without_unflatten_is_described_by_its_dense_layer():
    model = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding="same"), nn.ReLU(), nn.Conv1d(4, 3, 2), nn.Flatten(), nn.ReLU(), nn.Linear(21, 5)
    )
    assert describe(model) == Convolutional(8, (2, 4, 3), (3, 2), None, 5, True, "relu", (1, 0))


@pytest.mark.parametrize("shape", [(2, 8), (-1, 8), (2, -1)])
def test_a_size_that_torch_infers_is_read_off_the_layers(shape):
    layers = nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 5)
    expected = Convolutional(8, (2, 4), (3,), None, 5, True, "relu")
    assert describe(nn.Sequential(nn.Unflatten(1, shape), *layers)) == expected


@pytest.mark.parametrize("shape", [(5, 4), (-1, 4), (5, -1)])
@pytest.mark.parametrize("shared", [True, False])
def test_a_number_of_patches_that_torch_infers_is_read_off_the_layers(shape, shared):
    net = LocallyConnected(5, 4, 3, 2, shared_weights=shared)
    model = net.build()
    model[0] = nn.Unflatten(1, shape)
    assert describe(model) == net


def conv(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Unflatten(1, (1, 6)), *layers)


REFUSED = {
    "two dimensions": (lambda: nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 1, 1)), r"the shape \(1, 2, 3\)"),
    "pooling": (
        lambda: conv(nn.Conv1d(1, 2, 3), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(4, 2)),
        r"layer 2 \(MaxPool1d\) is neither .*certified_rank",
    ),
    "dilation": (lambda: conv(nn.Conv1d(1, 2, 2, dilation=2), nn.Flatten(), nn.Linear(8, 2)), "dilation=2"),
    "groups": (
        lambda: conv(nn.Conv1d(1, 2, 3), nn.Conv1d(2, 2, 2, groups=2), nn.Flatten(), nn.Linear(6, 2)),
        r"layer 2 \(Conv1d\) has groups=2",
    ),
    "circular": (
        lambda: conv(nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(12, 2)),
        "padding_mode='circular'",
    ),
    "no flatten": (lambda: conv(nn.Conv1d(1, 2, 3), nn.Linear(4, 2)), "has no nn.Flatten before it"),
    "no dense": (lambda: conv(nn.Conv1d(1, 2, 3), nn.Flatten()), "layers with weights are Conv1d, with an nn.Flatten"),
    "two dense": (
        lambda: conv(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 2)),
        "layers with weights are Conv1d, Linear, Linear",
    ),
    "stride without length": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 3, stride=2), nn.Flatten(), nn.Linear(8, 2)),
        r"has a stride.*Begin the model with nn.Unflatten",
    ),
    "final activation": (
        lambda: conv(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2), nn.ReLU()),
        r"layer 4 \(ReLU\) follows the last nn.Linear",
    ),
    "wrong size": (
        lambda: conv(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(9, 2)),
        r"takes 9 inputs, inputs of shape \(1, 6\) arrive with 8.*cannot run",
    ),
    "no length at all": (
        lambda: nn.Sequential(nn.Conv1d(1, 8, 3), nn.Flatten(), nn.Linear(4, 2)),
        r"layer 2 \(Linear\) takes 4 inputs, and so a kernel must fit into its input.*cannot run",
    ),
    "wrong channels": (
        lambda: conv(nn.Conv1d(1, 2, 3), nn.Conv1d(3, 2, 3), nn.Flatten(), nn.Linear(4, 2)),
        "takes 3 channels, the layer before gives 2",
    ),
    "local bias": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 2), nn.Flatten(), nn.Linear(4, 2)),
        r"layer 1 \(Linear\) has a bias, and a locally connected network has none",
    ),
    "bias behind patches": (
        lambda: nn.Sequential(nn.Unflatten(1, (2, 3)), nn.Linear(3, 2, bias=False), nn.Flatten(), nn.Linear(4, 2)),
        r"layer 3 \(Linear\) has a bias, and a locally connected network has none",
    ),
    "patches of another size": (
        lambda: nn.Sequential(
            nn.Unflatten(1, (2, 3)), nn.Conv1d(2, 4, 2, groups=2, bias=False), nn.Flatten(), nn.Linear(8, 2, bias=False)
        ),
        "does not apply 2 filters to each of 2 patches of 3 inputs",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_network_that_sizes_cannot_describe_is_refused_by_the_name_of_its_layer(case):
    make, message = REFUSED[case]
    with pytest.raises(UnsupportedNetwork, match=message):
        describe(make())
