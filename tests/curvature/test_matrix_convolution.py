"""Convolutions by matrix products are torch's, and so are their first and second derivatives."""

import re

import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.curvature import graph_memory, products
from hessmap.curvature.matrix_convolution import matrix_convolution

SHAPES = {
    "square": ((5, 3, 8, 8), (4, 3, 3, 3), {}),
    "padded": ((5, 2, 7, 6), (3, 2, 5, 3), {"padding": (2, 1)}),
    "one row": ((2, 1, 4, 9), (2, 1, 1, 4), {}),
    "of the image's size": ((3, 2, 4, 4), (5, 2, 4, 4), {}),
    "strided": ((5, 2, 7, 7), (3, 2, 3, 3), {"stride": 2}),
    "dilated": ((5, 2, 7, 7), (3, 2, 3, 3), {"dilation": 2}),
    "grouped": ((5, 4, 6, 6), (4, 2, 3, 3), {"groups": 2}),
    "padding by name": ((5, 2, 7, 7), (3, 2, 3, 3), {"padding": "same"}),
}


def derivatives(convolution, image, kernel, bias, options):
    """The outputs, and what a cubic function of them gives when it is differentiated once and twice."""
    leaves = [value.clone().requires_grad_() for value in (image, kernel, bias)]
    outputs = convolution(*leaves, **options)
    first = torch.autograd.grad((outputs**3).sum(), leaves, create_graph=True)
    second = torch.autograd.grad(first, leaves, [value.detach().cos() for value in leaves])
    return [outputs, *first, *second]


@pytest.mark.parametrize("name", SHAPES)
def test_values_and_two_derivatives_are_those_of_torch(name):
    image_shape, kernel_shape, options = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    sizes = image_shape, kernel_shape, kernel_shape[:1]
    given = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]
    expected = derivatives(torch.conv2d, *given, options)
    found = derivatives(matrix_convolution, *given, options)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("part", ["loss", "outer_product", "functional", "empirical_fisher"])
def test_vectors_one_by_one_and_together_give_the_same_products(monkeypatch, part):
    """Large batches go one vector at a time, through convolutions by matrix products."""
    generator = torch.Generator().manual_seed(0)
    layers = (nn.Conv2d(1, 3, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 2, padding=1), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(64, 5)).double()
    inputs = torch.randn(12, 1, 8, 8, generator=generator, dtype=torch.float64)
    problem = hm.Problem(model, "cross_entropy", inputs, torch.arange(12) % 5)
    vectors = torch.randn(problem.num_parameters, 3, generator=generator, dtype=torch.float64)
    together = products.BlockProducts(problem, part)(vectors)
    monkeypatch.setattr(products, "_SMALL_GRAPH", 0)
    monkeypatch.setattr(graph_memory, "_LARGE_GRAPH", 2**15)
    monkeypatch.setattr(graph_memory, "_TIMES_PARAMETERS", 0)
    singly = products.BlockProducts(problem, part)
    torch.testing.assert_close(singly(vectors), together, rtol=1e-12, atol=1e-13)
    assert singly._stored is not None
    assert len(singly._stored) > 1
    torch.testing.assert_close(singly(vectors), together, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("image", "kernel"), [((2, 3, 5, 5), (4, 2, 3, 3)), ((2, 3, 2, 5), (4, 3, 3, 3))])
def test_what_does_not_fit_is_refused_in_the_words_of_torch(image: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    images, weight = torch.zeros(image, dtype=torch.float64), torch.zeros(kernel, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="channels|ernel size") as expected:
        torch.conv2d(images, weight)
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        matrix_convolution(images, weight)
