"""The tests themselves: none may look at a clock, and none may draw numbers that another run would not draw."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

HERE = Path(__file__).parent
FILES = sorted(path for path in HERE.rglob("*.py") if path != Path(__file__))
CLOCKS = {"perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "time_ns", "thread_time"}
WAITS = {HERE / "studies" / "toy_processes.py"}  # ends what would hang


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
