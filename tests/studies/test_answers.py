"""The answer of a study comes from its verdict, and says no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from hessmap.runs.verdict import Answer, Finding, Verdict
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


def test_the_outcomes_of_a_verdict_have_a_sign_for_the_cases_and_one_for_each_claim() -> None:
    assert verdict(agree=3).outcomes == "+|"
    assert verdict(agree=3, disagree=1, claims=(True, False, None)).outcomes == "-|+-?"
    assert verdict(claims=(None, True)).outcomes == "|?+"
    assert Verdict("a/b", 2, 1, 0, 1, 0).outcomes == "?|"


def test_an_answer_is_shown_only_while_the_findings_are_those_it_was_written_for() -> None:
    sentence = "It depends: linear networks yes, others no."
    careful = study("Does it hold?", answered=Answer(sentence, "+|+-"))
    assert careful.answer(verdict(agree=1, claims=(True, False))) == sentence
    assert careful.answer(verdict(agree=9, claims=(True, False))) == sentence
    for changed, word in (
        (verdict(agree=1, claims=(False, True)), "It depends."),  # another claim fails
        (verdict(agree=1, claims=(True, True)), "Yes."),
        (verdict(agree=1, claims=(True, None)), "Yes as far as it is decided."),
        (verdict(agree=1, claims=(True, False, False)), "It depends."),  # a claim more
        (verdict(agree=1, disagree=1, claims=(True, False)), "It depends."),
        (verdict(), "Open."),
    ):
        assert careful.answer(changed) == word


def test_claims_that_do_not_hold_are_named_the_first_of_many() -> None:
    assert verdict(agree=1, claims=(True, None)).against == ""
    assert verdict(claims=(True, False)).against == "Does not hold: claim 1."
    many = verdict(claims=(False,) * 5)
    assert many.against == "Does not hold: claim 0; claim 1; claim 2; and 2 more."
    assert len(many.failing) == 5
