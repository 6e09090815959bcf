"""The studies of laws, ranks and dynamics of teachers on small cases: they agree, and their verdicts can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hessmap.records.record import decode, encode
from hessmap_research.studies import Row, Study
from hessmap_research.studies.teacher import (
    deep_polynomial,
    distributions,
    dynamics,
    effective_parameters,
    erf_full_rank,
    linear_law,
)
from hessmap_research.studies.teacher.simulated_law import random_weights

# Kolmogorov-Smirnov distances of 4e5 and more teachers, as they were published with the correction of the scale.
PUBLISHED = {(2, 4): (0.0420, 0.257), (10, 20): (0.0135, 0.691), (4, 2): (0.0131, 0.146), (10, 5): (0.0070, 0.210)}


def measured(study: Study, **fields: Any) -> list[Row]:
    cases = [case for case in study.cases_on("") if all(case.get(name) == value for name, value in fields.items())]
    assert cases, f"no case of {study.name} has {fields}"
    return [Row(case, decode(encode(study.measure(case)))) for case in cases]


def changed(row: Row, **fields: Any) -> Row:
    return Row(row.case, {**row.record, **fields})


@pytest.mark.parametrize(("inputs", "hidden"), PUBLISHED)
def test_distances_from_the_law_are_the_published_ones(inputs: int, hidden: int) -> None:
    case = {"item": "distance", "shape": "", "inputs": inputs, "hidden": hidden, "num_teachers": 20_000}
    found = linear_law.measure(case)
    corrected, printed = PUBLISHED[inputs, hidden]
    assert found["distance"]["corrected"] == pytest.approx(
        corrected, abs=5 * found["distance"]["standard_error"] + 1e-4
    )
    assert found["distance"]["printed"] == pytest.approx(printed, abs=5e-3)
    assert max(found["moment_error"].values()) < 5


def test_pictures_of_the_linear_law_have_densities_that_fit() -> None:
    for item in ("spectrum", "norms", "second block"):
        for row in measured(linear_law.STUDY, item=item):
            at, density, values = row.array("at"), row.array("density"), row.array("values")
            inside = np.mean((values >= at[0]) & (values <= at[-1]))
            assert np.trapezoid(density, at) == pytest.approx(inside, abs=0.02)


def test_the_verdict_on_the_linear_law_can_fail() -> None:
    alone = measured(linear_law.STUDY, item="one teacher", inputs=200)[0]
    case = {"item": "distance", "shape": "Ni > Nh", "inputs": 20, "hidden": 10, "num_teachers": 2000}
    swept = Row(case, linear_law.measure(case))
    assert linear_law.STUDY.outcome([alone, swept]).holds
    verdict = linear_law.STUDY.outcome([changed(alone, own_distance=0.2), swept])
    assert verdict.num_disagree == 1
    assert [claim.holds for claim in verdict.claims] == [True, True, True, False]


@pytest.mark.parametrize("distribution", ["normal", "uniform", "laplace", "two-point", "student"])
def test_drawn_weights_have_mean_zero_and_variance_one(distribution: str) -> None:
    weights = random_weights(distribution, (200_000,), np.random.default_rng(0))
    assert abs(weights.mean()) < 0.01
    assert weights.var() == pytest.approx(1, abs=0.02)


def test_other_distributions_differ_by_the_norm_of_the_outputs() -> None:
    case = {"inputs": 30, "hidden": 10, "distribution": "two-point", "num_teachers": 300}
    row = Row(case, decode(encode(distributions.measure(case))))
    assert row["norm_variance"] == row["predicted_norm_variance"] == 0
    assert row["own_norms_distance"] < 0.02 < 0.3 < row["distance"]
    assert distributions.STUDY.outcome([row]).holds
    assert not distributions.STUDY.outcome([changed(row, own_norms_distance=0.3)]).holds


@pytest.mark.parametrize(
    ("activation", "bias"), [("degree 2", "none"), ("degree 3", "hidden"), ("x^4", "none"), ("x^2 + x^4", "none")]
)
def test_ranks_of_teachers_are_those_of_the_formula(activation: str, bias: str) -> None:
    rows = measured(effective_parameters.STUDY, activation=activation, bias=bias, inputs=2)
    rows += measured(effective_parameters.STUDY, activation=activation, bias=bias, inputs=3)
    assert effective_parameters.STUDY.outcome(rows).holds
    wrong = changed(rows[0], num_right=rows[0]["num_cells"] - 1)
    verdict = effective_parameters.STUDY.outcome([wrong])
    assert verdict.num_disagree == 1
    assert not verdict.claims[0].holds


def test_the_study_holds_equation_14_on_a_hundred_cells() -> None:
    cases = [
        case for case in effective_parameters.cases() if (case["activation"], case["bias"]) == ("degree 2", "none")
    ]
    assert [case["inputs"] for case in cases] == list(range(1, 11))


def test_deep_ranks_are_those_of_the_conjecture_and_its_failure_would_show() -> None:
    rows = measured(deep_polynomial.STUDY, item="table", degree=3, inputs=2) + measured(
        deep_polynomial.STUDY, item="special"
    )
    assert deep_polynomial.STUDY.outcome(rows).holds
    wrong = changed(rows[0], num_right=rows[0]["num_right"] - 1)
    assert not deep_polynomial.STUDY.outcome([wrong]).holds


def test_erf_teachers_are_certified_to_have_full_rank() -> None:
    rows = measured(erf_full_rank.STUDY, inputs=1, hidden=8) + measured(erf_full_rank.STUDY, inputs=2, seed=0, hidden=2)
    assert erf_full_rank.STUDY.outcome(rows).holds
    assert rows[0]["smallest"] < 1e-20
    assert rows[0].number("rank_in_floats") < 16
    assert not erf_full_rank.STUDY.outcome([changed(rows[1], certified_rank=0)]).holds


@pytest.fixture(scope="module")
def students() -> list[Row]:
    return [
        *measured(dynamics.STUDY, item="flow", network="linear", teacher=0, deviation=1e-2),
        *measured(dynamics.STUDY, item="late", network="linear"),
        *measured(dynamics.STUDY, item="steps", network="quadratic"),
    ]


def test_students_near_a_teacher_follow_its_hessian(students: list[Row]) -> None:
    flow, late, steps = students
    assert flow["farthest_ratio"] < 0.02
    assert flow.array("flow")[0] == pytest.approx(flow.array("form")[0], rel=0.01)
    assert late["last_rate"] == pytest.approx(late["exponent"], rel=0.05)
    assert steps["over_stepped.t1"] == pytest.approx(1, abs=0.1)
    assert dynamics.STUDY.outcome(students).holds


def test_the_verdict_on_the_dynamics_can_fail(students: list[Row]) -> None:
    flow, late, steps = students
    assert not dynamics.STUDY.outcome([changed(flow, farthest_ratio=0.5), late, steps]).holds
    assert not dynamics.STUDY.outcome([flow, changed(late, last_rate=2 * late["exponent"]), steps]).holds
    far = {**steps["over_stepped"], "t4": 2.0}
    assert not dynamics.STUDY.outcome([flow, late, changed(steps, over_stepped=far)]).holds


def test_an_erf_student_follows_the_quadratic_form_too() -> None:
    (row,) = measured(dynamics.STUDY, item="flow", network="erf", deviation=1e-2)
    assert row["farthest_ratio"] < 0.01
    assert row["form_in_standard_errors"] < 5
