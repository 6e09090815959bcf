"""Every study of the project has an answer of its own, written for the results that are committed."""

from __future__ import annotations

import re

import pytest
from committed import committed

from hessmap_research.runner.claims import StudyOutcome
from hessmap_research.runner.registry import find, listing

NAMES = sorted(listed.name for listed in listing())
GENERIC = ("All that is", "Some of what is", "Nothing of what is", "Open")


def outcome(name: str) -> StudyOutcome:
    return committed(name).outcome


def sentence_of(name: str) -> str:
    answered = find(name).answered
    assert answered is not None, f"{name} has no answer of its own"
    return answered.sentence


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_was_written_for_the_committed_results(name: str) -> None:
    sentence, stored = sentence_of(name), outcome(name)
    assert find(name).answered.fits(stored), f"read again: {sentence!r}"  # type: ignore[union-attr]
    assert find(name).answer(stored) == sentence


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_a_sentence_that_answers_the_question(name: str) -> None:
    sentence, question = sentence_of(name), find(name).question
    assert sentence.endswith(".")
    assert 20 < len(sentence) < 260
    assert not sentence.startswith(GENERIC)
    first = question.split(" ", 1)[0].lower()
    if first in ("do", "does", "is", "are", "have"):
        assert sentence.startswith(("Yes", "No:", "It depends")), sentence
        assert not (sentence.startswith("Yes") and outcome(name).fails)
        assert sentence not in ("Yes.", "It depends.")


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_an_answer_stands_in_its_claims(name: str) -> None:
    """Nobody writes a sentence again when a number changes: it has those of the claims and of their details alone."""
    stored = outcome(name)
    claims = " ".join(f"{claim.sentence} {claim.detail}" for claim in stored.claims)
    assert unsupported_numbers(sentence_of(name), f"{find(name).question} {find(name).reference} {claims}") == set()


def unsupported_numbers(sentence: str, claims: str) -> set[str]:
    """The numbers of a sentence that a text does not have, digit by digit."""
    number = re.compile(r"\d[\d,.]*(?:e-?\d+)?")
    there, said = ({found.rstrip(".,") for found in number.findall(text)} for text in (claims, sentence))
    return said - there


def test_the_check_of_numbers_bites() -> None:
    claims = "The formula is right on 2,000 of 2,000 networks (to 1e-3)"
    assert unsupported_numbers("Yes, on 2,000, to 1e-3.", claims) == set()
    assert unsupported_numbers("Yes, on 2,001, to 1e-4.", claims) == {"2,001", "1e-4"}
