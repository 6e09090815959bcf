"""Programs and processes under test: started, watched, and waited for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from patience import PATIENCE

HERE = Path(__file__).parent
_SHARED = HERE.parents[2] / "tests"
# Where programs of their own find the toy studies, and hessmap where these tests found it.
SEARCH_PATH = os.pathsep.join(map(str, filter(None, (HERE, HERE.parent, _SHARED, os.environ.get("PYTHONPATH")))))


def study_program(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Start ``hessmap study WORDS`` as a program of its own, with the toy studies within reach."""
    return subprocess.Popen(
        [sys.executable, "-c", "from hessmap.cli import main; main()", "study", *words],
        env={**os.environ, "PYTHONPATH": SEARCH_PATH, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def said(scratch: Path, what: str) -> list[tuple[int, int]]:
    """Width and process of every "start" or "end" that the toy cases have told."""
    lines = [line.split() for line in (scratch / "said").read_text().splitlines()]
    return [(int(line[1]), int(line[2])) for line in lines if line[0] == what]


def waiting(scratch: Path) -> set[int]:
    """The processes that are at a case which waits for its gate."""
    return {pid for width, pid in said(scratch, "start") if width > 0}


def is_running(pid: int) -> bool:
    """A process that exists and is not a zombie waiting for its parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for a condition; the limit only ends a test that would hang, however busy the machine is."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)
