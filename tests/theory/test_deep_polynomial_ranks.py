"""Two hidden layers of polynomials: the stored cases, the bounds against exact ranks, and what is refused."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_tables import each
from hessmap.errors import UnsupportedNetwork
from hessmap.exact import generic_rank
from hessmap.networks import FullyConnected, Polynomial
from hessmap.theory.polynomial import (
    ONE_LESS_OF_THREE_LAYERS as ONE_LESS,
)
from hessmap.theory.polynomial import (
    deep_polynomial_rank,
    segre_veronese_dimension,
    upper_bounds,
)
from teacher_golden import teacher_golden

STORED = {
    "quad": Polynomial((0, 1, 1)),
    "cubic": Polynomial((0, 1, 1, 1)),
    "x^2": Polynomial((0, 0, 1)),
    "x^3": Polynomial((0, 0, 0, 1)),
}
DEEP = [case for case in teacher_golden("deep_") if ":" in case["id"]]


def exact(widths: tuple[int, ...], activation: Polynomial, seed: int = 0) -> int:
    return generic_rank(FullyConnected(widths, activation=activation), "outer_product", seed=seed).value


@each(DEEP)
def test_stored_ranks_of_deep_networks_come_out(case: dict[str, Any]) -> None:
    name, text = case["inputs"]["key"].split(":")
    widths = tuple(map(int, text.split("-")))
    expected = case["expected"]["rank"]
    assert exact(widths, STORED[name]) == expected
    if len(widths) == 4:
        assert deep_polynomial_rank(widths, STORED[name])[0].value == expected


@given(st.integers(2, 4), st.booleans(), *[st.integers(1, 7)] * 3)
def test_the_smallest_bound_is_the_exact_rank(degree: int, is_monomial: bool, n0: int, n1: int, n2: int) -> None:
    lower = [0] * degree if is_monomial else [0, *[2, -3, 5][: degree - 1]]
    activation = Polynomial((*lower, 1))
    rank, whole = deep_polynomial_rank((n0, n1, n2, 1), activation)
    assert rank.kind == "conjecture"
    assert rank.value == exact((n0, n1, n2, 1), activation) <= whole


@pytest.mark.parametrize(
    ("widths", "degree"), [((4, 5, 3, 1), 2), ((6, 8, 3, 1), 2), ((8, 11, 3, 1), 2), ((3, 5, 2, 1), 3)]
)
def test_classical_defects_of_pencils_lower_the_rank_by_one(widths: tuple[int, ...], degree: int) -> None:
    bounds = upper_bounds(*widths[:3], degree, is_monomial=True)
    others = min(bound for name, bound in bounds.items() if name != "pencils")
    monomial = Polynomial([0] * degree + [1])
    assert exact(widths, monomial) == bounds["pencils"] == others - 1


@pytest.mark.parametrize(("widths", "terms"), [((1, 2, 7, 1), 5), ((1, 2, 5, 1), 4)])
def test_a_plane_curve_takes_its_equation_off(widths: tuple[int, ...], terms: int) -> None:
    activation = Polynomial((0, *range(1, terms + 1)))
    assert (
        exact(widths, activation) == deep_polynomial_rank(widths, activation)[0].value == (terms + 1) * (terms + 2) // 2
    )


def test_the_listed_exception_is_there() -> None:
    for degree, *hidden in ONE_LESS:
        activation = Polynomial([0] + [1] * degree)
        smallest = min(upper_bounds(*hidden, degree, is_monomial=False).values())
        claimed = deep_polynomial_rank((*hidden, 1), activation)[0].value
        assert exact((*hidden, 1), activation) == claimed == smallest - 1


def test_pencils_of_quadrics_are_defective_in_every_third_odd_case() -> None:
    for second, points in product(range(1, 8), range(2, 14)):
        expected = min(points * (second + 3), 3 * (second + 1) * (second + 2) // 2)
        is_defective = (second, points) in {(3, 5), (5, 8), (7, 11)}
        assert segre_veronese_dimension(2, second, 2, points) == expected - is_defective


@pytest.mark.parametrize(
    ("widths", "activation", "message"),
    [
        ((2, 2, 2, 1), "relu", "the activation is 'relu'. Use numerical_rank"),
        ((2, 2, 2, 1), Polynomial((0, 1, 0, 1)), r"the activation is polynomial\(0,1,0,1\). Use generic_rank"),
        ((2, 2, 2, 2, 1), Polynomial((0, 1, 1)), "the network is 2-2-2-2-1. Use generic_rank"),
        ((2, 2, 2, 2), Polynomial((0, 1, 1)), "the network is 2-2-2-2. Use generic_rank"),
    ],
)
def test_networks_without_a_formula_are_refused(widths: tuple[int, ...], activation: Any, message: str) -> None:
    with pytest.raises(UnsupportedNetwork, match=message):
        deep_polynomial_rank(widths, activation)


def test_a_bias_is_refused() -> None:
    with pytest.raises(UnsupportedNetwork, match="the network is 2-2-2-1 with bias"):
        deep_polynomial_rank((2, 2, 2, 1), Polynomial((0, 1, 1)), has_bias=True)
