"""Networks on images: counts, texts, and what they compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hessmap.errors import InvalidInput
from hessmap.networks import Convolutional, ImageConvolutional, parse_network


@st.composite
def image_networks(draw: Any) -> ImageConvolutional:
    depth = draw(st.integers(1, 3))
    size = current = (draw(st.integers(1, 7)), draw(st.integers(1, 7)))
    kernels, strides, paddings = [], [], []
    for _ in range(depth):
        paddings.append(draw(st.integers(0, 2)))
        strides.append(draw(st.integers(1, 3)))
        kernels.append(tuple(draw(st.integers(1, length + 2 * paddings[-1])) for length in current))
        current = tuple(
            (length + 2 * paddings[-1] - taps) // strides[-1] + 1
            for length, taps in zip(current, kernels[-1], strict=True)
        )
    channels = draw(st.lists(st.integers(1, 3), min_size=depth + 1, max_size=depth + 1))
    bias = draw(st.booleans() | st.lists(st.booleans(), min_size=depth + 1, max_size=depth + 1))
    activation = draw(st.sampled_from(("identity", "relu", "tanh")))
    return ImageConvolutional(size, channels, kernels, strides, draw(st.integers(1, 4)), bias, activation, paddings)


@given(image_networks())
def test_a_network_counts_its_units_and_parameters_and_reads_its_text(net: ImageConvolutional) -> None:
    model = net.build(seed=1)
    layers = [layer for layer in model if isinstance(layer, nn.Conv2d | nn.Linear)]
    counts = [sum(parameter.numel() for parameter in layer.parameters()) for layer in layers]
    assert tuple(counts) == net.layer_parameters
    seen: list[int] = []
    inputs = torch.zeros(2, net.input_dim, dtype=torch.float64)
    for layer in model:
        inputs = layer(inputs)
        if isinstance(layer, nn.Conv2d | nn.Linear):
            seen.append(inputs[0].numel())
    assert (net.input_dim, *seen) == net.widths
    assert parse_network(str(net)) == net


def test_one_column_of_pixels_is_a_network_of_one_dimension() -> None:
    image = ImageConvolutional((7, 1), (2, 3, 4), ((3, 1), (2, 1)), (1, 2), outputs=2, paddings=(0, 0))
    line = Convolutional(7, (2, 3, 4), (3, 2), (1, 2), outputs=2)
    assert (image.widths, image.layer_parameters) == (line.widths, line.layer_parameters)
    first, second = image.build(seed=0), line.build(seed=0)
    second.load_state_dict(
        {name: value.squeeze(-1) if value.dim() == 4 else value for name, value in first.state_dict().items()}
    )
    inputs = torch.randn(5, 14, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.equal(first(inputs), second(inputs))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conv-3x32x32-16x3-10", "a network on images must be written as"),
        ("conv-3x32x32/2-16x3x3-10", "a network on images must be written as"),
        ("conv-3x4x4-16x5x3-10", "a kernel must fit into its input; kernels\\[0\\] is 5, its input has 4 positions"),
        ("conv-3x0x4-16x1x1-10", "input_size\\[0\\] must be an integer of at least 1"),
    ],
)
def test_a_text_that_names_no_network_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_network(text)


def test_arguments_that_make_no_network_are_refused() -> None:
    with pytest.raises(InvalidInput, match="channels must contain 2 integers for 1 kernels"):
        ImageConvolutional(4, (1, 2, 3), (2,))
    with pytest.raises(InvalidInput, match=r"kernels\[0\] must be an integer or \(height, width\)"):
        ImageConvolutional(4, (1, 2), ((2, 2, 2),))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="kernels must be a sequence"):
        ImageConvolutional(4, (1, 2), 3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="at least one convolution"):
        ImageConvolutional(4, (1,), ())
