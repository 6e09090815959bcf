"""The stored exact ranks of convolutional and locally connected networks, found again by generic_rank."""

from __future__ import annotations

from typing import Any

import pytest

from golden_tables import each, table
from hessmap.errors import UnsupportedNetwork
from hessmap.exact import generic_rank
from hessmap.networks import Convolutional, LocallyConnected, Polynomial
from hessmap.records import PARTS

_CASES: list[dict[str, Any]] = table("ranks")["cases"]


def stored(*families: str) -> list[dict[str, Any]]:
    found = [case for case in _CASES if case["family"] in families]
    assert found
    return found


CASES = stored("cnn1", "cnn1_r_lt_d", "cnn_deep", "lcn", "lcn_ws")
SPREAD = sorted(CASES, key=lambda case: case["n_params"])[: int(0.8 * len(CASES)) : 4]


def network(case: dict[str, Any]) -> Convolutional | LocallyConnected:
    if case["family"].startswith("lcn"):
        shared = case["family"] == "lcn_ws"
        return LocallyConnected(case["t"], case["k"], case["m"], case["K"], shared_weights=shared)
    if case["family"] == "cnn_deep":
        return Convolutional(case["d0"], (1, *case["channels"]), case["kernels"], outputs=case["K"])
    return Convolutional(case["d0"], (case["m0"], case["m"]), (case["k"],), (case["stride"],), case["K"])


def check(case: dict[str, Any]) -> None:
    net = network(case)
    given = {"input_rank": case["r"], "residual_rank": case["s"]}
    found = [generic_rank(net, part, "squared", seed=case["id"], **given) for part in PARTS]
    assert [rank.value for rank in found] == [case["true"][key] for key in ("Ho", "Hf", "HL")]
    assert all(rank.size == case["n_params"] for rank in found)
    assert all(rank.failure_bound < 1e-12 for rank in found)


@each(SPREAD)
def test_a_spread_of_stored_ranks_is_found_again(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.slow
@each(CASES)
def test_every_stored_rank_is_found_again(case: dict[str, Any]) -> None:
    check(case)


def test_block_columns_of_the_functional_hessian_add_up() -> None:
    """Their ranks are stored for deep networks; the sum is the rank of the whole."""
    case = stored("cnn_deep")[0]
    assert sum(case["Hf_col_ranks"]) == generic_rank(network(case), "functional").value


def test_a_rank_that_no_formula_gives() -> None:
    """One less than the bound by input rank: the counterexample to an equality there."""
    assert generic_rank(Convolutional(11, (1, 3), (10,), outputs=5), "outer_product", input_rank=10).value == 49


def test_polynomial_activations_and_padding_have_generic_ranks() -> None:
    curved = Convolutional(4, (1, 2), (2,), outputs=2, activation=Polynomial((0, 1, 1)))
    assert generic_rank(curved, "loss").value > generic_rank(Convolutional(4, (1, 2), (2,), outputs=2), "loss").value
    padded = Convolutional(3, (1, 2), (3,), outputs=2, paddings=(1,))
    assert generic_rank(padded, "functional").value == 2 * 2 * 3


def test_kinks_are_refused_with_certified_rank() -> None:
    for net in (
        Convolutional(4, (1, 2), (2,), activation="relu"),
        LocallyConnected(2, 2, 2, 2, activation="leaky_relu"),
    ):
        with pytest.raises(UnsupportedNetwork, match="pattern. Use certified_rank on a Problem with drawn weights"):
            generic_rank(net)
    with pytest.raises(UnsupportedNetwork, match="'tanh' is no polynomial. Use numerical_rank"):
        generic_rank(Convolutional(4, (1, 2), (2,), activation="tanh"))
