"""Wider students: four ways to do nothing with extra neurons, against the stored cases and an oracle over GF(P)."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from polynomial_oracle import exact_rank

from golden_tables import each
from hessmap.errors import HessmapError, InvalidInput, UnknownName
from hessmap.theory import effective_parameters
from hessmap.theory.teacher_student.two_layers import Extra, wider_student_rank
from teacher_golden import teacher_golden

TERMS = {"linear": [1], "quad": [1, 2], "cubic": [1, 2, 3], "quartic": [1, 2, 3, 4]}
STORED = {"zero": "zero", "split": "split", "w2zero": "output_zero", "w1zero": "input_zero"}


@each(teacher_golden("over_"))
def test_stored_ranks_of_wider_students_come_out(case: dict[str, Any]) -> None:
    name, inputs, teacher, student, mode = case["inputs"]["key"].split(",")
    extra: Any = STORED[mode]
    rank = wider_student_rank(int(inputs), int(teacher), TERMS[name], int(student) - int(teacher), extra)
    assert rank.value == case["expected"]["rank"]
    assert rank.kind == "exact"


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("extra", get_args(Extra))
def test_every_way_has_the_rank_that_the_formula_gives(name: str, extra: Extra) -> None:
    coefficients = (0, 3, 5, 7, 11)[: max(TERMS[name]) + 1]
    for inputs in (1, 2, 3, 4):
        for hidden in (1, 2, 4, 6):
            for num_extra in (0, 1, 3):
                rank = wider_student_rank(inputs, hidden, TERMS[name], num_extra, extra)
                exact = exact_rank(inputs, hidden, coefficients, extra=extra, num_extra=num_extra)
                assert rank.value == exact, (inputs, hidden, num_extra)


def test_a_cubic_student_with_dead_inputs_meets_the_exception_of_the_theorem() -> None:
    assert wider_student_rank(4, 6, [1, 2, 3], 1, "input_zero").value == 33
    assert exact_rank(4, 6, (0, 3, 5, 7), extra="input_zero", num_extra=1) == 33


@pytest.mark.parametrize("coefficients", [(0, 3, 0, 7), (0, 0, 5, 7), (0, 0, 0, 7), (0, 3, 0, 0, 7)])
def test_activations_that_lack_terms_have_the_rank_that_the_formula_gives(coefficients: tuple[int, ...]) -> None:
    degrees = [k for k, value in enumerate(coefficients) if value]
    for extra in get_args(Extra):
        for inputs, hidden in [(2, 2), (3, 4), (4, 3)]:
            rank = wider_student_rank(inputs, hidden, degrees, 2, extra)
            exact = exact_rank(inputs, hidden, coefficients, extra=extra, num_extra=2)
            assert exact == rank.value


def test_bad_questions_are_refused() -> None:
    with pytest.raises(UnknownName, match="extra must be one of zero, split, output_zero, input_zero; got 'dead'"):
        wider_student_rank(2, 2, [1, 2], 1, "dead")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="num_extra must be at least 0; got -1"):
        wider_student_rank(2, 2, [1, 2], -1)
    with pytest.raises(InvalidInput, match="without constant term; c_0 is not zero"):
        wider_student_rank(2, 2, [0, 1, 2], 1)


@pytest.mark.parametrize("extra", ["zero", "split", "output_zero", "input_zero"])
def test_effective_parameters_take_wider_students(extra) -> None:
    found = effective_parameters(3, 2, (0.0, 1.0, 1.0), num_extra=2, extra=extra)

    assert found.value == wider_student_rank(3, 2, [1, 2], 2, extra).value
    assert found.num_parameters == 4 * 4


def test_effective_parameters_of_linear_wider_students_are_the_inputs() -> None:
    assert effective_parameters(5, 3, num_extra=2, extra="output_zero").value == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"activation": "erf"}, "known for polynomials, one hidden layer, no bias; got 3-2-1 'erf'"),
        ({"bias": "hidden"}, "got 3-2-1 .* with bias"),
        ({"hidden": (2, 2)}, "got 3-2-2-1"),
        ({"extra": "nothing"}, "extra"),
        ({"num_extra": -1}, "num_extra"),
    ],
)
def test_wider_students_without_a_formula_are_refused(changes, words) -> None:
    options = {"inputs": 3, "hidden": 2, "activation": (0.0, 1.0, 1.0), "num_extra": 1} | changes
    with pytest.raises(HessmapError, match=words):
        effective_parameters(**options)
