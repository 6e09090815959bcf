"""Convolutions by matrix products are torch's, and so are their first and second derivatives."""

import re

import pytest
import torch
from torch import nn

import hessmap as hm
from hessmap.hessians import products
from hessmap.problem import autograd as batch_graph
from hessmap.problem import autograd as graph_memory
from hessmap.problem.evaluation import matrix_convolution

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


class Strided(nn.Module):
    """Reads what a convolution returns as it lies in memory."""

    def __init__(self, flatten):
        super().__init__()
        self.convolution, self.norm, self.head = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Linear(12, 4)
        self.norm.running_mean += torch.tensor([1.0, -2.0, 0.5])
        self.norm.running_var *= 3
        self.flatten = flatten

    def forward(self, images):
        return self.head(self.flatten(torch.tanh(self.norm(self.convolution(images)))))


@pytest.mark.parametrize(
    "flatten",
    [
        lambda hidden: hidden.flatten(1),
        lambda hidden: hidden.view(len(hidden), -1),
        lambda hidden: hidden.as_strided((len(hidden), 12), (12, 1)),
    ],
)
def test_float32_products_are_those_of_autograd_however_outputs_are_read(flatten):
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    model = Strided(flatten).eval()
    inputs = torch.randn(6, 2, 4, 4, generator=generator)
    problem = hm.Problem(model, "cross_entropy", inputs, torch.arange(6) % 4, dtype=torch.float32)
    vector = torch.randn(1, problem.num_parameters, generator=generator)
    batch = next(iter(problem.batches(6)))
    found = batch_graph.loss_product(batch_graph.BatchGraph(problem, batch, vectorised=False))(vector)
    parameters = list(model.parameters())
    risk = nn.functional.cross_entropy(model(inputs), torch.arange(6) % 4)
    slopes = torch.cat([part.flatten() for part in torch.autograd.grad(risk, parameters, create_graph=True)])
    expected = torch.cat([part.flatten() for part in torch.autograd.grad(slopes, parameters, vector[0])])
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)


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
    assert singly._kept is not None
    assert len(singly._kept) > 1
    torch.testing.assert_close(singly(vectors), together, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("image", "kernel"), [((2, 3, 5, 5), (4, 2, 3, 3)), ((2, 3, 2, 5), (4, 3, 3, 3))])
def test_what_does_not_fit_is_refused_in_the_words_of_torch(image: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    images, weight = torch.zeros(image, dtype=torch.float64), torch.zeros(kernel, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="channels|ernel size") as expected:
        torch.conv2d(images, weight)
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        matrix_convolution(images, weight)
