"""When a study counts as changed: its measurement does, its place, its figures and its verdict do not."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import toy_studies

from hessmap.runs.registry import find
from hessmap.runs.study import Study
from hessmap.runs.study_source import source_hash

FILE = '''"""A study."""
from hessmap.studies import Case, Study, View, grid

LARGE = 3

def measure(case: Case):
    """Twice the size."""
    from math import pi
    return {"size": _twice(case["size"]) * pi}

def _twice(size):
    return min(2 * size, LARGE)

def _seconds(case):
    return 1.0

STUDY = Study(
    name="a/b", question="?", reference="", cases=grid(size=[1, 2]), measure=measure,
    view=View((), ()), seconds=_seconds,
)
'''


def study_in(path: Path, text: str) -> Study:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    study = module.STUDY
    assert isinstance(study, Study)
    return study


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from math import pi", "from cmath import pi"),
        ("Twice the size.", "Two times the size."),
        ("size=[1, 2]", "size=[1, 2, 3]"),
        ("return 1.0", "return 2.0"),
        ("def measure", "# a comment\nOTHER = 4\n\ndef measure"),
    ],
)
def test_what_does_not_measure_does_not_count(tmp_path: Path, before: str, after: str) -> None:
    assert before in FILE
    changed = FILE.replace(before, after)
    hashes = [source_hash(study_in(tmp_path / f"file_{place}.py", text)) for place, text in enumerate((FILE, changed))]
    assert hashes[0] == hashes[1] != ""


@pytest.mark.parametrize(("before", "after"), [("* pi", "/ pi"), ("min(2", "max(2"), ("LARGE = 3", "LARGE = 4")])
def test_what_measures_counts(tmp_path: Path, before: str, after: str) -> None:
    assert before in FILE
    changed = FILE.replace(before, after)
    hashes = [source_hash(study_in(tmp_path / f"file_{place}.py", text)) for place, text in enumerate((FILE, changed))]
    assert hashes[0] != hashes[1]


def test_every_study_has_a_hash_and_what_has_no_source_has_none() -> None:
    assert source_hash(find("fcn/simulate")) != source_hash(toy_studies.SQUARE) != ""
    assert source_hash(Study("a/b", "?", "", (), dict, toy_studies.VIEW)) == ""
