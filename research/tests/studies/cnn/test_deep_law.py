"""The study of deep linear convolutions: its networks are what they say, it counts right, and its verdicts can fail."""

from __future__ import annotations

import random

import pytest

from hessmap.errors import UnknownName
from hessmap.theory.convolutional import deep_law as deep_convolutional_law
from hessmap.theory.convolutional.chains import FilterChain
from hessmap_research.runner.row import Row
from hessmap_research.studies.random_networks.convolutional import (
    DEEP_LAW,
    FAMILIES,
    has_rounding,
    input_length,
    random_chain,
    small_chains,
)

SMALL = {
    "family": "all small",
    "num_hidden": 2,
    "input_channels": 1,
    "outputs": 1,
    "positions": 2,
    "loss": "squared",
    "num_networks": 81,
}
SOFTMAX = {"family": "random", "num_hidden": 2, "loss": "cross_entropy", "num_networks": 6, "batch": 0}
STRIDES = {**SOFTMAX, "family": "strides", "loss": "squared", "num_hidden": 3}


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [Row(case, DEEP_LAW.measure(case)) for case in (SMALL, SOFTMAX, STRIDES)]


def test_a_thousand_fresh_networks_and_every_small_one() -> None:
    cases = DEEP_LAW.cases_on("")
    assert sum(case["num_networks"] for case in cases if case["family"] != "all small") >= 1_000
    assert sum(case["num_networks"] for case in cases if case["family"] == "all small") == 18 * 81 + 9 * 216


def test_all_small_networks_are_different_and_as_many_as_the_case_says() -> None:
    assert len(set(small_chains(2, 1, 2, 3))) == 81
    assert len(set(small_chains(3, 1, 2, 3))) == 216


@pytest.mark.parametrize("family", FAMILIES)
def test_a_drawn_chain_belongs_to_its_family(family: str) -> None:
    draw = random.Random(1)
    chains = [random_chain(draw, family, num_hidden=2) for _ in range(10)]
    assert all(chain.num_layers == 3 for chain in chains)
    assert any(max(chain.strides) > 1 for chain in chains) == (family == "strides")
    assert family != "rounding" or all(has_rounding(chain) for chain in chains)


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(UnknownName, match="family must be one of random, strides, rounding; got 'long'"):
        random_chain(random.Random(0), "long", 2)


def test_rounding_is_seen_where_it_takes_a_dimension() -> None:
    assert has_rounding(FilterChain((1, 3, 5), (8, 2)))
    assert not has_rounding(FilterChain((1, 3, 4), (8, 2)))
    assert input_length(FilterChain((1, 1, 1), (3, 4), (2, 1))) == 9


def test_law_is_right_and_bounds_hold(rows: list[Row]) -> None:
    for row in rows:
        assert row["law_right"] == row["num_networks"] == len(row["networks"])
        assert row["held"] == dict.fromkeys(("outer_product", "functional", "loss"), row["num_networks"])
        assert row["counterexamples"] == []
        assert row["reached"]["ours"]["functional"] > row["reached"]["printed"]["functional"]
    assert all(claim.holds for claim in DEEP_LAW.outcome(rows).claims)


def test_a_wrong_law_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right = deep_convolutional_law.outer_product_rank
    monkeypatch.setattr(deep_convolutional_law, "outer_product_rank", lambda chain: right(chain) - 1)
    row = Row(STRIDES, DEEP_LAW.measure(STRIDES))
    assert row["law_right"] == 0
    assert {example["side"] for example in row["counterexamples"]} == {"ours"}
    holds = {claim.id: claim.holds for claim in DEEP_LAW.outcome([row]).claims}
    assert not holds["law"]
    assert not holds["bound-ours"]
    assert holds["bound-printed"]
