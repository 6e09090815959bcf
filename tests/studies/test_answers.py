"""The answer of a study comes from its verdict, and says no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from hessmap.runs.verdict import Finding, Verdict
from hessmap.studies import Study, View


def verdict(agree: int = 0, disagree: int = 0, claims: tuple[bool | None, ...] = ()) -> Verdict:
    findings = tuple(Finding(f"claim {place}", holds) for place, holds in enumerate(claims))
    return Verdict("a/b", agree + disagree, agree, disagree, 0, 0, findings=findings)


def study(question: str, **fields: Any) -> Study:
    return Study("a/b", question, "none", (), lambda case: {}, View((), ()), **fields)


@pytest.mark.parametrize(
    ("found", "yes_or_no", "how"),
    [
        (verdict(agree=3), "Yes.", "All that is claimed holds."),
        (verdict(agree=3, claims=(True, None)), "Yes as far as it is decided.", "All that is decided holds."),
        (
            verdict(claims=(True, None, None)),
            "Open but for 1 of 3 claims, which hold.",
            "Open but for 1 of 3 claims, which hold.",
        ),
        (verdict(claims=(True, True, None)), "Yes as far as it is decided.", "All that is decided holds."),
        (verdict(agree=3, claims=(None,)), "Open.", "Open."),
        (verdict(), "Open.", "Open."),
        (verdict(disagree=2), "No.", "Nothing of what is claimed holds."),
        (verdict(claims=(False, None)), "No.", "Nothing of what is claimed holds."),
        (verdict(agree=2, claims=(False,)), "It depends.", "Some of what is claimed holds, some does not."),
    ],
)
def test_answers(found: Verdict, yes_or_no: str, how: str) -> None:
    assert study("Does it hold?").answer(found) == yes_or_no
    assert study("How large is it?").answer(found) == how


def test_what_it_depends_on_is_said_only_while_everything_claimed_holds() -> None:
    careful = study("Does it hold?", depends_on="linear networks yes, others no")
    assert careful.answer(verdict(agree=1)) == "It depends: linear networks yes, others no."
    assert careful.answer(verdict(disagree=1)) == "No."
    assert careful.answer(verdict()) == "Open."
