"""From a model back to its architecture, and every reason to refuse."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations

from hessmap.errors import UnsupportedNetwork
from hessmap.networks import ACTIVATIONS, FullyConnected, Polynomial, describe

networks = st.builds(
    FullyConnected,
    st.lists(st.integers(1, 5), min_size=2, max_size=5),
    activation=st.sampled_from((*ACTIVATIONS, Polynomial((0, 1, 0.5)), Polynomial((1, -2)))),
)


@given(networks, st.data(), st.sampled_from([torch.float32, torch.float64]))
def test_describing_a_built_network_gives_the_network(net, data, dtype):
    biases = data.draw(st.lists(st.booleans(), min_size=net.num_layers, max_size=net.num_layers))
    net = replace(net, bias=biases)
    assert describe(net.build(dtype=dtype)) == net
    assert net.biases == tuple(biases)


def test_a_bias_in_some_layers_is_described_layer_by_layer():
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1, bias=False))
    assert describe(model) == FullyConnected((3, 2, 1), bias=(True, False), activation="relu")
    assert str(describe(model)) == "3-2b-1 relu"


def test_nesting_flatten_identity_and_idle_dropout_are_seen_through():
    model = nn.Sequential(
        nn.Flatten(),
        nn.Sequential(nn.Linear(4, 3), nn.Identity(), nn.ReLU(inplace=True), nn.Dropout(0.0)),
        nn.Sequential(nn.Sequential(nn.Linear(3, 2)), nn.ReLU()),
        nn.Linear(2, 1),
        nn.Identity(),
    )
    assert describe(model) == FullyConnected((4, 3, 2, 1), bias=True, activation="relu")


def test_linear_layers_without_anything_between_are_a_linear_network():
    model = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False))
    assert describe(model) == FullyConnected((4, 3, 2))


def test_a_lone_linear_layer_is_a_network():
    assert describe(nn.Linear(4, 3)) == FullyConnected((4, 3), bias=True)


def test_dropout_counts_as_off_only_in_eval_mode():
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5), nn.Linear(3, 2))
    with pytest.raises(UnsupportedNetwork, match=r"layer 1 \(Dropout\) is neither"):
        describe(model)
    assert describe(model.eval()).widths == (4, 3, 2)


class Residual(nn.Module):
    def forward(self, inputs):
        return inputs + 1


class Shouting(nn.Sequential):
    def forward(self, inputs):
        return 2 * super().forward(inputs)


class LoudTanh(nn.Tanh):
    def forward(self, inputs):
        return 2 * super().forward(inputs)


class Tail(nn.Flatten):
    def forward(self, inputs):
        return super().forward(inputs)[:, :3]


class Noise(nn.Dropout):
    def forward(self, inputs):
        return inputs + 1


def empty(inputs, outputs):
    """A layer without weights, made without torch's warning."""
    layer = nn.Linear(1, 1, bias=False)
    layer.weight = nn.Parameter(torch.zeros(outputs, inputs))
    return layer


def own_forward():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].forward = lambda inputs: 2 * inputs
    return model


def tied():
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


def tied_weight():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    return model


def hooked():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].register_forward_hook(lambda module, inputs, output: 2 * output)
    return model


REFUSED = {
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()),
        r"layer 0 \(Conv2d\) is neither",
    ),
    "custom module": (lambda: nn.Sequential(nn.Linear(3, 3), Residual()), r"layer 1 \(Residual\) is neither"),
    "whole model": (lambda: Residual(), r"the model \(Residual\) is neither"),
    "other forward": (lambda: Shouting(nn.Linear(3, 2)), r"the model \(Shouting\)"),
    "subclassed activation": (
        lambda: nn.Sequential(nn.Linear(3, 2), LoudTanh(), nn.Linear(2, 1)),
        r"layer 1 \(LoudTanh\)",
    ),
    "nested name": (
        lambda: nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))),
        r"layer 1\.1 \(BatchNorm1d\)",
    ),
    "no linear": (lambda: nn.Sequential(nn.Flatten()), "the model holds no nn.Linear"),
    "activation first": (
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(3, 2)),
        r"layer 0 \(ReLU\) stands before the first",
    ),
    "flatten late": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Flatten()), r"layer 1 \(Flatten\)"),
    "final activation": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Tanh()),
        r"layer 1 \(Tanh\) follows the last nn.Linear\. Leave it out, or make it part of the loss",
    ),
    "final softmax": (lambda: nn.Sequential(nn.Linear(3, 2), nn.Softmax(dim=1)), r"layer 1 \(Softmax\)"),
    "mixed activations": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)),
        "they have relu, tanh",
    ),
    "activation in some layers": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2), nn.Linear(2, 1)),
        "they have relu, identity",
    ),
    "two in a row": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Tanh(), nn.Linear(2, 1)),
        r"layers 1 \(ReLU\) and 2 \(Tanh\) follow one another",
    ),
    "slope": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.LeakyReLU(0.2), nn.Linear(2, 1)),
        r"layer 1 \(LeakyReLU\) has negative_slope=0.2 where 'leaky_relu' has 0.01",
    ),
    "alpha": (lambda: nn.Sequential(nn.Linear(3, 2), nn.ELU(2.0), nn.Linear(2, 1)), "has alpha=2.0"),
    "tanh gelu": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.GELU(approximate="tanh"), nn.Linear(2, 1)),
        "has approximate='tanh'",
    ),
    "tied module": (tied, r"layer 2 \(Linear\) shares a parameter with layer 0"),
    "tied weight": (tied_weight, r"layer 2 \(Linear\) shares a parameter with layer 0"),
    "hook": (hooked, r"layer 0 \(Linear\) has forward hooks"),
    "parametrised": (
        lambda: nn.Sequential(parametrizations.weight_norm(nn.Linear(3, 2))),
        r"layer 0 \(ParametrizedLinear\)",
    ),
    "own forward": (own_forward, r"layer 0 \(Linear\) has a forward pass of its own"),
    "empty layer": (lambda: nn.Sequential(empty(3, 0), empty(0, 2)), r"layer 0 \(Linear\) has an empty parameter"),
    "subclassed flatten": (lambda: nn.Sequential(Tail(), nn.Linear(3, 2)), r"layer 0 \(Tail\) is neither"),
    "subclassed dropout": (lambda: nn.Sequential(nn.Linear(3, 2), Noise(0.0)), r"layer 1 \(Noise\) is neither"),
    "widths that do not meet": (
        lambda: nn.Sequential(nn.Linear(3, 2), nn.Linear(4, 1)),
        r"layer 1 \(Linear\) takes 4 inputs, layer 0 gives 2",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_network_that_widths_cannot_describe_is_refused_by_the_name_of_its_layer(case):
    make, message = REFUSED[case]
    with pytest.raises(UnsupportedNetwork, match=message):
        describe(make())


def test_a_flatten_that_mixes_samples_is_refused():
    with pytest.raises(UnsupportedNetwork, match=r"layer 0 \(Flatten\) is neither"):
        describe(nn.Sequential(nn.Flatten(0), nn.Linear(4, 3)))


def test_what_is_no_module_is_refused():
    with pytest.raises(UnsupportedNetwork, match="describe needs a torch.nn.Module; got a FullyConnected"):
        describe(FullyConnected((4, 3)))
