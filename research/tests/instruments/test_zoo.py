"""The zoo against the tables of Wu et al. 2022, appendix E.2."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hessmap.errors import HessmapError
from hessmap_research.instruments.zoo import zoo_network

MNIST, CIFAR = (1, 28, 28), (3, 32, 32)


def kinds(network: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in network.children()]


def layers(network: nn.Module) -> list[str]:
    return [name for name, layer in network.named_children() if isinstance(layer, nn.Linear | nn.Conv2d)]


def num_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_fully_connected_network_is_that_of_table_3() -> None:
    network = zoo_network("F-200^2")

    assert kinds(network) == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert layers(network) == ["fc1", "fc2", "fc3"]
    assert num_parameters(network) == 784 * 200 + 200 + 200 * 200 + 200 + 200 * 10 + 10


def test_widths_that_differ_are_spelled_one_after_the_other() -> None:
    network = zoo_network("F-20^2-10")

    assert [tuple(layer.weight.shape) for layer in network.children() if isinstance(layer, nn.Linear)] == [
        (20, 784),
        (20, 20),
        (10, 20),
        (10, 10),
    ]


def test_lenet_is_that_of_table_4() -> None:
    network = zoo_network("LeNet5", CIFAR)

    assert layers(network) == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    assert network.get_submodule("conv2").weight.shape == (16, 6, 5, 5)
    assert network.get_submodule("fc1").weight.shape == (120, 400)
    assert num_parameters(network) == 62_006


def test_the_two_initialisations_that_the_paper_names_are_there() -> None:
    """Its text has Glorot's law with zero biases, and "the default of PyTorch", which is another one."""
    said, default = (
        zoo_network("LeNet5", CIFAR, init=init).requires_grad_(False).get_submodule("fc1")
        for init in ("glorot", "uniform")
    )
    fresh = nn.Linear(400, 120).requires_grad_(False)
    assert torch.count_nonzero(said.bias) == 0
    assert torch.count_nonzero(default.bias) == 120
    assert float(said.weight.abs().max()) == pytest.approx((6 / 520) ** 0.5, rel=1e-3)
    assert float(default.weight.abs().max()) == pytest.approx(1 / 20, rel=1e-3)
    assert float(default.weight.std()) == pytest.approx(float(fresh.weight.std()), rel=0.02)


def test_lenet_variants_change_one_layer() -> None:
    network = zoo_network("LeNet5-(fc1-80)-(conv2-32)", CIFAR)

    assert network.get_submodule("fc1").weight.shape == (80, 32 * 25)
    assert network.get_submodule("fc2").weight.shape == (84, 80)


def test_batch_norm_stands_after_relu_and_learns_nothing_as_in_table_5() -> None:
    network = zoo_network("LeNet5-BN", CIFAR)

    hidden_conv = ["Conv2d", "ReLU", "BatchNorm2d", "MaxPool2d"]
    hidden_dense = ["Linear", "ReLU", "BatchNorm1d"]
    assert kinds(network) == ["Unflatten", *hidden_conv * 2, "Flatten", *hidden_dense * 2, "Linear"]
    assert num_parameters(network) == 62_006


@pytest.mark.parametrize(("name", "channels"), [("VGG11-W32", [32] * 8), ("VGG11", [64, 128, 256, 256] + [512] * 4)])
def test_vgg_has_eight_convolutions_and_one_linear_layer(name: str, channels: list[int]) -> None:
    network = zoo_network(name, CIFAR)

    assert layers(network) == [f"conv{index}" for index in range(1, 9)] + ["fc1"]
    assert [network.get_submodule(f"conv{index}").out_channels for index in range(1, 9)] == channels
    assert network.get_submodule("fc1").in_features == channels[-1]


def test_residual_network_has_seventeen_convolutions_and_three_on_shortcuts() -> None:
    network = zoo_network("ResNet18-W8", CIFAR)

    expected = [f"conv{index}" for index in range(1, 18)] + ["sc-conv1", "sc-conv2", "sc-conv3"]
    assert layers(network) == [*expected, "fc1"]
    assert num_parameters(network) == 3 * 8 * 9 + 16 * 8 * 8 * 9 + 3 * 8 * 8 + 8 * 10 + 10


def test_residual_block_adds_its_input() -> None:
    network = zoo_network("ResNet18-W4", CIFAR)
    with torch.no_grad():
        for index in range(2, 18):
            network.get_submodule(f"conv{index}").weight.zero_()
    inputs = torch.randn(2, 3 * 32 * 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    hidden = network.get_submodule("conv1")(inputs.unflatten(1, CIFAR)).relu()
    for index in (1, 2, 3):
        hidden = network.get_submodule(f"sc-conv{index}")(hidden).relu()
    torch.testing.assert_close(network(inputs), network.get_submodule("fc1")(hidden.mean((2, 3))), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["F-5^2", "F-5-BN", "LeNet5", "LeNet5-BN", "VGG11-W2", "VGG11-W2-BN", "ResNet18-W2"])
def test_every_network_takes_flat_inputs_and_depends_on_its_seed_alone(name: str) -> None:
    inputs = torch.randn(3, 3072, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first, same, other = (zoo_network(name, CIFAR, 7, seed=seed).eval() for seed in (3, 3, 4))

    assert first(inputs).shape == (3, 7)
    assert torch.equal(first(inputs), same(inputs))
    assert not torch.equal(first(inputs), other(inputs))
    assert all(not layer.bias.any() for layer in first.modules() if getattr(layer, "bias", None) is not None)


@pytest.mark.parametrize("name", ["", "F", "F-", "LeNet", "LeNet5-(fc3-5)", "VGG11-32", "ResNet18", "ResNet18-W4-BN"])
def test_unknown_name_is_refused_with_examples(name: str) -> None:
    with pytest.raises(HessmapError, match=r"must have a name of the zoo.*Examples: F-200\^2"):
        zoo_network(name)


def test_images_that_are_too_small_are_refused_with_the_layer() -> None:
    with pytest.raises(HessmapError, match=r"LeNet5 needs larger images; conv2 meets one of \(2, 2\) pixels"):
        zoo_network("LeNet5", (1, 8, 8))
    with pytest.raises(HessmapError, match=r"VGG11-W4 needs larger images; maxpool_conv8"):
        zoo_network("VGG11-W4", MNIST)


def test_shape_and_class_count_are_checked() -> None:
    with pytest.raises(HessmapError, match="image_shape must be three positive sizes"):
        zoo_network("F-5", (28, 28))  # type: ignore[arg-type]
    with pytest.raises(HessmapError, match="num_classes must be at least 1"):
        zoo_network("F-5", MNIST, 0)
