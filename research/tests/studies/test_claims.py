"""Claims are data: an id, an outcome and counts; the sentence is text for readers and is never a key."""

from __future__ import annotations

from dataclasses import replace
from operator import lt
from typing import Any

import pytest
from committed import committed

from hessmap.errors import InvalidInput, UnknownName
from hessmap_explorer.studies import outcome_word
from hessmap_research.papers import stored_outcomes
from hessmap_research.runner.claims import Answer, Claim, StudyOutcome, claim_id, study_outcome
from hessmap_research.runner.registry import listing
from hessmap_research.runner.row import Row

NAMES = sorted(listed.name for listed in listing())


@pytest.mark.parametrize("id", ["", "Fact-14", "fact_14", "fact 14", "-fact", "fact-", "fact--14", "fact-é"])
def test_an_id_is_small_letters_digits_and_hyphens(id: str) -> None:
    with pytest.raises(InvalidInput, match="the id of a claim must be"):
        Claim(id, "Fact 14 is right", True)


def test_two_claims_of_a_study_have_different_ids_even_where_the_sentences_differ() -> None:
    with pytest.raises(InvalidInput, match=r"every claim of study a/b must have an id of its own; twice: grows"):
        StudyOutcome("a/b", 1, claims=(Claim("grows", "It grows", True), Claim("grows", "It grows faster", True)))


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("peak", "F-200^2", "fashion_mnist"), "peak-f-200-2-fashion-mnist"),
        (("peak", "LeNet5-(fc1-80)", None, "conv2"), "peak-lenet5-fc1-80-conv2"),
        (("exponent", 0.001, ""), "exponent-0-001"),
        (("holds", "query and key merged, value frozen"), "holds-query-and-key-merged-value-frozen"),
    ],
)
def test_ids_of_families_are_made_from_the_fields_of_a_case(parts: tuple[Any, ...], name: str) -> None:
    assert claim_id(*parts) == name


@pytest.mark.parametrize(
    ("needs", "right", "holds"),
    [
        ("every", 4, True),
        ("every", 3, False),
        ("some", 1, True),
        ("some", 0, False),
        ("not every", 3, True),
        ("not every", 4, False),
        ("agreement", 4, True),
        ("agreement", 0, False),
        ("agreement", 3, None),
    ],
)
def test_claims_that_count_keep_their_counts(needs: Any, right: int, holds: bool | None) -> None:
    counted = Claim.counted("c", "They agree", right, 4, "{right} yes, {wrong} no, {total} in all", needs)
    about = Claim.about("c", "They agree", range(4), lambda item: item < right, needs=needs)
    assert (counted.holds, counted.right, counted.total) == (holds, right, 4)
    assert (about.holds, about.right, about.total) == (holds, right, 4)
    assert counted.detail == f"{right} yes, {4 - right} no, 4 in all"
    assert about.detail == f"in {right} of 4 cases"


def test_what_is_said_of_each_item_follows_the_detail_as_it_is() -> None:
    claim = Claim.about("c", "All are small", ["{a}", "{a}", "b"], bool, "{right}: ", said=str)
    assert claim.detail == "3: {a}, b"


@pytest.mark.parametrize(
    ("pairs", "outcome"),
    [
        ([(1, 2), (1, 3), (2, 3)], "holds"),
        ([(2, 1), (3, 1), (3, 2)], "does not hold"),
        ([(1, 2), (1, 3), (3, 2)], "inconclusive"),
        ([(1, 2), (1, 3)], "inconclusive"),
    ],
)
def test_pairs_of_trainings_decide_where_three_agree(pairs: list[tuple[float, float]], outcome: str) -> None:
    assert Claim.paired("c", "The second is larger", pairs, lt).outcome == outcome


def test_a_claim_about_nothing_is_not_listed() -> None:
    claims = [Claim.about("none", "All are right", [], bool), Claim.counted("one", "It is right", 1, 1)]
    found = study_outcome("a/b", (), [Row({}, {})], claims, 0)
    assert [claim.id for claim in found.claims] == ["one"]


