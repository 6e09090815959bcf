"""Signs behind convolutions and the choices of maxima, against fractions, and how ties are counted."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from integer_networks import naive_hessians
from torch import Tensor, nn

from hessmap.exact import certified_rank
from hessmap.exact.certified import exact_problem
from hessmap.exact.evaluation import signs
from hessmap.exact.field import PrimeField
from hessmap.exact.reading import read_chain
from hessmap.problem.problem import Problem

FIELD = PrimeField(2**62 - 57)


def fraction_patterns(model: nn.Sequential, sample: Tensor) -> list[list[int]]:
    """What the layers of a one-channel 1D model decide, number by number in fractions: signs, or chosen places."""
    values = [Fraction(x) for x in sample.flatten().tolist()]
    decided = []
    for layer in model:
        if isinstance(layer, nn.Conv1d):
            weight, step = [Fraction(w) for w in layer.weight.flatten().tolist()], layer.stride[0]
            starts = range(0, len(values) - len(weight) + 1, step)
            values = [sum(w * values[s + i] for i, w in enumerate(weight)) for s in starts]
        elif isinstance(layer, nn.ReLU):
            decided.append([int(value > 0) for value in values])
            values = [max(value, Fraction(0)) for value in values]
        elif isinstance(layer, nn.MaxPool1d):
            size, step = layer.kernel_size, layer.stride
            windows = [range(start, start + size) for start in range(0, len(values) - size + 1, step)]
            chosen = [max(window, key=lambda place: (values[place], -place)) for window in windows]
            decided.append(chosen)
            values = [values[place] for place in chosen]
    return decided


@given(
    st.lists(st.integers(-2, 2), min_size=2, max_size=2),
    st.lists(st.integers(-2, 2), min_size=2, max_size=2),
    st.lists(st.integers(-2, 2), min_size=8, max_size=8),
    st.sampled_from([1.0, 0.1, 1e-200, 1e100]),
)
def test_signs_and_maxima_of_small_integer_networks_with_many_ties(
    first: list[int], second: list[int], data: list[int], scale: float
) -> None:
    model = nn.Sequential(
        nn.Conv1d(1, 1, 2, bias=False),
        nn.MaxPool1d(3, stride=1),
        nn.ReLU(),
        nn.Conv1d(1, 1, 2, bias=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 1, bias=False),
    ).double()
    with torch.no_grad():
        model[0].weight.copy_(scale * torch.tensor(first, dtype=torch.float64).reshape(1, 1, 2))
        model[3].weight.copy_(torch.tensor(second).reshape(1, 1, 2))
    inputs = torch.tensor(data, dtype=torch.float64).reshape(1, 1, 8) / 3
    problem = Problem(model, "squared", inputs, torch.zeros(1, 1, dtype=torch.float64))
    found = signs(read_chain(model, problem.layout, (1, 8)), inputs.numpy().reshape(1, 8))
    patterns = [pattern[0].astype(int).tolist() for pattern in found.patterns if pattern is not None]
    assert patterns == fraction_patterns(model, inputs)


def test_a_maximum_after_relu_is_taken_before_it_and_dead_windows_are_no_ties() -> None:
    """Two windows of two places: all negative in the first, one positive in the second. Nothing sits on a kink."""
    model = nn.Sequential(nn.Conv1d(1, 1, 1, bias=False), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()).double()
    nn.init.ones_(model[0].weight)
    inputs = torch.tensor([[[-1.0, -2.0, -3.0, 4.0]]], dtype=torch.float64)
    certificate = certified_rank(Problem(model, "squared", inputs, torch.zeros(1, 2)), "outer_product")
    assert (certificate.value, certificate.num_ties) == (1, 0)


def test_equal_maxima_follow_torch_to_the_first_and_are_counted() -> None:
    """Both places give 1: the first passes its gradient on, and only its input counts."""
    model = nn.Sequential(nn.Conv1d(2, 1, 1, bias=False), nn.MaxPool1d(2), nn.Flatten()).double()
    nn.init.ones_(model[0].weight)
    inputs = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    problem = Problem(model, "squared", inputs, torch.zeros(1, 1))
    certificate = certified_rank(problem, "outer_product")
    assert (certificate.value, certificate.num_ties) == (1, 1)
    np.testing.assert_array_equal(exact_problem(problem, FIELD).hessian("outer_product").residues, [[1, 0], [0, 0]])
    torch.testing.assert_close(naive_hessians(problem)["outer_product"], torch.tensor([[1.0, 0], [0, 0]]).double())


def test_empty_patches_are_ties_decided_without_integers() -> None:
    """Without bias a filter on zeros gives exactly zero, however it is computed."""
    model = nn.Sequential(nn.Conv1d(1, 2, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(6, 1)).double()
    inputs = torch.tensor([[[0.0, 0.0, 0.3, 0.7]]], dtype=torch.float64)
    problem = Problem(model, "squared", inputs, torch.zeros(1, 1))
    found = signs(read_chain(model, problem.layout, (1, 4)), inputs.numpy().reshape(1, 4))
    assert (found.num_ties, found.num_exact_samples) == (2, 0)
