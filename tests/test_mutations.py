"""The faults that `make test-mutations` puts into a copy of the source: each is one change that still is Python."""

from __future__ import annotations

import ast
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / ".ci"))
import mutations  # noqa: E402
from blocks import Blocks  # noqa: E402
from mutants import mutants_of  # noqa: E402

SOURCE = '''"""A docstring, 1 < 2."""


def f(a: "1 + 2", b):
    """Another, 3 < 4."""
    require(a > 0, "a must be positive")
    if a < 2 and not b:
        return None
    value = 2 * g(a, b) + max(a, -b)
    if value == 7:
        raise ValueError(f"{a + 1} < 2")
    return value.T
'''


@pytest.fixture(scope="module")
def found() -> list[Any]:
    return mutants_of(SOURCE)


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ("comparison", "a < 2", "(a <= 2)"),
        ("comparison", "value == 7", "(value != 7)"),
        ("and, or", "a < 2 and not b", "(a < 2 or not b)"),
        ("not", "not b", "(b)"),
        ("off by one", "7", "(8)"),
        ("sign", "2 * g(a, b) + max(a, -b)", "(2 * g(a, b) - max(a, -b))"),
        ("sign", "-b", "(b)"),
        ("dropped factor", "2 * g(a, b)", "(g(a, b))"),
        ("transposed", "g(a, b)", "(g(b, a))"),
        ("transposed", "value.T", "(value)"),
        ("min, max", "max(a, -b)", "(min(a, -b))"),
        ("removed guard", 'require(a > 0, "a must be positive")', "pass"),
        ("removed guard", "if a < 2 and not b:\n        return None", "pass"),
    ],
)
def test_every_kind_of_fault_is_made(found: list[Any], kind: str, before: str, after: str) -> None:
    assert (kind, before, after) in {(one.kind, one.before, one.after) for one in found}


def test_what_is_for_readers_is_left_alone(found: list[Any]) -> None:
    assert not [one for one in found if one.line in (1, 4, 5, 11)]


FILES = [
    "src/hessmap/theory/prediction.py",
    "src/hessmap/measurement/operators_in.py",
    "research/src/hessmap_research/runner/plan.py",
]


@pytest.mark.parametrize("name", FILES)
def test_every_fault_of_a_file_is_python_and_another_program(name: str) -> None:
    source = (ROOT / name).read_text()
    tree = ast.dump(ast.parse(source))
    faults = mutants_of(source)
    assert len(faults) > 30
    assert all(ast.dump(ast.parse(one.applied_to(source))) != tree for one in faults)


@pytest.mark.parametrize("folder", mutations.FOLDERS)
def test_every_folder_has_faults(folder: str) -> None:
    assert len(mutations.sample([folder], seed=0)) >= 10


def test_every_source_of_the_library_is_in_a_folder_of_the_table() -> None:
    names = [str(path.relative_to(ROOT)) for path in (ROOT / mutations.LIBRARY).rglob("*.py")]
    assert {mutations.folder_of(name) for name in names} == set(mutations.FOLDERS) - {mutations.RUNNER}


BLOCKS = '''"""Text."""
from __future__ import annotations
LIMIT = 3


def sign(x, hits):
    """Text."""
    if x < 0:
        x = -x
        hits.append("negative")
    elif x > LIMIT:
        return 2
    try:
        return 1 / x
    except ZeroDivisionError:
        return 0
'''


@pytest.mark.parametrize(
    ("value", "lines"),
    [
        (-1, {8, 9, 10, 13, 14}),
        (9, {8, 11, 12}),
        (1, {8, 11, 13, 14}),
        (0, {8, 11, 13, 14, 16}),
    ],
)
def test_markers_tell_which_lines_run(monkeypatch: pytest.MonkeyPatch, value: int, lines: set[int]) -> None:
    recorder = types.ModuleType("hessmap_blocks")
    recorder.hits = set()
    monkeypatch.setitem(sys.modules, "hessmap_blocks", recorder)
    blocks, names = Blocks(BLOCKS, first=100), {}
    exec(blocks.instrumented(), names)
    at_import = set(recorder.hits)
    assert at_import == blocks.at_import == {blocks.of_line[line] for line in (3, 6)}
    recorder.hits.clear()
    names["sign"](value, [])
    found = {line for line, block in blocks.of_line.items() if block in recorder.hits}
    assert {line for line in found if line > 7 and line != 15} == lines  # "except" belongs to the block of "try"


def test_the_first_tests_of_a_fault_are_of_different_files() -> None:
    marked = object.__new__(mutations.Marked)
    marked.seconds = {"a::1": 0.1, "a::2": 0.2, "b::1": 5.0, "c::1": 0.3}
    assert marked._in_turn(set(marked.seconds)) == ["a::1", "c::1", "b::1", "a::2"]


def test_what_is_stored_is_about_folders_and_files_that_exist() -> None:
    stored = json.loads(mutations.OUTCOME.read_text())
    assert set(stored["counts"]) == set(mutations.FOLDERS)
    assert sum(number for one in stored["counts"].values() for number in one.values()) == stored["tried"]
    assert set(stored["breaches"]) <= set(stored["survivors"])
    assert [one for one in stored["survivors"] if not (ROOT / one.split(":")[0]).is_file()] == []


@pytest.mark.parametrize(
    ("names", "folders"),
    [
        (["theory"], ["src/hessmap/theory"]),
        (["cli", "runner"], ["src/hessmap/cli", "research/src/hessmap_research/runner"]),
        (["src/hessmap/exact/", "exact"], ["src/hessmap/exact"]),
        (["hessmap"], ["src/hessmap"]),
        ([], [one for one in mutations.FOLDERS if one != mutations.RUNNER]),
    ],
)
def test_folders_are_chosen_by_the_end_of_their_path(names: list[str], folders: list[str]) -> None:
    assert mutations.chosen_folders(names) == folders


@pytest.mark.parametrize("name", ["heory", "absent", "src"])
def test_a_folder_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        mutations.chosen_folders(["theory", name])
