"""The stored cases: ranks of small networks that were measured once in exact arithmetic, by family."""

from __future__ import annotations

from golden_tables import Case, table

_CASES: list[Case] = table("ranks")["cases"]
_LOSSES = {"mse": "squared", "ce": "cross_entropy", "cosh": "log_cosh"}


def families() -> set[str]:
    return {case["family"] for case in _CASES}


def golden(*names: str) -> list[Case]:
    """The cases of the named families; an unknown family is an error, not an empty list."""
    unknown = set(names) - families()
    assert not unknown, f"no such family: {unknown}"
    return [case | {"loss": _LOSSES[case["loss"]]} for case in _CASES if case["family"] in names]


def stored_ranks(case: Case, key: str) -> tuple[int, int, int]:
    return case[key]["Ho"], case[key]["Hf"], case[key]["HL"]
