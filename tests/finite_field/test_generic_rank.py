"""Generic ranks against measured ones that were found in another field by another program, and against formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from example_shares import share_of_examples
from golden_tables import each, table
from hessmap.errors import InvalidInput, TooLarge, UnknownName, UnsupportedNetwork
from hessmap.exact import certified_rank, generic_rank
from hessmap.exact.field import FieldArray, PrimeField, concatenate, field_rank, ones
from hessmap.exact.generic import random_network
from hessmap.exact.random_data import generic_ranks, random_derivatives, random_inputs, random_residuals
from hessmap.networks import FullyConnected, Polynomial
from hessmap.problem.problem import Problem
from hessmap.records import PARTS, Part

GOLDEN = table("ranks")["cases"]
FULLY_CONNECTED = [case for case in GOLDEN if case["family"] in ("fcn", "fcn_bias")]
LOSS = {"mse": "squared", "ce": "cross_entropy", "cosh": "log_cosh"}
KEY = {"outer_product": "Ho", "functional": "Hf", "loss": "HL"}
FIELD = PrimeField(2**62 - 57)


def label(case: dict[str, Any]) -> str:
    return f"{case['id']}: {'-'.join(map(str, case['dims']))} {case['loss']}{' bias' * case['bias']}"


def test_the_stored_cases_cover_every_loss_with_and_without_bias() -> None:
    kinds = {(case["loss"], case["bias"]) for case in FULLY_CONNECTED}
    assert kinds == {(loss, bias) for loss in LOSS for bias in (False, True)}
    assert len(FULLY_CONNECTED) == 199


@each(FULLY_CONNECTED, label)
def test_the_generic_rank_is_the_measured_one(case: dict[str, Any]) -> None:
    net = FullyConnected(case["dims"], bias=case["bias"])
    for part in PARTS:
        found = generic_rank(
            net,
            part,
            LOSS[case["loss"]],
            input_rank=case["r"],
            centred_input_rank=case["rc"],
            residual_rank=case["s"],
            mean_residual_is_zero=case["mean_residual_zero"],
            num_samples=case["N"],
            seed=case["id"],
        )
        assert found.value == case["true"][KEY[part]], part
        assert found.size == case["n_params"]
        assert 0 < found.failure_bound < 1e-13


@pytest.mark.parametrize(
    ("net", "part", "options", "value"),
    [
        # Fact 7 of Singh, Bachmann & Hofmann 2021 gives 48 (or 18 with s inside q)
        (FullyConnected((6, 5, 4)), "loss", {"residual_rank": 1}, 33),
        (FullyConnected((6, 5, 4)), "outer_product", {}, 4 * (6 + 4 - 4)),
        # with bias the centred rank counts: the paper's uncentred one gives 6
        (FullyConnected((3, 4, 2), bias=True), "outer_product", {"num_samples": 2}, 4),
        # with bias and a bottleneck: Fact 13 gives 10
        (FullyConnected((5, 1, 3), bias=True), "loss", {}, 12),
        (FullyConnected((6, 5, 4, 3)), "functional", {"residual_rank": 0}, 0),
        (FullyConnected((4, 3)), "functional", {}, 0),
        (FullyConnected((4, 3), bias=True), "loss", {}, 5 * 3),
        (FullyConnected((4, 3, 1)), "loss", {"loss": "cross_entropy"}, 0),
        (FullyConnected((4, 3, 2)), "loss", {"input_rank": 0}, 0),
    ],
)
def test_numbers_that_can_be_checked_by_hand(
    net: FullyConnected, part: Part, options: dict[str, Any], value: int
) -> None:
    assert generic_rank(net, part, **options).value == value


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.booleans(),
    st.sampled_from(list(LOSS.values())),
    st.sampled_from(PARTS),
    st.integers(0, 2**32),
)
@share_of_examples(0.5)
def test_every_seed_gives_the_same_rank(widths: list[int], bias: bool, loss: str, part: Part, seed: int) -> None:
    net = FullyConnected(widths, bias=bias)
    found = generic_rank(net, part, loss, seed=seed)
    assert found == generic_rank(net, part, loss, seed=seed)
    other = generic_rank(net, part, loss, seed=seed + 1)
    assert other.prime != found.prime
    assert other.value == found.value


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("part", PARTS)
def test_a_polynomial_network_has_the_rank_of_one_in_floats(part: Part, bias: bool) -> None:
    """Random float64 weights and data, taken exactly, are generic."""
    net = FullyConnected((3, 4, 2), bias=bias, activation=Polynomial((0, 1, 0.3, 0.1)))
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(net.num_parameters, 3, dtype=torch.float64, generator=generator)
    targets = torch.randn(net.num_parameters, 2, dtype=torch.float64, generator=generator)
    problem = Problem(net.build(seed=0), "squared", inputs, targets)
    assert generic_rank(net, part).value == certified_rank(problem, part).value


def test_few_samples_limit_the_rank_of_a_polynomial_network() -> None:
    net = FullyConnected((3, 4, 2), activation=Polynomial((0, 1, 1)))
    assert generic_rank(net, "outer_product", num_samples=2).value == 4
    assert generic_rank(net, "outer_product", "cross_entropy", num_samples=2).value == 2


@pytest.mark.parametrize("mean_is_zero", [False, True])
@pytest.mark.parametrize(("rank", "centred"), [(3, 3), (3, 2), (4, 4), (1, 0)])
@pytest.mark.parametrize("residual_rank", [0, 1, 2])
def test_drawn_data_have_the_ranks_asked_for(rank: int, centred: int, residual_rank: int, mean_is_zero: bool) -> None:
    generator = np.random.default_rng(0)
    chain = random_network(FullyConnected((5, 3, 4), bias=True), FIELD, generator)
    options = {"input_rank": rank, "centred_input_rank": centred, "residual_rank": residual_rank}
    if residual_rank > centred + (not mean_is_zero):
        with pytest.raises(InvalidInput, match="residual_rank can be at most"):
            generic_ranks(chain, 4, **options, mean_residual_is_zero=mean_is_zero, num_samples=7)
        return
    ranks = generic_ranks(chain, 4, **options, mean_residual_is_zero=mean_is_zero, num_samples=7)
    inputs = random_inputs(ranks, 5, FIELD, generator)
    residuals = random_residuals(ranks, 4, True, FIELD, generator)
    extended = concatenate([inputs, ones(FIELD, 7, 1)], axis=1)
    found = [field_rank(matrix, generator).value for matrix in (inputs, extended, residuals.mT @ extended)]
    assert found == [rank, centred + 1, residual_rank]
    assert (not column_sums(residuals).any()) == (mean_is_zero or residual_rank == 0)
    assert not column_sums(residuals.mT).any()


def column_sums(array: FieldArray) -> np.ndarray:
    return (ones(FIELD, 1, len(array)) @ array).residues


def test_output_hessians_are_those_of_the_losses() -> None:
    generator = np.random.default_rng(1)
    chain = random_network(FullyConnected((2, 3)), FIELD, generator)
    generic = dict.fromkeys(("input_rank", "centred_input_rank", "residual_rank"))
    ranks = generic_ranks(chain, 3, **generic, mean_residual_is_zero=False, num_samples=4)
    residuals = random_residuals(ranks, 3, False, FIELD, generator)
    assert random_derivatives("squared", FIELD, generator, residuals).hessians is None
    softmax = random_derivatives("cross_entropy", FIELD, generator, residuals).hessians
    assert softmax is not None
    assert not (softmax @ ones(FIELD, 3, 1)).residues.any()
    assert all(field_rank(softmax[sample], generator).value == 2 for sample in range(4))
    log_cosh = random_derivatives("log_cosh", FIELD, generator, residuals).hessians
    assert log_cosh is not None
    expected = [1 - int(value) ** 2 for value in residuals.residues[0]]
    assert log_cosh.residues[0].tolist() == np.diag(np.array(expected, dtype=object) % FIELD.prime).tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input_rank": 6}, r"input_rank can be at most 4, for 4 inputs and 9 samples; it is 6"),
        ({"input_rank": 3, "num_samples": 2}, r"input_rank can be at most 2, for 4 inputs and 2 samples; it is 3"),
        ({"input_rank": 3, "centred_input_rank": 1}, r"rank of the inputs or one less, .*; the ranks are 1 and 3"),
        ({"input_rank": 2, "centred_input_rank": 2, "num_samples": 2}, r"at most num_samples - 1; .*, of 2 samples"),
        ({"residual_rank": 3}, r"residual_rank can be at most 2 here, .*; it is 3"),
        ({"residual_rank": 2, "input_rank": 1}, r"residual_rank can be at most 1 here, .*; it is 2"),
        ({"residual_rank": -1}, r"residual_rank can be at most 2 here, .*; it is -1"),
        ({"num_samples": 0}, r"num_samples must be at least 1; it is 0"),
    ],
)
def test_ranks_that_no_data_can_have_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        generic_rank(FullyConnected((4, 3, 2)), **options)


def test_what_has_no_generic_rank_is_refused_with_what_to_use_instead() -> None:
    with pytest.raises(UnsupportedNetwork, match=r"'relu' has a rank that changes with the data.*Use certified_rank"):
        generic_rank(FullyConnected((4, 3, 2), activation="relu"))
    with pytest.raises(UnsupportedNetwork, match=r"'tanh' is no polynomial\. Use numerical_rank"):
        generic_rank(FullyConnected((4, 3, 2), activation="tanh"))
    with pytest.raises(UnsupportedNetwork, match=r"an architecture such as FullyConnected, .*; got Linear\. Describe"):
        generic_rank(torch.nn.Linear(3, 2))
    with pytest.raises(InvalidInput, match="residual_rank is for linear networks: .*; residual_rank is 1. Leave"):
        generic_rank(FullyConnected((4, 3, 2), activation=Polynomial((0, 1, 1))), residual_rank=1)
    with pytest.raises(UnknownName, match="loss must be one of squared, cross_entropy, log_cosh; got 'sqared'"):
        generic_rank(FullyConnected((4, 3, 2)), loss="sqared")
    with pytest.raises(UnknownName, match="part must be one of outer_product, functional, loss; got 'all'"):
        generic_rank(FullyConnected((4, 3, 2)), "all")  # type: ignore[arg-type]


def test_a_network_that_does_not_fit_the_memory_is_refused_before_it_is_drawn() -> None:
    net = FullyConnected((10**6, 10**6, 10**6))
    with pytest.raises(TooLarge, match="2000000000000 drawn parameters .* Use a smaller network"):
        generic_rank(net, "loss")
