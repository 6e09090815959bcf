"""Odd command lines of ``hessmap study`` and ``hessmap papers``: one sentence, an exit code, no file left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_lines import assert_one_sentence, enter, odd_folder

FILES = {
    "odd_studies.py": r"""
from hessmap_research.studies import Lines, Series, Study, View, grid
def study(name, **changes):
    view = View(figures=(Lines(title="t", x="width", series=(Series("a", points="value"),)),), table=("width", "value"))
    fields = {"cases": grid(width=[1, 2]), "measure": lambda case: {"value": 1}, "view": view, **changes}
    return Study(name=f"odd/{name}", question="Why?", reference="none", **fields)
GOOD, CASES, NUMBER = study("good"), study("cases", cases=lambda data: 1 / 0), study("number", cases=5)
OBJECT, SECONDS = study("object", cases=({"width": object()},)), study("seconds", seconds=lambda case: "x")
DATA, CLASS = study("data", data=("nowhere",)), Study
""",
}
LINES = """
study list --store other.sqlite
study describe absent
study describe ''
study describe ../x
study describe odd_studies:GOOD --data x
study describe odd_studies:CASES
study describe odd_studies:NUMBER
study describe odd_studies:SECONDS
study describe odd_studies:CLASS
study describe odd_studies:
study describe no_python:STUDY
study run no_python:STUDY
study run failing:STUDY
study run leaving:STUDY
study run wanting:STUDY
study run lying:STUDY
study run absent:STUDY
study run :STUDY
study run odd_studies:GOOD --engine inline --case '{'
study run odd_studies:GOOD --engine inline --store a_folder
study run odd_studies:GOOD --engine inline --store a_file/x
study show odd_studies:GOOD
study show odd_studies:GOOD --figure x.gif
study show odd_studies:GOOD --rows -1
study export odd_studies:GOOD
papers 7
papers 'Table 8'
papers 2 'Table 80'
papers 2 ''
papers --status nearly
papers --html a_folder
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return odd_folder(tmp_path_factory.mktemp("odd"), FILES)


@pytest.fixture(autouse=True)
def _in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enter(folder, monkeypatch)


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_an_odd_line_of_research_ends_in_one_sentence(line: str, folder: Path) -> None:
    assert_one_sentence(line, folder)
