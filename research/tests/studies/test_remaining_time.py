"""The time left is honest: heavy cases count as heavy, and the clock decides in the long run."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hessmap_research.runner.plan import RemainingTime


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_claimed_before_a_case_has_finished() -> None:
    remaining = RemainingTime({"a": 1.0, "b": 9.0})
    assert remaining.seconds(num_workers=1) is None
    assert remaining.seconds_of("a") is None


def test_predictions_are_scaled_by_what_cases_really_took() -> None:
    remaining = RemainingTime({"light": 1.0, "heavy": 9.0})
    remaining.count("light", seconds=2.0)
    assert remaining.seconds_of("heavy") == 18.0
    assert remaining.seconds(num_workers=1) == 18.0
    assert remaining.num_left == 1


def test_lanes_share_the_work_but_one_case_cannot_be_shared() -> None:
    remaining = RemainingTime(dict.fromkeys("abcde", 1.0))
    remaining.count("a", seconds=3.0)
    assert remaining.seconds(num_workers=2) == 6.0
    for key in "bcd":
        remaining.count(key, seconds=3.0)
    assert remaining.seconds(num_workers=2) == 3.0


def test_a_failure_says_nothing_about_speed() -> None:
    remaining = RemainingTime({"a": 1.0, "b": 1.0, "c": 1.0})
    remaining.count("a", seconds=10.0)
    remaining.count("b", seconds=0.0, is_done=False)
    assert remaining.seconds(num_workers=1) == 10.0


def test_after_many_cases_the_wall_clock_counts_what_lies_between_them() -> None:
    clock = Clock()
    remaining = RemainingTime({str(place): 1.0 for place in range(1000)}, clock=clock)
    for place in range(100):
        clock.now += 0.5
        remaining.count(str(place), seconds=0.001)
    assert remaining.seconds(num_workers=2) == pytest.approx(450.0)


def test_the_claim_shrinks_to_zero() -> None:
    clock = Clock()
    remaining = RemainingTime({str(place): 1.0 + place for place in range(60)}, clock=clock)
    claims = []
    for place in range(60):
        clock.now += 1.0 + place
        remaining.count(str(place), seconds=1.0 + place)
        claims.append(remaining.seconds(num_workers=1))
    assert claims[-1] == 0.0
    assert all(later < earlier for earlier, later in pairwise(claims) if earlier is not None and later is not None)
