"""The studies of learning coefficients: short chains give complete records, and the claims can fail."""

from __future__ import annotations

import pytest

from hessmap_research.runner.row import Row
from hessmap_research.studies.learning import coefficients

SHORT = {"num_chains": 2, "num_draws": 24, "num_burn_in": 16, "check_settings": False}


def test_a_linear_case_has_the_exact_value_beside_both_half_ranks(monkeypatch):
    monkeypatch.setattr(coefficients, "CHAINS", SHORT)
    record = coefficients.measure({"widths": "2-2-2", "rank": 1, "seed": 0})
    assert record["exact"] == 2.0
    assert record["multiplicity"] == 2
    assert "exact_without_logarithm" not in record
    assert (record["half_rank_at_weights"], record["half_generic_rank"], record["half_parameters"]) == (1.5, 2.0, 4.0)
    assert record["ratio"] == pytest.approx(record["estimate"] / 2.0)


def test_a_unit_at_zero_adds_no_rank(monkeypatch):
    monkeypatch.setattr(coefficients, "RELU_CHAINS", SHORT)
    own, zero = (
        coefficients.measure_relu({"hidden": 2, "student": student, "seed": 0}) for student in coefficients.STUDENTS
    )
    assert own["half_rank"] == zero["half_rank"]
    assert own["half_parameters"] == 6.0
    assert zero["half_parameters"] == 9.0
    assert own["harmonic"] <= own["half_rank"]


def test_the_claims_on_linear_networks_can_fail():
    good = {"half_rank_at_weights": 1.0, "exact": 2.0, "multiplicity": 2, "estimate": 1.9}
    good |= {"standard_error": 0.1, "ratio": 0.95}
    case = {"widths": "2-2-2", "rank": 1}
    assert all(claim.holds for claim in coefficients.claims([Row(case, good)]))
    bad = [good | {"estimate": 0.5, "ratio": 0.25}, good | {"half_rank_at_weights": 3.0}]
    assert [claim.holds for claim in coefficients.claims([Row(case, good), Row(case, bad[0])])] == [
        True,
        False,
        False,
    ]
    assert not next(coefficients.claims([Row(case, good), Row(case, bad[1])])).holds


def test_the_claims_on_relu_networks_can_fail():
    own, zero = coefficients.STUDENTS
    record = {"estimate": 5.0, "half_rank": 5.0, "standard_error": 0.1}
    rows = [Row({"student": own}, record), Row({"student": zero}, record | {"estimate": 6.0})]
    assert all(claim.holds for claim in coefficients.relu_claims(rows))
    wrong = [Row({"student": own}, record | {"estimate": 7.0}), Row({"student": zero}, record)]
    assert not any(claim.holds for claim in coefficients.relu_claims(wrong))
