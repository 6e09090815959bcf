"""One geometry of convolutions, against torch's own: patches, their transpose, matrices and plain indices."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from hessmap.errors import InvalidInput
from hessmap.problem.geometry import ConvolutionGeometry

CONVOLUTIONS = {1: (F.conv1d, nn.Conv1d), 2: (F.conv2d, nn.Conv2d), 3: (F.conv3d, nn.Conv3d)}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def relative_error(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())


def by_indices(inputs: Tensor, weight: Tensor, indices: np.ndarray) -> Tensor:
    """The convolution from nothing but integers: -1 meets the zero at the end."""
    groups = len(indices)
    met = F.pad(inputs.flatten(1), (0, 1))[:, torch.from_numpy(indices)]
    return torch.einsum("ngtf,gof->ngot", met, weight.reshape(groups, len(weight) // groups, -1)).flatten(1, 2)


@given(
    num_axes=st.integers(1, 3),
    groups=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.sampled_from([0, 1, 2, "same", "valid"]),
    length=st.integers(5, 7),
)
def test_patches_spread_gradients_matrix_and_indices_all_make_the_convolution(
    num_axes, groups, kernel, stride, dilation, padding, length
):
    stride = 1 if padding == "same" else stride
    image, kernels = (length, length + 1, 4)[:num_axes], (kernel, 2, 1)[:num_axes]
    images, weight = drawn(3, 2 * groups, *image), drawn(3 * groups, 2, *kernels, seed=1)
    pads = tuple((dilation * (size - 1) // 2, dilation * (size - 1) - dilation * (size - 1) // 2) for size in kernels)
    flat = [pad for pair in reversed(pads) for pad in pair]
    padded = F.pad(images, flat) if padding == "same" else images  # as torch pads, without its warning for even kernels
    given_padding = 0 if isinstance(padding, str) else padding
    convolution, _ = CONVOLUTIONS[num_axes]
    expected = convolution(padded, weight, None, stride, given_padding, dilation, groups).flatten(2)
    geometry = ConvolutionGeometry.of_call(image, kernels, stride, padding, dilation, groups)

    patches, kernel_rows = geometry.patches(images.flatten(1)), weight.reshape(groups, 3, -1)
    assert relative_error(torch.einsum("gntf,gof->ngot", patches, kernel_rows).flatten(1, 2), expected) < 1e-13
    side_by_side = geometry.unfolded_inputs(images).unflatten(2, (groups, -1))
    assert torch.equal(side_by_side, patches.permute(1, 2, 0, 3))
    gradients = drawn(*expected.shape, seed=2)
    spread = geometry.spread(gradients).reshape(groups, 3, -1, 3, weight[0, 0].numel())
    back = torch.einsum("gnuok,gock->ngcu", spread, weight.reshape(groups, 3, 2, -1))
    assert float((back.flatten(1) * images.flatten(1)).sum()) == pytest.approx(float((gradients * expected).sum()))
    matrix = geometry.matrix(weight)
    if matrix is not None:
        assert relative_error(images.flatten(1) @ matrix, expected.flatten(1)) < 1e-13
    assert relative_error(by_indices(images, weight, geometry.input_indices(2 * groups)), expected) < 1e-13


@pytest.mark.parametrize("num_axes", [1, 2, 3])
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
def test_indices_follow_every_padding_mode(mode: str, num_axes: int) -> None:
    build = CONVOLUTIONS[num_axes][1]
    module = build(2, 4, 3, stride=2, padding=2, groups=2, bias=False, padding_mode=mode, dtype=torch.float64)
    image = (5, 6, 4)[:num_axes]
    geometry, images = ConvolutionGeometry.of_module(module, image), drawn(3, 2, *image)
    found = by_indices(images, module.weight.detach(), geometry.input_indices(2, mode))
    assert relative_error(found, module(images).detach().flatten(2)) < 1e-13


def test_a_geometry_counts_its_positions_and_refuses_a_kernel_that_does_not_fit() -> None:
    geometry = ConvolutionGeometry.of_call((7, 9), (3, 2), stride=(2, 3), padding=(1, 0), dilation=(1, 2))
    assert geometry.positions == (4, 3)
    assert geometry.input_indices(2).shape == (1, prod(geometry.positions), 12)
    with pytest.raises(InvalidInput, match="must fit into its padded input; it spans 5 of 4 entries"):
        ConvolutionGeometry.of_module(nn.Conv1d(1, 1, 3, dilation=2), (4,))
    with pytest.raises(InvalidInput, match="it spans 3 of 2 entries"):
        ConvolutionGeometry.of_module(nn.Conv2d(1, 1, 3), (4, 2))
