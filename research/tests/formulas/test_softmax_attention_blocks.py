"""The closed forms of the blocks of softmax attention, against the Hessians that autograd gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hessmap.errors import InvalidInput
from hessmap.hessians.operators import functional_hessian, outer_product_hessian
from hessmap.networks import SelfAttention
from hessmap.problem.problem import Problem
from hessmap_research.formulas.softmax_blocks import softmax_attention_blocks, whole_matrix


def drawn(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
@pytest.mark.parametrize(
    ("width", "keys", "values", "samples", "tokens"), [(3, 2, 4, 2, 5), (4, 4, 1, 3, 1), (1, 2, 2, 1, 6)]
)
def test_blocks_are_those_of_autograd(width, keys, values, samples, tokens, temperature):
    model = SelfAttention(width, keys, values).build(seed=1, temperature=temperature)
    inputs, targets = drawn(samples, tokens, width, seed=2), drawn(samples, tokens, values, seed=3)
    problem = Problem(model, "squared", inputs, targets)
    weights = [parameter.detach().numpy() for parameter in model.parameters()]
    blocks = softmax_attention_blocks(inputs.numpy(), *weights, targets.numpy(), temperature)
    hessians = {"outer_product": outer_product_hessian, "functional": functional_hessian}
    for name, hessian in hessians.items():
        expected, found = hessian(problem).to_dense().numpy(), whole_matrix(getattr(blocks, name))
        size = max(np.abs(expected).max(), 1e-300)
        assert np.abs(found - expected).max() <= 1e-12 * max(size, 1.0)


def test_the_comparison_bites():
    one = np.ones((1, 2, 1))
    tokens = one * np.array([1.0, 2.0])[None, :, None]
    weight = np.ones((1, 1))
    right, other = (softmax_attention_blocks(tokens, weight, weight, weight, one, t) for t in (1.0, 1.001))
    assert np.abs(whole_matrix(right.functional) - whole_matrix(other.functional)).max() > 1e-4


def test_a_batch_of_samples_is_needed():
    with pytest.raises(InvalidInput, match="tokens must be"):
        softmax_attention_blocks(np.ones((2, 3)), *[np.ones((1, 3))] * 3, np.ones((2, 1)), 1.0)
