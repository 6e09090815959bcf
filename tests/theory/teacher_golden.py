"""The stored cases of the teacher-student setting, by the beginning of their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_CASES = json.loads((Path(__file__).parents[1] / "golden" / "teacher-student.json").read_text())["cases"]


def teacher_golden(*beginnings: str) -> list[Any]:
    """The cases whose names begin so, as pytest parameters; a beginning without a case is an error."""
    for beginning in beginnings:
        assert any(case["id"].startswith(beginning) for case in _CASES), f"no case begins with {beginning}"
    return [pytest.param(case, id=case["id"]) for case in _CASES if case["id"].startswith(beginnings)]
