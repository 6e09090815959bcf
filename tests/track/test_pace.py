"""When to measure: the share is kept by a clock that the tests move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hessmap.errors import InvalidInput
from hessmap.maps.track.tracker import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def measured(pace: Pace, clock: Clock, cost: float) -> None:
    with pace.measuring():
        clock.now += cost


def test_the_first_is_due_at_once_and_the_next_when_both_are_paid_for() -> None:
    clock = Clock()
    pace = Pace(0.1, clock=clock)
    assert pace.is_due
    measured(pace, clock, 1.0)
    clock.now += 17.9  # 2 s of measuring are a tenth of 20 s
    assert not pace.is_due
    clock.now += 0.2
    assert pace.is_due
    assert (pace.spent, pace.last_cost) == (1.0, 1.0)


@given(
    share=st.floats(0.01, 0.9),
    cost=st.floats(0.01, 3.0),
    steps=st.lists(st.floats(0.001, 0.5), min_size=300, max_size=500),
)
def test_equal_costs_never_exceed_the_share_after_the_first(share: float, cost: float, steps: list[float]) -> None:
    clock = Clock()
    pace = Pace(share, clock=clock)
    reached = []
    for step in steps:
        clock.now += step
        if pace.is_due:
            measured(pace, clock, cost)
            reached.append(pace.spent / pace.seconds)
    assert all(part <= share + 1e-9 for part in reached[1:])
    trained = sum(steps)
    wanted = trained * share / (1 - share) / cost  # as many points as the share pays for
    assert len(reached) >= min(wanted * 0.5, len(steps) * 0.5) - 1


def test_a_pause_is_not_followed_by_a_burst() -> None:
    clock = Clock()
    pace = Pace(0.5, clock=clock)
    measured(pace, clock, 1.0)
    clock.now += 1000.0
    measured(pace, clock, 1.0)
    clock.now += 0.9
    assert not pace.is_due
    clock.now += 0.2
    assert pace.is_due


def test_a_costly_measurement_is_waited_for_and_one_that_fails_is_counted() -> None:
    clock = Clock()
    pace = Pace(0.1, clock=clock)

    def failing() -> None:
        with pace.measuring():
            clock.now += 5.0
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        failing()
    clock.now += 89.0
    assert pace.spent == 5.0
    assert not pace.is_due
    clock.now += 2.0
    assert pace.is_due


def test_an_interrupted_training_goes_on_with_its_times() -> None:
    clock = Clock()
    pace = Pace(0.1, seconds=20.0, spent=4.0, last_cost=1.0, clock=clock)
    assert (pace.seconds, pace.is_due) == (20.0, False)
    clock.now += 29.5  # 5 s of 50 s
    assert pace.is_due


def test_without_a_share_it_is_always_time_and_a_wrong_share_is_refused() -> None:
    pace = Pace(None)
    with pace.measuring():
        pass
    assert pace.is_due
    for share in (0.0, -0.1, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match="share must be above 0 and at most 1"):
            Pace(share)
