"""The answer of a study comes from the outcomes of its claims, and says no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from hessmap_research.runner.claims import Answer, Claim, StudyOutcome
from hessmap_research.studies import Study, View


def outcome(agree: int = 0, disagree: int = 0, claims: tuple[bool | None, ...] = ()) -> StudyOutcome:
    judged = tuple(Claim(f"claim-{place}", f"claim {place}", holds) for place, holds in enumerate(claims))
    return StudyOutcome("a/b", agree + disagree, agree, disagree, 0, 0, claims=judged)


def study(question: str, **fields: Any) -> Study:
    return Study("a/b", question, "none", (), lambda case: {}, View((), ()), **fields)


@pytest.mark.parametrize(
    ("found", "yes_or_no", "how"),
    [
        (outcome(agree=3), "Yes.", "All that is claimed holds."),
        (outcome(agree=3, claims=(True, None)), "Yes as far as it is decided.", "All that is decided holds."),
        (
            outcome(claims=(True, None, None)),
            "Mostly open: 1 of 3 claims are decided, and hold.",
            "Mostly open: 1 of 3 claims are decided, and hold.",
        ),
        (outcome(claims=(True, True, None)), "Yes as far as it is decided.", "All that is decided holds."),
        (outcome(agree=3, claims=(None,)), "Open.", "Open."),
        (outcome(), "Open.", "Open."),
        (outcome(disagree=2), "No.", "Nothing of what is claimed holds."),
        (outcome(claims=(False, None)), "No.", "Nothing of what is claimed holds."),
        (outcome(agree=2, claims=(False,)), "It depends.", "Some of what is claimed holds, some does not."),
    ],
)
def test_answers(found: StudyOutcome, yes_or_no: str, how: str) -> None:
    assert study("Does it hold?").answer(found) == yes_or_no
    assert study("How large is it?").answer(found) == how


def test_the_cases_have_one_outcome_together() -> None:
    assert outcome(agree=3).cases == "agrees"
    assert outcome(agree=3, disagree=1).cases == "disagrees"
    assert outcome(claims=(None, True)).cases == ""
    assert StudyOutcome("a/b", 2, 1, 0, 1, 0).cases == "undecidable"


def test_an_answer_is_shown_only_while_the_outcomes_are_those_it_was_written_for() -> None:
    sentence = "It depends: linear networks yes, others no."
    careful = study("Does it hold?", answered=Answer(sentence, 2, "agrees", fails=("claim-1",)))
    assert careful.answer(outcome(agree=1, claims=(True, False))) == sentence
    assert careful.answer(outcome(agree=9, claims=(True, False))) == sentence
    for changed, word in (
        (outcome(agree=1, claims=(False, True)), "It depends."),  # another claim fails
        (outcome(agree=1, claims=(True, True)), "Yes."),
        (outcome(agree=1, claims=(True, None)), "Yes as far as it is decided."),
        (outcome(agree=1, claims=(True, False, False)), "It depends."),  # a claim more
        (outcome(agree=1, claims=(True, False, True)), "It depends."),  # also where it holds
        (outcome(agree=1, claims=(False,)), "It depends."),  # a claim less
        (outcome(agree=1, disagree=1, claims=(True, False)), "It depends."),
        (outcome(), "Open."),
    ):
        assert careful.answer(changed) == word


def test_claims_that_do_not_hold_are_named_the_first_of_many() -> None:
    assert outcome(agree=1, claims=(True, None)).against == ""
    assert outcome(claims=(True, False)).against == "Does not hold: claim 1."
    many = outcome(claims=(False,) * 5)
    assert many.against == "Does not hold: claim 0; claim 1; claim 2; and 2 more."
    assert len(many.failing) == 5
