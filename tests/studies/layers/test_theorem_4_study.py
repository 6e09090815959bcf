"""The wide limit: what a small case records, that the correction is seen in it, and that its claims can fail."""

from __future__ import annotations

from typing import Any

import pytest

from hessmap.results.encoding import decode, encode
from hessmap.studies import Row
from hessmap.studies.layers.theorem_4 import STUDY


def measured(width: int, num_samples: int = 2000) -> Row:
    case = {"width": width, "num_samples": num_samples, "seed": 0}
    return Row(case, decode(encode(STUDY.measure(case))))


def made(width: int, **fields: Any) -> Row:
    """A record as the theorems have it for many units."""
    good = {"exact": 0.9999, "corrected": 0.999, "corrected_space": 0.999, "printed": 0.83, "printed_space": 0.83}
    overlap = good | {name: value for name, value in fields.items() if name in good}
    record = {"output_ratio": 10 / width, "hessian_ratio": 11 / width, "hessian_overlap": 0.995, "overlap": overlap}
    return Row({"width": width, "seed": 0}, record | {name: fields[name] for name in fields if name not in good})


def test_small_case_shows_the_printed_form_wrong_and_the_corrected_one_right() -> None:
    row = measured(64)

    assert row["num_inputs"] == 181
    assert row["converged"] is True
    assert row["overlap.printed"] < 0.93
    assert row["overlap.corrected"] > row["overlap.printed"] + 0.05
    assert row["overlap.exact"] > row["overlap.corrected"] > 0.99
    assert 0.2 < row["mean_squared_activity"] < 0.4


def test_wide_layers_have_no_layer_hessian() -> None:
    assert "hessian_ratio" not in measured(600, num_samples=50)


def test_claims_hold_for_records_that_follow_the_theorems() -> None:
    verdict = STUDY.verdict([made(16), made(64), made(256)])

    assert len(verdict.findings) == 8
    assert verdict.holds


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("of E[M] falls", {"output_ratio": 1.0}),
        ("of the layer Hessian falls", {"hessian_ratio": 1.0}),
        ("Kronecker product", {"hessian_overlap": 0.98}),
        ("with M* as defined", {"exact": 0.98}),
        ("Corrected closed form", {"corrected": 0.98}),
        ("Corrected limit", {"corrected_space": 0.98}),
        ("Equation 8 as printed", {"printed": 0.95}),
        ("Its limit as printed", {"printed_space": 0.7}),
    ],
)
def test_each_claim_fails_where_its_numbers_do(words: str, fields: dict[str, float]) -> None:
    found = STUDY.verdict([made(16), made(64), made(256, **fields)]).findings

    assert [finding.holds for finding in found if words in finding.claim] == [False]
    assert sum(not finding.holds for finding in found) == 1
