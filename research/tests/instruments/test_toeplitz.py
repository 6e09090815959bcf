"""Convolutions as matrices, against torch's own convolutions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap_research.toeplitz import toeplitz_layer

torch.manual_seed(0)
LAYERS = {
    "plain": (nn.Conv1d(1, 2, 3), (1, 7)),
    "channels": (nn.Conv1d(3, 2, 2), (3, 5)),
    "stride": (nn.Conv1d(2, 3, 3, stride=2), (2, 8)),
    "stride beyond the kernel": (nn.Conv1d(2, 1, 2, stride=3), (2, 9)),
    "padding": (nn.Conv1d(2, 2, 3, padding=2), (2, 4)),
    "same": (nn.Conv1d(1, 2, 5, padding="same"), (1, 6)),
    "dilation": (nn.Conv1d(2, 2, 3, dilation=2, padding=1), (2, 8)),
    "groups": (nn.Conv1d(4, 6, 2, groups=2), (4, 5)),
    "reflected": (nn.Conv1d(1, 2, 3, padding=2, padding_mode="reflect"), (1, 5)),
    "circular": (nn.Conv2d(2, 1, 3, padding=1, padding_mode="circular"), (2, 4, 5)),
    "two dimensions": (nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 0)), (2, 5, 4)),
    "three dimensions": (nn.Conv3d(1, 2, 2, padding=1), (1, 3, 2, 4)),
    "pooling": (nn.AvgPool2d(2), (3, 4, 5)),
    "padded pooling": (nn.AvgPool1d(3, stride=2, padding=1), (2, 7)),
    "dense": (nn.Linear(5, 3), (5,)),
}

each_layer = pytest.mark.parametrize(("module", "shape"), LAYERS.values(), ids=LAYERS)


def largest_difference(module: nn.Module, shape: tuple[int, ...]) -> float:
    module = module.double()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    outputs = module(inputs).detach()
    bias = getattr(module, "bias", None)
    if bias is not None:
        outputs = outputs - bias.detach().reshape(-1, *[1] * (outputs.ndim - 2))
    layer = toeplitz_layer(module, shape)
    assert layer.output_shape == outputs.shape[1:]
    return float((inputs.flatten(1) @ layer.matrix.T - outputs.flatten(1)).abs().max())


@each_layer
def test_matrix_does_what_the_layer_does(module: nn.Module, shape: tuple[int, ...]) -> None:
    assert largest_difference(module, shape) < 1e-12


@given(st.data())
def test_matrix_of_any_convolution_does_what_torch_does(data: st.DataObject) -> None:
    def count(most: int, least: int = 1) -> int:
        return data.draw(st.integers(least, most))

    dimensions, groups = count(2), count(2)
    kernel, stride, dilation, padding = ([count(3) for _ in range(dimensions)] for _ in range(4))
    spans = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    lengths = [count(span + 4, max(1, span - 2 * zeros)) for span, zeros in zip(spans, padding, strict=True)]
    kind = (nn.Conv1d, nn.Conv2d)[dimensions - 1]
    module = kind(groups * count(2), groups * count(2), kernel, stride, padding, dilation, groups)
    assert largest_difference(module, (module.in_channels, *lengths)) < 1e-12


@each_layer
def test_matrix_is_its_derivative_times_the_weights(module: nn.Module, shape: tuple[int, ...]) -> None:
    layer = toeplitz_layer(module.double(), shape)
    rows, columns = layer.shape
    assert layer.derivative.shape == (rows * columns, layer.num_weights)
    if isinstance(module, nn.AvgPool1d | nn.AvgPool2d):
        assert layer.num_weights == 0
    else:
        weights = module.weight.detach()
        assert layer.num_weights == weights.numel()
        assert torch.equal(layer.derivative @ weights.reshape(-1), layer.matrix.reshape(-1))
    whole = torch.kron(torch.eye(len(layer.filters), dtype=torch.float64), layer.filter_derivative)
    assert torch.allclose(whole @ layer.filters.reshape(-1), layer.matrix.reshape(-1), rtol=0, atol=1e-15)


def printed_derivative(length: int, channels: int, kernel: int) -> Tensor:
    """Q of Lemma 1: identities shifted down by the powers of the rotation, one block for each position."""
    rotation = torch.zeros(length, length, dtype=torch.float64)
    rotation[torch.arange(length), torch.arange(length) - 1] = 1
    block, blocks = torch.eye(length, kernel, dtype=torch.float64), []
    for _ in range(length - kernel + 1):
        blocks.append(torch.kron(torch.eye(channels, dtype=torch.float64), block))
        block = rotation @ block
    return torch.cat(blocks)


@pytest.mark.parametrize(("length", "channels", "kernel"), [(5, 1, 2), (6, 3, 4), (4, 2, 4), (3, 2, 1)])
def test_derivative_of_a_filter_is_that_of_lemma_1(length: int, channels: int, kernel: int) -> None:
    torch.manual_seed(0)
    layer = toeplitz_layer(nn.Conv1d(channels, 2, kernel).double(), (channels, length))
    assert torch.equal(layer.filter_derivative, printed_derivative(length, channels, kernel))


def test_picture_shows_shared_weights_as_equal_letters() -> None:
    layer = toeplitz_layer(nn.Conv1d(2, 2, 2, groups=2), (2, 3))
    assert layer.picture() == "\n".join(
        ["a b .  |  . . .", ". a b  |  . . .", "", ". . .  |  c d .", ". . .  |  . c d"],
    )
    assert repr(layer) == "ToeplitzLayer(2 of 3 -> 2 of 2: 4 x 6, 4 weights at 8 of 24)"
    assert "*" in toeplitz_layer(nn.Conv1d(1, 1, 3, padding=1, padding_mode="circular"), (1, 2)).picture()


def test_a_layer_without_matrix_is_refused() -> None:
    with pytest.raises(UnsupportedNetwork, match=r"is a convolution, .*; got a ReLU"):
        toeplitz_layer(nn.ReLU(), (3,))
    with pytest.raises(UnsupportedNetwork, match="count_include_pad=True"):
        toeplitz_layer(nn.AvgPool1d(2, padding=1, count_include_pad=False), (1, 4))


def test_an_input_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"must have shape \(2, any\); got \(3, 5\)"):
        toeplitz_layer(nn.Conv1d(2, 1, 2), (3, 5))
    with pytest.raises(InvalidInput, match=r"must have shape \(2, any, any\); got \(2, 5\)"):
        toeplitz_layer(nn.Conv2d(2, 1, 2), (2, 5))
    with pytest.raises(InvalidInput, match=r"a sequence of integers, as \(channels, length\); got 8"):
        toeplitz_layer(nn.Conv1d(1, 1, 2), 8)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must fit into its padded input; it spans 5 of 4"):
        toeplitz_layer(nn.Conv1d(1, 1, 3, dilation=2), (1, 4))


def test_a_matrix_of_pooling_takes_no_random_numbers() -> None:
    before = torch.get_rng_state()
    toeplitz_layer(nn.AvgPool2d((2, 3), stride=1, padding=1), (2, 4, 4))
    assert torch.equal(torch.get_rng_state(), before)


def test_pooling_is_refused_where_the_input_does_not_fit() -> None:
    with pytest.raises(InvalidInput, match=r"must have shape \(any, any, any\); got \(1, 4\)"):
        toeplitz_layer(nn.AvgPool2d(2), (1, 4))
    with pytest.raises(InvalidInput, match="a kernel must fit into its padded input; it spans 3 of 2 entries"):
        toeplitz_layer(nn.AvgPool1d(3), (1, 2))
