"""Tables of stored cases: one test goes over a whole table, and says all that fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Case = dict[str, Any]


def table(name: str) -> Any:
    """A stored file."""
    return json.loads((Path(__file__).parent / "golden" / f"{name}.json").read_text())


def family_and_id(case: Case) -> str:
    return "-".join(str(case[key]) for key in ("family", "id") if key in case)


def each(
    cases: Sequence[Case], name: Callable[[Case], str] = family_and_id
) -> Callable[[Callable[[Case], None]], Callable[[], None]]:
    """Make one test of what holds for every case; it lists the cases that fail by their names.

    >>> each([{"id": 0}, {"id": 1}, {"id": 2}])(lambda case: 1 / (case["id"] - 1))()
    Traceback (most recent call last):
        ...
    AssertionError: 1 of 3 cases fail
    1: ZeroDivisionError: division by zero
    """
    assert cases, "a table must contain cases"

    def as_one_test(check: Callable[[Case], None]) -> Callable[[], None]:
        def test() -> None:
            failures = []
            for case in cases:
                try:
                    check(case)
                except Exception as error:
                    failures.append(f"{name(case)}: {type(error).__name__}: {error}")
            if failures:
                raise AssertionError("\n".join([f"{len(failures)} of {len(cases)} cases fail", *failures]))

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        return test

    return as_one_test
