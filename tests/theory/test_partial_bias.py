"""A bias in some layers: the formulas against an exact oracle, and against those for no bias and for all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polarised_oracle import Data, random_data, ranks

from exact_oracle import Matrix, random_matrix
from example_shares import share_of_examples
from hessmap.errors import InvalidInput
from hessmap.theory.fully_connected import linear

KINDS = ("generic", "low rank", "zero mean", "own mean")


@dataclass(frozen=True)
class Network:
    widths: tuple[int, ...]
    biased_layers: frozenset[int]
    input_rank: int
    centred_input_rank: int

    @property
    def num_parameters(self) -> int:
        layers = enumerate(pairwise(self.widths), start=1)
        return sum((before + (layer in self.biased_layers)) * after for layer, (before, after) in layers)

    def biases(self, draw: random.Random) -> dict[int, list[int]]:
        return {layer: random_matrix(draw, 1, self.widths[layer])[0] for layer in self.biased_layers}

    def data(self, draw: random.Random, kind: str) -> Data:
        return random_data(draw, self.widths[0], self.widths[-1], self.input_rank, self.centred_input_rank, kind)


@st.composite
def networks(draw: st.DrawFn, max_width: int = 4, max_layers: int = 4) -> Network:
    widths = draw(st.lists(st.integers(1, max_width), min_size=2, max_size=max_layers + 1))
    biased = draw(st.sets(st.integers(1, len(widths) - 1)))
    rank = draw(st.integers(1, widths[0]))
    return Network(tuple(widths), frozenset(biased), rank, rank - draw(st.integers(0, 1)))


def predicted(network: Network, **residual: Any) -> tuple[int, int, int]:
    known = {"biased_layers": network.biased_layers, "centred_input_rank": network.centred_input_rank}
    return (
        linear.outer_product_rank(network.widths, network.input_rank, **known),
        linear.functional_rank(network.widths, network.input_rank, **known, **residual),
        linear.loss_rank(network.widths, network.input_rank, **known, **residual),
    )


@given(networks(), st.sampled_from(KINDS), st.integers(0, 2**32))
def test_the_three_ranks_agree_with_the_oracle_for_every_kind_of_residual(
    network: Network, kind: str, seed: int
) -> None:
    draw = random.Random(seed)
    data = network.data(draw, kind)
    weights = [random_matrix(draw, after, before) for before, after in pairwise(network.widths)]
    residual = {
        "residual_rank": data.residual_rank if network.biased_layers else data.uncentred_residual_rank,
        "uncentred_residual_rank": data.uncentred_residual_rank,
        "mean_residual_is_zero": data.mean_residual_is_zero,
    }
    exact = ranks(weights, network.biases(draw), data)
    assert predicted(network, **residual) == exact
    if kind == "generic":
        assert predicted(network) == exact


@given(networks(), st.sampled_from(KINDS), st.integers(0, 2**32))
def test_the_functional_rank_is_below_that_of_a_network_that_carries_the_constant(
    network: Network, kind: str, seed: int
) -> None:
    draw = random.Random(seed)
    weights = [small_integers(draw, after, before) for before, after in pairwise(network.widths)]
    biases = {layer: small_integers(draw, 1, network.widths[layer])[0] for layer in network.biased_layers}
    data = network.data(draw, kind)
    functional = ranks(weights, biases, data)[1]
    assert functional <= linear.functional_upper_bound(
        network.widths,
        network.input_rank,
        data.residual_rank,
        biased_layers=network.biased_layers,
        centred_input_rank=network.centred_input_rank,
    )


@given(networks(max_width=7, max_layers=6), st.data())
def test_what_is_exact_with_bias_is_a_formula_without(network: Network, data: st.DataObject) -> None:
    """Residuals of zero mean, and a bias in the last layer alone: the theorems of research/docs/conjectures.md."""
    widths, rank, centred = network.widths, network.input_rank, network.centred_input_rank
    last = len(widths) - 1
    residual = data.draw(st.integers(0, min(centred, widths[-1])))
    biased = network.biased_layers | {last}
    found = linear.hessian_ranks(
        widths, rank, residual, biased_layers=biased, centred_input_rank=centred, mean_residual_is_zero=True
    )
    assert found.functional == linear.functional_rank(widths, rank, residual)
    assert found.loss == linear.loss_rank(widths, centred, residual) + widths[-1]
    free = data.draw(st.integers(0, min(centred + 1, widths[-1])))
    alone = linear.functional_rank(widths, rank, free, biased_layers={last}, centred_input_rank=centred)
    assert alone == linear.functional_rank(widths, rank, min(free, rank))


def small_integers(draw: random.Random, rows: int, columns: int) -> Matrix:
    return [[draw.choice([0, 0, 1, -1]) for _ in range(columns)] for _ in range(rows)]


@given(networks(), st.sampled_from(KINDS), st.integers(0, 2**32))
def test_the_kernel_is_there_for_all_weights_and_residuals(network: Network, kind: str, seed: int) -> None:
    draw = random.Random(seed)
    weights = [small_integers(draw, after, before) for before, after in pairwise(network.widths)]
    biases = {layer: small_integers(draw, 1, network.widths[layer])[0] for layer in network.biased_layers}
    loss = ranks(weights, biases, network.data(draw, kind))[2]
    known = {"biased_layers": network.biased_layers, "centred_input_rank": network.centred_input_rank}
    bound = linear.loss_upper_bound(network.widths, network.input_rank, **known)
    assert loss <= bound <= network.num_parameters


@given(networks(max_width=7, max_layers=6))
@share_of_examples(2)
def test_a_generic_residual_leaves_the_explicit_kernel_alone(network: Network) -> None:
    known = {"biased_layers": network.biased_layers, "centred_input_rank": network.centred_input_rank}
    bound = linear.loss_upper_bound(network.widths, network.input_rank, **known)
    assert linear.loss_rank(network.widths, network.input_rank, **known) == bound


def without_bias(widths: tuple[int, ...], r: int, s: int) -> tuple[int, int, int]:
    """The closed forms without bias, as in the docstring of ``linear``."""
    *hidden, outputs = widths[1:]
    num_layers, q0 = len(widths) - 1, min(r, *widths[1:])
    q, total = min(q0, s), sum(hidden)
    outer = q0 * (r + outputs - q0)
    functional = 2 * q * total + 2 * q * s - num_layers * q**2 if hidden else 0
    return outer, functional, outer + 2 * q * total - (num_layers - 1) * q**2


def with_all_biases(widths: tuple[int, ...], rc: int, t: int, mean_is_zero: bool) -> tuple[int, int, int]:
    """The closed forms with a bias in every layer, as in the docstring of ``linear``."""
    *hidden, outputs = widths[1:]
    num_layers, q0 = len(widths) - 1, min(rc, *widths[1:])
    outer = q0 * (rc + outputs - q0) + outputs
    if not hidden:
        return outer, 0, outer
    m = min(hidden)
    q, total, last = min(t, m), sum(hidden), max(layer for layer, width in enumerate(hidden, start=1) if width == m)
    position = (num_layers - 1) * q if t <= m else 2 * sum(hidden[last:]) - (num_layers - 1 - 2 * last) * m
    if mean_is_zero:
        position = 0
    functional = 2 * q * total + 2 * q * t - num_layers * q**2 + position - (0 if mean_is_zero else q)
    return outer, functional, outer + 2 * q * total - (num_layers - 1) * q**2 + position


@given(networks(max_width=7, max_layers=6), st.data())
@share_of_examples(2)
def test_without_bias_it_is_the_closed_form_of_linear_networks(network: Network, data: st.DataObject) -> None:
    widths, rank = network.widths, network.input_rank
    residual_rank = data.draw(st.integers(0, min(rank, widths[-1])))
    found = linear.hessian_ranks(widths, rank, residual_rank)
    assert found == without_bias(widths, rank, residual_rank)


@given(networks(max_width=7, max_layers=6), st.booleans(), st.data())
@share_of_examples(2)
def test_with_all_biases_it_is_the_closed_form_of_linear_networks_with_bias(
    network: Network, mean_is_zero: bool, data: st.DataObject
) -> None:
    widths, centred = network.widths, network.centred_input_rank
    residual_rank = data.draw(st.integers(0, min(centred + (not mean_is_zero), widths[-1])))
    full = Network(widths, frozenset(range(1, len(widths))), network.input_rank, centred)
    found = predicted(full, residual_rank=residual_rank, mean_residual_is_zero=mean_is_zero)
    assert found == with_all_biases(widths, centred, residual_rank, mean_is_zero)


def test_only_the_last_bias_counts_for_the_outer_product_hessian() -> None:
    for biased in ({3}, {1, 3}, {2, 3}, {1, 2, 3}):
        found = linear.outer_product_rank((4, 3, 2, 3, 4), 4, biased_layers=biased)
        assert found == linear.outer_product_rank((4, 3, 2, 3, 4), 4, biased_layers={3})


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="a biased layer must be at most 2"):
        linear.loss_rank((2, 2, 2), 2, biased_layers=[3])
    with pytest.raises(InvalidInput, match="a biased layer must be at least 1"):
        linear.loss_upper_bound((2, 2, 2), 2, biased_layers=[0])
    with pytest.raises(InvalidInput, match="centred_input_rank or one more"):
        linear.loss_rank((4, 2, 2), 4, biased_layers=[1], centred_input_rank=2)
    with pytest.raises(InvalidInput, match="residual_rank must be at most 2"):
        linear.loss_rank((4, 2, 2), 4, 3, biased_layers=[1])
    with pytest.raises(InvalidInput, match="needs residual_rank beside it"):
        linear.loss_rank((4, 2, 2), 4, biased_layers=[1], uncentred_residual_rank=1)
    with pytest.raises(InvalidInput, match="or one less where the constant"):
        linear.functional_rank(
            (4, 2, 2), 4, 2, biased_layers=[1], uncentred_residual_rank=1, mean_residual_is_zero=True
        )
