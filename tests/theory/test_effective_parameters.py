"""Effective parameters: the stored cases, an oracle over GF(P), the paper's formulas, and bad input."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polynomial_oracle import exact_rank

from example_shares import share_of_examples
from golden_tables import each
from hessmap.errors import InvalidInput, UnknownName, UnsupportedNetwork
from hessmap.networks import Polynomial
from hessmap.theory import effective_parameters
from hessmap.theory.polynomial import EXCEPTIONS, ONE_LESS, rank_with_hidden_bias, rank_without_bias, secant_dimension
from teacher_golden import teacher_golden

QUADRATIC, CUBIC = Polynomial((0, 1, 1)), Polynomial((0, 1, 1, 1))
BIAS = {(False, False): "none", (True, False): "hidden", (False, True): "output", (True, True): "both"}


def activation_of(case: dict[str, Any]) -> Polynomial:
    """The polynomial of a stored case: given by coefficients, by its degree (a monomial), or by the name."""
    inputs, name = case["inputs"], case["id"]
    if "coef" in inputs:
        return Polynomial(inputs["coef"])
    if "n" in inputs:
        return Polynomial([0] * inputs["n"] + [1])
    return Polynomial((0, 1, 0, 1)) if "x+x3" in name else QUADRATIC


@each(teacher_golden("rank_"))
def test_stored_ranks_come_out(case: dict[str, Any]) -> None:
    inputs = case["inputs"]
    bias = BIAS[inputs.get("hidden_bias", False), inputs.get("out_bias", False)]
    found = [effective_parameters(inputs["Ni"], hidden, activation_of(case), bias) for hidden in inputs["Nh"]]
    assert [count.value for count in found] == case["expected"]["rank"]
    assert {count.kind for count in found} <= {"exact", "conjecture"}


@each(teacher_golden("deep_lin_rank_"))
def test_stored_ranks_of_deep_linear_networks_come_out(case: dict[str, Any]) -> None:
    first, *hidden, last = case["inputs"]["widths"]
    assert effective_parameters(first, hidden, outputs=last).value == case["expected"]["rank"]


@pytest.mark.parametrize("inputs", range(1, 11))
@pytest.mark.parametrize("hidden", range(1, 11))
def test_the_quadratic_formula_is_equation_14(inputs: int, hidden: int) -> None:
    lack = max(0, inputs - hidden)
    printed = inputs + inputs * (inputs + 1) // 2 - (lack**2 + 3 * lack) // 2
    count = effective_parameters(inputs, hidden, QUADRATIC)
    assert count.value == printed
    assert count.kind == "exact"
    zeros = count.num_parameters - count.value
    assert (zeros == hidden * (hidden - 1) // 2) == (hidden <= inputs or hidden == inputs + 3)


def test_the_exceptions_of_the_theorem_show_for_monomials_and_hide_for_full_polynomials() -> None:
    for degree, dim, powers in EXCEPTIONS:
        monomial = Polynomial([0] * degree + [1])
        lowered = min(powers * (dim + 1), comb(dim + degree, degree)) - 1
        assert effective_parameters(dim + 1, powers, monomial).value == lowered
        full = Polynomial([0] + [1] * degree)
        whole = comb(dim + degree, degree) - 1
        assert effective_parameters(dim, powers, full).value == min(powers * (dim + 1), whole) == whole
        with_constant = Polynomial([1] * (degree + 1))
        assert effective_parameters(dim, powers, with_constant).value == whole


@st.composite
def polynomial_networks(draw: st.DrawFn) -> tuple[int, int, tuple[int, ...], str]:
    degree = draw(st.integers(1, 5))
    lower = draw(st.lists(st.integers(-3, 3), min_size=degree, max_size=degree))
    inputs = draw(st.integers(1, 4 if degree < 5 else 3))
    hidden = draw(st.integers(1, comb(inputs + degree, degree) // (inputs + 1) + 3))
    return inputs, hidden, (*lower, draw(st.sampled_from([-2, 1, 3]))), draw(st.sampled_from(sorted(BIAS.values())))


@given(polynomial_networks())
@share_of_examples(2)
def test_every_polynomial_has_the_rank_that_the_formula_gives(network: tuple[int, int, tuple[int, ...], str]) -> None:
    inputs, hidden, coefficients, bias = network
    count = effective_parameters(inputs, hidden, Polynomial(coefficients), bias)  # type: ignore[arg-type]
    in_hidden, in_output = bias in ("hidden", "both"), bias in ("output", "both")
    exact = exact_rank(inputs, hidden, coefficients, hidden_bias=in_hidden, output_bias=in_output)
    assert exact <= count.value if count.kind == "upper_bound" else exact == count.value
    assert count.value <= min(count.num_parameters, count.function_space_dim or count.num_parameters)


@pytest.mark.parametrize(
    ("inputs", "hidden", "coefficients"),
    [(2, 4, (0, 0, 5, 7, 11)), (3, 8, (0, 0, 5, 7, 11)), (4, 13, (0, 0, 5, 7, 11)), (4, 6, (0, 0, 5, 7))],
)
def test_without_a_linear_term_the_exceptions_are_visible_and_proved(
    inputs: int, hidden: int, coefficients: tuple[int, ...]
) -> None:
    rank = rank_without_bias(inputs, hidden, range(2, len(coefficients)))
    expected = sum(comb(inputs + k - 1, k) for k in range(2, len(coefficients)))
    assert rank.kind == "exact"
    assert rank.value == exact_rank(inputs, hidden, coefficients) == min(hidden * (inputs + 1), expected) - 1


def test_the_listed_exceptions_of_the_conjecture_are_there() -> None:
    for degrees, places in ONE_LESS.items():
        coefficients = [7 if k in degrees else 0 for k in range(max(degrees) + 1)]
        for inputs, hidden in places:
            rank = rank_without_bias(inputs, hidden, degrees)
            assert rank.kind == "conjecture"
            assert rank.value == exact_rank(inputs, hidden, coefficients)


@pytest.mark.parametrize(("inputs", "hidden"), [(2, 4), (3, 8)])
def test_hidden_biases_of_a_quartic_without_quadratic_part_meet_the_exceptions(inputs: int, hidden: int) -> None:
    shifted = (1 + 3, 4 + 3, 6, 4, 1)  # (t + 1)^4 + 3 (t + 1)
    rank = rank_with_hidden_bias(inputs, hidden, shifted)
    assert rank.kind == "exact"
    assert rank.value == exact_rank(inputs, hidden, shifted, hidden_bias=True) == comb(inputs + 4, 4) - 1


def test_a_bias_adds_one_for_degree_two_only() -> None:
    for inputs in range(1, 6):
        for hidden in range(1, 6):
            plain = effective_parameters(inputs, hidden, QUADRATIC).value
            for place in ("hidden", "output", "both"):
                assert effective_parameters(inputs, hidden, QUADRATIC, place).value == plain + 1
    assert effective_parameters(2, 2, CUBIC, "hidden").value == effective_parameters(2, 2, CUBIC).value + 2


def test_a_shifted_monomial_with_hidden_bias_is_a_monomial() -> None:
    for inputs, hidden in [(2, 2), (3, 4), (3, 9)]:
        shifted = effective_parameters(inputs, hidden, Polynomial((16, 32, 24, 8, 1)), "hidden")
        assert shifted.value == secant_dimension(4, inputs, hidden)
        assert shifted.value == effective_parameters(inputs + 1, hidden, Polynomial((0, 0, 0, 0, 1))).value


def test_a_linear_activation_of_any_kind_counts_affine_functions() -> None:
    assert effective_parameters(4, 3).value == effective_parameters(4, 3, Polynomial((0, 2))).value == 4
    assert effective_parameters(4, 3, Polynomial((1, 2))).value == 5
    assert effective_parameters(4, 3, "identity", True).value == 5
    assert effective_parameters(4, (3, 2), "identity", "hidden", outputs=2).value == 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3), "inputs must be at least 1; got 0"),
        ((3, 0), "hidden must be at least 1; got 0"),
        ((3, ()), "hidden must contain the width of at least one layer; it is empty"),
        ((2.5, 3), "inputs must be an integer; got 2.5"),
        ((1, 3, "relu"), "is known for two inputs or more; inputs is 1"),
    ],
)
def test_bad_sizes_are_refused_in_one_sentence(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        effective_parameters(*arguments)


def test_degree_zero_unknown_names_and_unsolved_networks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="degree of the activation must be at least 1; got 0"):
        rank_without_bias(2, 2, [0])
    with pytest.raises(InvalidInput, match="degree of the activation must be at least 1; got 0"):
        rank_with_hidden_bias(2, 2, [3.0, 0.0])
    with pytest.raises(UnknownName, match="bias must be one of none, hidden, output, both; got 'all'"):
        effective_parameters(2, 2, "erf", "all")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedNetwork, match="several outputs .* outputs is 2. Use generic_rank"):
        effective_parameters(2, 2, QUADRATIC, outputs=2)
    with pytest.raises(UnsupportedNetwork, match="n0-n1-n2-1 .* the activation is 'relu'"):
        effective_parameters(2, (2, 2), "relu")


def test_polynomials_may_be_given_by_their_coefficients() -> None:
    assert effective_parameters(4, 3, (0, 1, 1)) == effective_parameters(4, 3, Polynomial((0, 1, 1)))
    with pytest.raises(InvalidInput, match="a polynomial activation must have degree at least 1"):
        effective_parameters(4, 3, (2,))
