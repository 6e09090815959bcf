"""Whole certificates on a law whose errors are known: every form holds as often as promised, broken ones do not."""

from __future__ import annotations

import json

import pytest
from repeated_certificates import (
    BROKEN,
    COUNTED,
    FORMS,
    SAMPLED,
    SAMPLED_BROKEN,
    SAMPLING_DELTA,
    STORED,
    most_misses,
    num_misses,
)

FEW, MANY = 20, 500
QUICK_FORMS = ("half, prior", "half, shared weights, prior", "half, tokens, prior")
QUICK_BROKEN = (
    "a second use without noise",
    "noise for every token",
    "certified samples in the prior",
    "the divergence left out",
)


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


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
def test_bound_on_the_sampled_error_alone_holds_in_many_repetitions(name: str) -> None:
    assert num_misses(SAMPLED[name], MANY) <= most_misses(MANY, SAMPLING_DELTA)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED_BROKEN)
def test_many_repetitions_catch_a_broken_bound_on_the_sampled_error(name: str) -> None:
    assert num_misses(SAMPLED_BROKEN[name], MANY) > most_misses(MANY, SAMPLING_DELTA)


def test_stored_counts_say_the_same() -> None:
    """``python tests/certificates/repeated_certificates.py`` counts those that are missing."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))

    assert (stored["repetitions"], stored["at_most"]) == (MANY, most_misses(MANY))
    assert stored["sampled_at_most"] == most_misses(MANY, SAMPLING_DELTA)
    for kind, forms in COUNTED.items():
        most = stored["sampled_at_most" if "sampled" in kind else "at_most"]
        assert set(stored[kind]) <= set(forms)
        assert all((count > most) == ("broken" in kind) for count in stored[kind].values())


def test_bound_of_pairs_on_the_sampled_error_is_tight() -> None:
    """It misses about as often as it may, where that was counted; a bound that is never wrong would show nothing."""
    counted = json.loads(STORED.read_text(encoding="utf-8"))["sampled"].get("pairs")

    assert counted is None or counted >= 0.25 * SAMPLING_DELTA * MANY
