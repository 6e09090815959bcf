"""What a chain reads off torch's layers computes what torch computes, whatever their options."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from hessmap.errors import UnsupportedNetwork
from hessmap.exact import certified_rank
from hessmap.exact.certified import exact_problem
from hessmap.exact.evaluation import float_outputs, require_outputs
from hessmap.exact.field import PrimeField
from hessmap.exact.reading import read_chain
from hessmap.linalg.vectors import Layout
from hessmap.problem.problem import Problem

FIELD = PrimeField(2**62 - 57)

LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "stride": (nn.Conv1d(2, 3, 3, stride=2), (2, 8)),
    "padding": (nn.Conv1d(2, 3, 3, padding=2), (2, 4)),
    "valid": (nn.Conv1d(2, 3, 3, padding="valid"), (2, 4)),
    "same": (nn.Conv1d(2, 3, 3, padding="same", dilation=2), (2, 7)),
    "groups": (nn.Conv1d(4, 6, 2, groups=2), (4, 5)),
    "depthwise": (nn.Conv1d(3, 6, 2, groups=3, bias=False), (3, 5)),
    "circular": (nn.Conv1d(1, 2, 3, padding=2, padding_mode="circular"), (1, 5)),
    "reflect": (nn.Conv2d(1, 2, 3, padding=(1, 2), padding_mode="reflect"), (1, 4, 5)),
    "replicate": (nn.Conv2d(2, 2, 3, padding=1, padding_mode="replicate"), (2, 4, 3)),
    "oblong": (nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2), (2, 5, 6)),
    "max": (nn.MaxPool1d(2), (3, 7)),
    "max with all options": (nn.MaxPool2d((3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)), (2, 6, 5)),
    "max rounded up": (nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True), (1, 6, 6)),
    "three axes": (nn.Conv3d(2, 2, (2, 1, 2), stride=2, padding=(0, 1, 1), groups=2), (2, 4, 3, 3)),
    "max over three axes": (nn.MaxPool3d(2, stride=1, padding=1), (1, 2, 3, 2)),
    "average over three axes": (nn.AvgPool3d((1, 2, 2), stride=1, padding=(0, 1, 0)), (1, 2, 3, 2)),
    "adaptive, three axes": (nn.AdaptiveAvgPool3d((1, 2, None)), (1, 2, 3, 2)),
    "average": (nn.AvgPool2d(2), (2, 5, 4)),
    "average with padding": (nn.AvgPool1d(3, stride=2, padding=1), (2, 6)),
    "average without padding": (nn.AvgPool1d(3, stride=2, padding=1, count_include_pad=False), (2, 6)),
    "average rounded up": (nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True), (1, 6, 5)),
    "average by another number": (nn.AvgPool2d(2, divisor_override=7), (1, 4, 4)),
    "adaptive": (nn.AdaptiveAvgPool1d(3), (2, 7)),
    "adaptive, one axis": (nn.AdaptiveAvgPool2d((None, 2)), (1, 3, 5)),
    "to tokens": (nn.Unflatten(1, (2, 3)), (6,)),
    "tokens": (nn.Linear(3, 4), (2, 5, 3)),
    "unknown part": (nn.Unflatten(-1, (-1, 3)), (2, 6)),
    "partly flat": (nn.Flatten(2), (2, 3, 4)),
}


def layout_of(model: nn.Module) -> Layout:
    return Layout(tuple((name, tuple(value.shape)) for name, value in model.named_parameters()))


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_alone_and_behind_a_relu_computes_what_torch_computes(name: str) -> None:
    layer, shape = LAYERS[name]
    for model in (nn.Sequential(layer), nn.Sequential(nn.ReLU(), layer, nn.ReLU())):
        model = model.double()
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
        chain = read_chain(model, layout_of(model), shape)
        found = float_outputs(chain, inputs.numpy().reshape(4, -1))
        np.testing.assert_allclose(found, model(inputs).detach().numpy().reshape(4, -1), rtol=1e-13, atol=1e-13)


def test_averages_over_two_and_three_are_exact_fractions() -> None:
    """Windows of 2, 3 and 3 of the inputs: halves and thirds behind one another, in the field as in fractions."""
    average = nn.AvgPool1d(3, stride=2, padding=1, count_include_pad=False)
    model = nn.Sequential(average, nn.AvgPool1d(3), nn.Flatten(), nn.Linear(1, 1, bias=False)).double()
    nn.init.ones_(model[3].weight)
    inputs = torch.tensor([[[1.0, 2.0, 5.0, 7.0, -4.0, 0.5]]], dtype=torch.float64)
    exact = exact_problem(Problem(model, "squared", inputs, torch.zeros(1, 1)), FIELD)
    expected = (Fraction(3, 2) + Fraction(14, 3) + Fraction(7, 6)) / 3
    residue = expected.numerator * pow(expected.denominator, -1, FIELD.prime) % FIELD.prime
    assert exact.evaluation.outputs.residues.tolist() == [[residue]]


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (nn.Sequential(nn.Linear(3, 1)), (2,), r"Linear for 3 inputs, but the input has shape \(2,\)"),
        (
            nn.Sequential(nn.Conv1d(2, 1, 1)),
            (1, 2),
            r"Conv1d for 2 channels and 1 axes, but the input has shape \(1, 2\)",
        ),
        (
            nn.Sequential(nn.MaxPool2d(1)),
            (1, 2),
            r"MaxPool2d for channels and 2 axes, but the input has shape \(1, 2\)",
        ),
        (nn.Sequential(nn.Unflatten(1, (2, 2))), (3,), r"Unflatten to \(2, 2\), but the input has shape \(3,\)"),
        (nn.Sequential(nn.Flatten(0)), (3,), r"Flatten of the samples themselves"),
    ],
)
def test_a_layer_that_does_not_fit_is_named_with_the_shape_it_meets(
    model: nn.Module, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UnsupportedNetwork, match=rf"layer 0 is {message}\. Use numerical_rank"):
        read_chain(model, layout_of(model), shape)


def test_a_pool_over_images_of_odd_size_keeps_the_rank_of_the_pixels_it_sees() -> None:
    """Max-pool of 3 pixels by 2 sees the first two; the linear layer behind it has one input."""
    model = nn.Sequential(nn.MaxPool1d(2), nn.Flatten(), nn.Linear(1, 1, bias=False)).double()
    inputs = torch.tensor([[[1.0, 2.0, 9.0]], [[3.0, -1.0, 8.0]]], dtype=torch.float64)
    assert certified_rank(Problem(model, "squared", inputs, torch.zeros(2, 1)), "outer_product").value == 1


def test_outputs_that_cancel_to_rounding_are_still_those_of_the_model() -> None:
    """0.1 x + 0.2 x - 0.3 x: what is left of it depends on the order of the sum."""
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([1e8, 1.0, 1.0]).expand(3, 3))
        model[2].weight.copy_(torch.tensor([[0.1, 0.2, -0.3]], dtype=torch.float64))
    inputs = torch.rand(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    chain = read_chain(model, layout_of(model), (3,))
    outputs = model(inputs).detach().numpy()
    require_outputs(chain, inputs.numpy(), 3 * outputs, np.finfo(float).eps, "")
    require_outputs(chain, inputs.numpy(), np.zeros_like(outputs), np.finfo(float).eps, "")
    with pytest.raises(UnsupportedNetwork, match="its outputs differ from theirs"):
        require_outputs(chain, inputs.numpy(), outputs + 1e-2, np.finfo(float).eps, "")
    with pytest.raises(UnsupportedNetwork, match="its outputs differ from theirs"):
        require_outputs(chain, inputs.numpy(), outputs[:, :0], np.finfo(float).eps, "")


@given(st.data())
def test_a_pool_of_any_options_computes_what_torch_computes(data: st.DataObject) -> None:
    num_axes = data.draw(st.integers(1, 3))

    def sizes(least: int, most: int) -> tuple[int, ...]:
        return tuple(data.draw(st.integers(least, most)) for _ in range(num_axes))

    kernel, stride, rounded_up = sizes(2, 3), sizes(1, 3), data.draw(st.booleans())
    padding, lengths = sizes(0, 1), sizes(5, 7)
    if data.draw(st.booleans()):
        kind = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[num_axes - 1]
        pool = kind(kernel, stride, padding, dilation=sizes(1, 2), ceil_mode=rounded_up)
    else:
        kind = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[num_axes - 1]
        pool = kind(kernel, stride, padding, ceil_mode=rounded_up, count_include_pad=data.draw(st.booleans()))
    inputs = torch.randn(2, 2, *lengths, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = float_outputs(read_chain(nn.Sequential(pool), Layout(()), (2, *lengths)), inputs.numpy().reshape(2, -1))
    np.testing.assert_allclose(found, pool(inputs).numpy().reshape(2, -1), rtol=1e-13, atol=1e-13)
