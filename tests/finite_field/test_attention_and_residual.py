"""Exact ranks of given attention and residual networks, against float64 ranks of autograd's Hessians."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from hessmap.errors import InvalidInput, UnsupportedNetwork
from hessmap.exact import certified_rank, generic_rank
from hessmap.exact.attention import MATRICES, attention_hessian, attention_rows
from hessmap.exact.field import from_floats, random_prime_field
from hessmap.exact.hessian import OutputDerivatives
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.measurement import numerical_rank
from hessmap.networks import Residual, SelfAttention
from hessmap.problem.problem import Problem

HESSIANS = {"outer_product": outer_product_hessian, "functional": functional_hessian, "loss": loss_hessian}


def dyadic(*shape, seed=0):
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).double() / 4


def attention_problem(net, num_samples=4, num_tokens=3, **options):
    shape = (num_samples, net.output_dim) if net.read == "last" else (num_samples, num_tokens, net.output_dim)
    model = net.build(seed=1, temperature=options.pop("temperature", None))
    return Problem(model, "squared", dyadic(num_samples, num_tokens, net.width), dyadic(*shape, seed=1), **options)


LAYERS = [
    SelfAttention(3, 2, 2),
    SelfAttention(3, 2, 2, heads=2, outputs=3, causal=True),
    SelfAttention(4, 2, 2, frozen_value=True, read="last"),
    SelfAttention(3, value_width=3, merged_query_key=True, heads=2),
    SelfAttention(3, 1, 3, heads=2, outputs=2, merged_query_key=True, frozen_value=True),
]


@pytest.mark.parametrize("net", LAYERS, ids=str)
@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 0.5, 3.0]])
def test_certified_ranks_of_attention(net, weights):
    problem = attention_problem(net, weights=weights)
    for part, hessian in HESSIANS.items():
        measured = numerical_rank(hessian(problem))
        assert measured.decidable
        assert certified_rank(problem, part).value == measured.value


def test_some_of_the_weights():
    problem = attention_problem(SelfAttention(3, 2, 2, outputs=2), parameters=["q_proj_weight", "out_proj.weight"])
    for part, hessian in HESSIANS.items():
        assert certified_rank(problem, part).value == numerical_rank(hessian(problem)).value


def test_equal_tokens_are_seen():
    """A sample of one token twice is one of a single token: the skew part of the scores is invisible."""
    net = SelfAttention(2, value_width=1, merged_query_key=True)
    token = dyadic(12, 1, 2)
    inputs = torch.cat([token, token], 1)
    problem = Problem(net.build(seed=0), "squared", inputs, dyadic(12, 2, 1, seed=3))
    assert [certified_rank(problem, part).value for part in HESSIANS] == [4, 4, 5]


def test_what_is_not_exact_is_refused():
    with pytest.raises(UnsupportedNetwork, match="without softmax; the model is attention-3-2-2, softmax"):
        certified_rank(attention_problem(SelfAttention(3, 2), temperature=1.0))
    with pytest.raises(InvalidInput, match="needs l2 = 0"):
        certified_rank(attention_problem(SelfAttention(3, 2), l2=0.1))
    problem = attention_problem(SelfAttention(3, 2, outputs=2))
    problem.model.out_proj = nn.Linear(2, 2, bias=True, dtype=torch.float64)
    with pytest.raises(UnsupportedNetwork, match="the weights are not those of"):
        certified_rank(problem)


def test_odd_questions_of_attention_are_refused():
    with pytest.raises(InvalidInput, match="residuals of self-attention are generic"):
        generic_rank(SelfAttention(3, 2), residual_rank=1)
    with pytest.raises(InvalidInput, match="num_tokens is for self-attention"):
        generic_rank(Residual(3, 1), num_tokens=2)
    with pytest.raises(InvalidInput, match="input_rank can be at most 2"):
        generic_rank(SelfAttention(3, 2), num_samples=1, num_tokens=2, input_rank=3)
    with pytest.raises(UnsupportedNetwork, match="generic rank of a residual network needs a linear one"):
        generic_rank(Residual(3, 1, activation="tanh"))


RESIDUALS = [
    Residual(3, 2),
    Residual(4, 2, inner_width=1, input_dim=3, train_input=True),
    Residual(3, 3, inner_width=2, output_dim=5),
    Residual(2, 1, inner_width=3, input_dim=4, output_dim=3, train_output=True),
]


@pytest.mark.parametrize("net", RESIDUALS, ids=str)
def test_certified_ranks_of_residual_networks(net):
    targets = dyadic(9, net.output_dim, seed=1)
    problem = Problem(net.build(seed=1), "squared", dyadic(9, net.input_dim), targets)
    for part, hessian in HESSIANS.items():
        measured = numerical_rank(hessian(problem))
        assert measured.decidable
        assert certified_rank(problem, part).value == measured.value == generic_rank(net, part).value


def test_identity_blocks_have_the_ranks_of_generic_ones():
    net = Residual(3, 2, input_dim=4)
    model = net.build(seed=0)
    with torch.no_grad():
        for block in model[1:]:
            block.down.weight.zero_()
    problem = Problem(model, "squared", dyadic(9, 4), dyadic(9, 3, seed=1))
    for part in HESSIANS:
        assert certified_rank(problem, part).value == generic_rank(net, part).value


def test_a_block_with_an_activation_is_refused():
    model = Residual(3, 1, activation="relu").build(seed=0)
    with pytest.raises(UnsupportedNetwork, match="ResidualBlock with activation ReLU"):
        certified_rank(Problem(model, "squared", dyadic(5, 3), dyadic(5, 3)))


@pytest.mark.parametrize(
    "net", [SelfAttention(3, 2, 2, outputs=2), SelfAttention(2, 2, 2, outputs=2, causal=True)], ids=str
)
def test_every_entry_of_the_exact_hessians_is_that_of_autograd(net):
    """Of small integers, whose derivatives are integers: equal ranks of wrong blocks would be chance."""
    generator = np.random.default_rng(0)
    field = random_prime_field(generator)
    shapes = [(net.width, net.key_width)] * 2 + [(net.width, net.value_width), (net.value_width, net.outputs)]
    matrices = [generator.integers(-3, 4, shape).astype(float) for shape in shapes]
    rows = attention_rows(net, from_floats(field, generator.integers(-3, 4, (3, 2, net.width)).astype(float)))
    residuals = generator.integers(-3, 4, (6, net.outputs)).astype(float)
    tokens, moments = (torch.from_numpy(signed(values)) for values in (rows.tokens, rows.moments))

    def outputs(flat):
        query, key, value, output = (
            part.view(shape) for part, shape in zip(flat.split([np.prod(one) for one in shapes]), shapes, strict=True)
        )
        return torch.einsum("ta,ak,bk,tbc,cv,vo->to", tokens, query, key, moments, value, output)

    flat = torch.cat([torch.from_numpy(matrix).flatten() for matrix in matrices])
    jacobian = torch.func.jacrev(outputs)(flat).flatten(0, 1)
    expected = {
        "outer_product": jacobian.T @ jacobian,
        "functional": torch.func.hessian(lambda flat: (outputs(flat) * torch.from_numpy(residuals)).sum())(flat),
    }
    expected["loss"] = expected["outer_product"] + expected["functional"]
    head = {name: from_floats(field, matrix) for name, matrix in zip(MATRICES, matrices, strict=True)}
    derivatives = OutputDerivatives(from_floats(field, residuals), None, None)
    for part, matrix in expected.items():
        exact = signed(attention_hessian([head], MATRICES, rows, derivatives, part))
        assert exact == pytest.approx(matrix.numpy(), abs=1e-6)


def signed(values):
    """Small integers of the field as floats, negative ones among them."""
    prime = values.field.prime
    return np.where(values.residues > prime // 2, values.residues - prime, values.residues).astype(float)


def test_one_token_has_as_many_samples_as_its_polynomials_need():
    """Cubic polynomials of two numbers: more samples than that say no more."""
    net = SelfAttention(2, value_width=2, merged_query_key=True)
    default = generic_rank(net, "outer_product", num_tokens=1).value
    assert default == generic_rank(net, "outer_product", num_tokens=1, num_samples=20).value == 6
    assert generic_rank(net, "outer_product", num_tokens=1, num_samples=2).value == 4
