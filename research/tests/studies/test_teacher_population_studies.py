"""The studies of the population Hessian: small cases of each, and that their verdicts can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hessmap.records.record import decode, encode
from hessmap_research.runner.registry import find
from hessmap_research.studies import Row


def _row(name: str, case: dict[str, Any], **changes: Any) -> Row:
    """The row of a case as the store gives it back, some fields changed."""
    record = decode(encode(find(name).measure(case)))
    return Row(case, {**record, **changes})


def test_largest_eigenvalue_of_a_quadratic_teacher_is_bracketed_by_its_mean_part() -> None:
    study = find("teacher/quadratic-spectrum")
    case = {"inputs": 6, "hidden": 4, "shape": "oblong", "num_teachers": 5}
    row = _row(study.name, case)
    assert row.number("predicted_rank") == 4 * 7 - 6
    assert row["share_between_bounds"] == 1
    assert study.outcome([row]).num_agree == 1
    assert study.outcome([_row(study.name, case, share_between_bounds=0.8)]).num_disagree == 1


def test_error_function_has_as_many_large_eigenvalues_as_inputs() -> None:
    study = find("teacher/erf-spectrum")
    case = {"inputs": 8, "hidden": 4, "shape": "oblong", "num_teachers": 4}
    row = _row(study.name, case)
    assert row["num_large.smallest"] == row["num_large.largest"] == 8
    assert row["num_proved"] == 4
    assert row["num_as_printed"] == 0
    square = _row(study.name, {"inputs": 5, "hidden": 5, "shape": "square", "num_teachers": 4})
    verdict = study.outcome([row, square])
    assert verdict.num_agree == 2
    assert [claim.holds for claim in verdict.claims][:2] == [True, True]


@pytest.mark.parametrize("activation", ["identity", "relu"])
def test_fisher_information_of_samples_is_the_hessian_at_the_teacher(activation: str) -> None:
    study = find("teacher/fisher")
    at, away = ({"activation": activation, "outputs": 2, "distance": distance} for distance in (0.0, 1.0))
    assert study.outcome([_row(study.name, at), _row(study.name, away)]).num_agree == 2
    row = _row(study.name, away)
    assert row["gap"] > 0.1
    assert "gap_at_teacher" not in row
    assert study.outcome([_row(study.name, at, deviation=7.0)]).num_disagree == 1


@pytest.mark.parametrize("extra", ["zero", "split", "output_zero", "input_zero"])
def test_wider_students_have_the_predicted_ranks_in_exact_arithmetic(extra: str) -> None:
    study = find("teacher/overparameterised")
    row = _row(study.name, {"activation": "x + x^3", "extra": extra})
    assert row["num_agree"] == row["num_cells"] == 32
    assert row["spectrum_is_the_teachers"] == (extra == "zero")
    assert study.outcome([row]).num_agree == 1


def test_exceptional_cubic_student_is_among_the_cells() -> None:
    row = _row("teacher/overparameterised", {"activation": "cubic", "extra": "input_zero"})
    assert row.array("inputs_hidden_extra")[-1].tolist() == [4, 6, 1]
    assert row.array("measured")[-1] == 33


def test_rank_of_a_linear_student_falls_to_the_number_of_inputs() -> None:
    study = find("teacher/rank-in-time")
    row = _row(study.name, {"activation": "identity", "student": 2, "seed": 0})
    assert row["has_reached"]
    assert (row["ranks.start"], row["ranks.end"]) == (6, 3)
    assert set(np.asarray(row.array("outer_product_rank"))) == {3}
    assert (row.array("next") <= row.array("functional_norm") + 1e-14).all()
    assert study.outcome([row]).num_agree == 1
