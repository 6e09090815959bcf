"""The wide limit: what a small case records, that the correction is seen in it, and that its claims can fail."""

from __future__ import annotations

from typing import Any

import pytest

from hessmap.records.record import decode, encode
from hessmap_research.studies import Row
from hessmap_research.studies.layers.theorem_4 import STUDY


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
    verdict = STUDY.outcome([made(16), made(64), made(256)])

    assert len(verdict.claims) == 8
    assert verdict.holds


@pytest.mark.parametrize(
    ("claim", "fields"),
    [
        ("falls-with-width-output-ratio", {"output_ratio": 1.0}),
        ("falls-with-width-hessian-ratio", {"hessian_ratio": 1.0}),
        ("overlap-kronecker", {"hessian_overlap": 0.98}),
        ("overlap-exact", {"exact": 0.98}),
        ("overlap-corrected", {"corrected": 0.98}),
        ("overlap-corrected-space", {"corrected_space": 0.98}),
        ("overlap-printed", {"printed": 0.95}),
        ("overlap-printed-space", {"printed_space": 0.7}),
    ],
)
def test_each_claim_fails_where_its_numbers_do(claim: str, fields: dict[str, float]) -> None:
    outcome = STUDY.outcome([made(16), made(64), made(256, **fields)])

    assert [one.id for one in outcome.failing] == [claim]
