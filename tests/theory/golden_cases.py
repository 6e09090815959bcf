"""The stored cases: ranks of small networks that were measured once in exact arithmetic, by family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Case = dict[str, Any]
_CASES: list[Case] = json.loads((Path(__file__).parents[1] / "golden" / "ranks.json").read_text())["cases"]
_LOSSES = {"mse": "squared", "ce": "cross_entropy", "cosh": "log_cosh"}


def families() -> set[str]:
    return {case["family"] for case in _CASES}


def golden(*names: str) -> list[Any]:
    """The cases of the named families as pytest parameters; an unknown family is an error, not an empty list."""
    unknown = set(names) - families()
    assert not unknown, f"no such family: {unknown}"
    found = [case | {"loss": _LOSSES[case["loss"]]} for case in _CASES if case["family"] in names]
    return [pytest.param(case, id=f"{case['family']}-{case['id']}") for case in found]


def stored_ranks(case: Case, key: str) -> tuple[int, int, int]:
    return case[key]["Ho"], case[key]["Hf"], case[key]["HL"]
