"""The tests themselves: none may look at a clock, and none may draw numbers that another run would not draw."""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from example_shares import share_of_examples

HERE = Path(__file__).parent
ROOT = HERE.parent
FILES = sorted(
    path
    for folder in ("tests", "explorer/tests", "research/tests")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(__file__)
)
CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "time_ns", "thread_time"}
WAITS = {ROOT / "research" / "tests" / "studies" / "toy_processes.py"}  # ends what would hang


def looks_at_a_clock(source: str) -> Iterator[int]:
    """The lines on which the time is asked for, whatever is made of it."""
    for node in ast.walk(ast.parse(source)):
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        is_time = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time"
        if name in CLOCKS or (is_time and name == "time"):
            yield node.lineno  # type: ignore[attr-defined]


def test_no_test_looks_at_a_clock() -> None:
    found = [f"{path}:{line}" for path in FILES if path not in WAITS for line in looks_at_a_clock(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "start = time.perf_counter()",
        "from time import monotonic\nend = monotonic() + 3",
        "import time\nassert time.time() < 5",
    ],
)
def test_the_guard_bites_on_a_clock(source: str) -> None:
    assert list(looks_at_a_clock(source))


def test_hypothesis_has_no_deadline() -> None:
    assert settings().deadline is None
    timed = [str(path) for path in FILES if re.search(r"deadline=(?!None)", path.read_text())]
    assert timed == []


def test_the_profile_of_hypothesis_reaches_every_test() -> None:
    """A number of examples in a test would keep the long profile from it."""
    stated = [path.name for path in FILES if re.search(r"max_examples=\d", path.read_text())]
    assert stated == []
    assert share_of_examples(0.5).max_examples == max(10, settings().max_examples // 2)
    assert share_of_examples(2).max_examples == 2 * settings().max_examples


def waits_of_its_own(source: str) -> Iterator[int]:
    """The lines on which something is waited for with a number that was written there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            is_wait = isinstance(node.func, ast.Attribute) and node.func.attr in ("wait", "join", "communicate")
            limits = [one.value for one in node.keywords if one.arg == "timeout"] + (node.args if is_wait else [])
            if any(isinstance(one, ast.Constant) and isinstance(one.value, int | float) for one in limits):
                yield node.lineno


def test_what_is_waited_for_has_the_patience_of_a_loaded_machine() -> None:
    assert [f"{path}:{line}" for path in FILES for line in waits_of_its_own(path.read_text())] == []


@pytest.mark.parametrize("source", ["process.wait(60)", "subprocess.run(['x'], timeout=5.0)", "it.join(timeout=1)"])
def test_the_guard_bites_on_a_short_wait(source: str) -> None:
    assert list(waits_of_its_own(source))


def test_examples_are_the_same_in_every_run_unless_a_seed_is_given(request: pytest.FixtureRequest) -> None:
    assert settings().derandomize == (request.config.getoption("--hypothesis-seed") is None)


DRAWN: list[tuple[float, ...]] = []


@pytest.mark.parametrize("run", [0, 1])
def test_every_test_starts_from_the_same_random_state(run: int) -> None:
    DRAWN.append((random.random(), np.random.random(), float(torch.rand(()))))  # noqa: NPY002
    assert len(set(DRAWN)) == 1


OF_EXAMPLES: list[tuple[float, ...]] = []


@settings(max_examples=5)
@given(st.integers())
def test_every_example_of_hypothesis_starts_from_the_same_random_state(number: int) -> None:
    OF_EXAMPLES.append((random.random(), np.random.random(), float(torch.rand(()))))  # noqa: NPY002
    assert len(set(OF_EXAMPLES)) == 1


def test_every_tree_of_tests_is_read() -> None:
    assert len(FILES) > 300
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == {"tests", "explorer", "research"}
    assert all(path in FILES for path in WAITS)


sys.path.insert(0, str(ROOT / ".ci"))
import matrix  # noqa: E402
import portability_record as record  # noqa: E402


def test_every_test_file_belongs_to_one_part() -> None:
    paths = [ROOT / path for part in record.all_parts() for path in record.paths_of(part)]
    assert [path for path in paths if not path.exists()] == []
    for file in (path for path in FILES if path.name.startswith("test_") and "models" not in path.parts):
        assert len([path for path in paths if file.is_relative_to(path)]) == 1, file


def test_parts_that_compute_little_are_parts() -> None:
    assert set(record.NOT_NUMERIC) <= set(record.all_parts())


def test_the_oldest_versions_are_those_of_all_three_packages() -> None:
    pins = matrix.oldest()
    assert {"torch==2.6", "typer==0.26.1", "fastapi==0.115", "distributed==2024.1"} <= set(pins)
    assert not [pin for pin in pins if "[" in pin or ">" in pin or pin.startswith("hessmap")]


def test_the_tables_of_the_page_are_those_of_the_record() -> None:
    page = record.PAGE.read_text()
    assert page == record.page_with_tables(page), "run python .ci/portability_record.py"


REPORT = """<testsuites><testsuite name="pytest">
<testcase classname="tests.layers.test_a" name="test_one" time="1.5"/>
<testcase classname="tests.layers.test_a" name="test_two" time="0.5"><failure message="no"/></testcase>
<testcase classname="tests.layers.test_a" name="test_three" time="0"><skipped/></testcase>
<testcase classname="" name="tests.layers.test_broken" time="0"><error message="no"/></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted_and_a_part_that_is_run_again_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    found = record.counts(tmp_path / "report.xml")
    red = ["tests.layers.test_a.test_two", "tests.layers.test_broken"]
    assert found == {"passed": 1, "failed": 2, "skipped": 1, "seconds": 2.0, "red": red}
    monkeypatch.setattr(record, "FILE", tmp_path / "record.json")
    monkeypatch.setattr(record, "PAGE", tmp_path / "page.md")
    record.PAGE.write_text("Before.\n<!-- table: processors -->\n<!-- end -->\nAfter.\n")
    row = {"processor": "one", "what": "portable", "row": "native-1", "commit": "abc"}
    record.keep([{**row, "part": part, **found} for part in ("layers", "theory")])
    record.keep([{**row, "part": "layers", **found, "passed": 5, "failed": 0}])
    assert [(one["part"], one["passed"]) for one in record.entries()] == [("layers", 5), ("theory", 1)]
    assert record.green_parts("one", "native-1") == {"layers"}
    assert record.green_parts("other", "native-1") == set()
    before, *table, after = record.PAGE.read_text().splitlines()
    assert (before, table[0], table[-1], after) == ("Before.", "<!-- table: processors -->", "<!-- end -->", "After.")
    *_, result, missing, _commits, _end = table[-2].split("|")
    assert result == " 6 passed, 2 failed, 2 skipped; of each: `layers` 5, `theory` 1 "
    assert "`measurement`" in missing
    assert "`layers`" not in missing
