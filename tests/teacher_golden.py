"""The stored cases of the teacher-student setting, by the beginning of their names."""

from __future__ import annotations

from golden_tables import Case, table

_CASES: list[Case] = table("teacher-student")["cases"]


def teacher_golden(*beginnings: str) -> list[Case]:
    """The cases whose names begin so; a beginning without a case is an error."""
    for beginning in beginnings:
        assert any(case["id"].startswith(beginning) for case in _CASES), f"no case begins with {beginning}"
    return [case for case in _CASES if case["id"].startswith(beginnings)]
