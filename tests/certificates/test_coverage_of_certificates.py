"""Whole certificates on a law whose errors are known: every form holds as often as promised, broken ones do not."""

from __future__ import annotations

import json

import pytest
from repeated_certificates import BROKEN, FORMS, STORED, most_misses, num_misses

FEW, MANY = 20, 500
QUICK_FORMS = ("half, prior", "half, shared weights, prior", "half, tokens, prior")
QUICK_BROKEN = ("a second use without noise", "noise for every token", "certified samples in the prior")


@pytest.mark.parametrize("name", QUICK_FORMS)
def test_certificates_hold_as_often_as_promised(name: str) -> None:
    assert num_misses(FORMS[name], FEW) <= most_misses(FEW)


@pytest.mark.parametrize("name", QUICK_BROKEN)
def test_the_same_count_catches_broken_ones(name: str) -> None:
    assert num_misses(BROKEN[name], FEW) > most_misses(FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_form_holds_in_many_repetitions(name: str) -> None:
    assert num_misses(FORMS[name], MANY) <= most_misses(MANY)


@pytest.mark.slow
@pytest.mark.parametrize("name", BROKEN)
def test_many_repetitions_catch_every_broken_form(name: str) -> None:
    assert num_misses(BROKEN[name], MANY) > most_misses(MANY)


def test_stored_counts_are_of_all_forms_and_say_the_same() -> None:
    """``python tests/certificates/repeated_certificates.py`` counts them anew."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))

    assert (stored["repetitions"], stored["at_most"]) == (MANY, most_misses(MANY))
    assert set(stored["forms"]) <= set(FORMS)
    assert set(stored["broken"]) <= set(BROKEN)
    assert all(count <= stored["at_most"] for count in stored["forms"].values())
    assert all(count > stored["at_most"] for count in stored["broken"].values())