def test_an_unknown_claim_is_an_error_that_names_the_near_one() -> None:
    found = StudyOutcome("a/b", 1, claims=(Claim("fact-13", "Fact 13", True),))
    assert found.claim("fact-13").sentence == "Fact 13"
    with pytest.raises(UnknownName, match=r"a claim of study a/b.*fact-13"):
        found.claim("fact-14")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_of_a_study_is_its_outcome(name: str) -> None:
    found, stored = committed(name).outcome, stored_outcomes()[name]
    assert stored.stored() == found.stored()
    assert (stored.sentence, stored.against, stored.cases) == (found.sentence, found.against, found.cases)
    assert [(one.id, one.outcome) for one in stored.claims] == [(one.id, one.outcome) for one in found.claims]
    assert outcome_word(stored) == outcome_word(found)


def test_a_reworded_claim_changes_no_outcome() -> None:
    """Of every study: whatever the sentences say, answers and words of the gallery are the same."""
    for name in NAMES:
        collection = committed(name)
        found = collection.outcome
        reworded = replace(found, claims=tuple(replace(claim, sentence="3 of 5 claims hold") for claim in found.claims))
        assert collection.study.answer(reworded) == collection.study.answer(found)
        assert outcome_word(reworded) == outcome_word(found)


@pytest.mark.parametrize(
    ("counts", "claims", "word"),
    [
        ({"num_agree": 3}, (), "all hold"),
        ({}, (True, True), "all hold"),
        ({"num_agree": 3, "num_undecidable": 2}, (True,), "some open"),
        ({"num_agree": 3}, (True, None), "some open"),
        ({"num_agree": 3, "num_disagree": 1, "num_undecidable": 1}, (True,), "some fail"),
        ({"num_agree": 3}, (None, False), "some fail"),
        ({}, (), "nothing to compare"),
    ],
)
def test_the_word_for_a_study_comes_from_its_counts(
    counts: dict[str, int], claims: tuple[bool | None, ...], word: str
) -> None:
    judged = tuple(Claim(f"c-{place}", "a claim", holds) for place, holds in enumerate(claims))
    assert outcome_word(StudyOutcome("a/b", 5, **counts, claims=judged)) == word


def test_a_stored_outcome_of_another_form_is_refused() -> None:
    good = StudyOutcome("a/b", 1, data={"": 1}, claims=(Claim("c", "a claim", None),)).stored()
    assert StudyOutcome.from_stored("a/b", good).claim("c").holds is None
    claims: dict[str, Any] = {"c": {"outcome": "perhaps", "sentence": "a claim"}}
    for bad in ({}, {**good, "claims": claims}, {**good, "claims": ["c"]}, {"sentence": "1 of 1 claims hold."}):
        with pytest.raises(InvalidInput, match="the stored outcome of study a/b must have the fields num_cases"):
            StudyOutcome.from_stored("a/b", bad)


@pytest.mark.parametrize(
    "other",
    [
        {"num_claims": 4},
        {"cases": "agrees"},
        {"fails": ("b",)},
        {"fails": ("a", "b")},
        {"inconclusive": ()},
        {"fails": (), "inconclusive": ("a", "c")},
    ],
)
def test_an_answer_names_the_claims_that_do_not_hold(other: dict[str, Any]) -> None:
    judged = (Claim("a", "first", False), Claim("b", "second", True), Claim("c", "third", None))
    answer = Answer("It depends.", num_claims=3, fails=("a",), inconclusive=("c",))
    assert answer.fits(StudyOutcome("a/b", 1, claims=judged))
    assert answer.fits(StudyOutcome("a/b", 1, claims=judged[::-1]))
    assert not replace(answer, **other).fits(StudyOutcome("a/b", 1, claims=judged))
