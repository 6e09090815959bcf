"""Studies that try formulas on random networks: they agree with the formulas as they are, and see one that is wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest

import hessmap as hm
from hessmap.exact import generic_hessian_ranks, generic_rank
from hessmap.records import PARTS
from hessmap.theory import learning
from hessmap_research.studies.random_networks import attention, convolutional
from hessmap_research.studies.random_networks import learning as formulas
from hessmap_research.studies.residual import convolutions


@pytest.mark.parametrize(
    "net", [hm.networks.SelfAttention(3, 2, 2, heads=2, outputs=2), hm.networks.Residual(3, 2, inner_width=2)]
)
def test_the_ranks_of_one_draw_are_those_of_three(net):
    together = generic_hessian_ranks(net, seed=3)
    assert {part: rank.value for part, rank in together.items()} == {
        part: generic_rank(net, part, seed=4).value for part in PARTS
    }


@pytest.mark.parametrize("formula", formulas._FORMULAS)
def test_a_wrong_learning_coefficient_is_seen(formula, monkeypatch):
    case = {"formula": formula, "num_networks": 12, "batch": 50}
    assert formulas.FORMULAS.measure(case)["held"] == 12
    name = "local_learning_coefficient" if "at weights" in formula else "linear_learning_coefficient"
    right = getattr(learning, name)

    def wrong(*sizes):
        found = right(*sizes)
        return found._replace(value=found.value + Fraction(1, 2))

    monkeypatch.setattr(learning, name, wrong)
    record = formulas.FORMULAS.measure(case)
    assert record["held"] == 0
    assert len(record["counterexamples"]) == 12


def test_a_wrong_multiplicity_is_seen(monkeypatch):
    right = learning.linear_learning_coefficient
    monkeypatch.setattr(
        learning,
        "linear_learning_coefficient",
        lambda *sizes: right(*sizes)._replace(multiplicity=right(*sizes).multiplicity + 1),
    )
    assert formulas.FORMULAS.measure({"formula": "its multiplicity", "num_networks": 10, "batch": 51})["held"] == 0


def test_a_wrong_theorem_on_convolutions_is_seen(monkeypatch):
    case = {"num_layers": 3, "num_networks": 4, "batch": 50}
    assert convolutional.NARROWEST_VERTICES.measure(case)["held"] == 4
    right = convolutional.deep_law.proved_outer_product_rank
    monkeypatch.setattr(
        convolutional.deep_law,
        "proved_outer_product_rank",
        lambda chain: None if right(chain) is None else right(chain) - 1,
    )
    assert convolutional.NARROWEST_VERTICES.measure(case)["held"] == 0


@pytest.mark.parametrize("family", attention._FAMILIES)
def test_every_family_of_attention_is_drawn_and_held(family):
    record = attention.RANKS.measure({"family": family, "loss": "squared", "num_networks": 4, "batch": 77})
    assert record["counterexamples"] == []
    assert record["held"] == dict.fromkeys(PARTS, 4)


def test_convolutional_blocks_of_one_layer_have_the_ranks_without_skips():
    case = {"size": 2, "channels": 1, "inner_channels": None, "num_blocks": 2, "outputs": 1, "seed": 5}
    record = convolutions.measure(case)
    assert {part: rank.value for part, rank in record["measured"].items()} == record["expected"]
