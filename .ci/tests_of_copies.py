"""Tests of a copy of the project, each run in a forked process that has what is slow to import already."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PRELOADED = ("torch", "numpy", "scipy.linalg", "scipy.optimize", "scipy.stats", "flint")
SOURCES = ("src", "explorer/src", "research/src")
WAIT = 20.0  # on a busy machine: seconds for one of the processor
Measured = dict[str, Any]  # "lines": file -> line -> tests; "seconds": test -> seconds of the processor


class Watcher:
    """A plugin of pytest: the processor seconds of each test. Examples that fail are not made smaller."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()

    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile("mutations", deadline=None, database=None, phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutations")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = sum(os.times()[:4])
        result = yield
        self.seconds[item.nodeid] += sum(os.times()[:4]) - start
        return result


def run_in_copy(copy: Path, tests: Sequence[str], seconds: float, log: Path) -> int | None:
    """pytest's exit code for these tests; None where they took more than so many seconds of the processor."""
    for name in PRELOADED:
        importlib.import_module(name)
    sys.dont_write_bytecode = True  # that of a fault would outlive it
    return _in_a_child(lambda: _run_tests(copy, tests, Watcher()), seconds, log)


def measured_lines(copy: Path, sources: Sequence[str], tests: Sequence[str], log: Path) -> Measured:
    """Which tests run which line of the sources, and their seconds. A red test ends it: nothing is learnt then."""
    found, data_file, config = copy / "lines.json", copy / "lines.sqlite", copy / "lines.rc"
    places = "\n ".join(str(copy / one) + ("" if one.endswith(".py") else "/*") for one in sources)
    config.write_text(f"[run]\nbranch = false\ndata_file = {data_file}\ninclude =\n {places}\n")

    def work() -> int:
        watcher = Watcher()
        options = ["--cov", f"--cov-config={config}", "--cov-context=test", "--cov-report="]
        code = _run_tests(copy, [*tests, *sources, *options], watcher)
        found.write_text(json.dumps({"lines": _lines(data_file, copy), "seconds": dict(watcher.seconds)}))
        return code

    code = _in_a_child(work, 3600, log)
    if code != 0:
        raise SystemExit(f"{' '.join(tests)}: not green without any fault (exit code {code}, see {log})")
    measured: Measured = json.loads(found.read_text())
    return measured


def _lines(data_file: Path, copy: Path) -> dict[str, dict[str, list[str]]]:
    import coverage

    data = coverage.CoverageData(str(data_file))
    data.read()
    lines = {}
    for name in data.measured_files():
        by_line = data.contexts_by_lineno(name).items()
        tests = {str(line): sorted({one.split("|")[0] for one in contexts if one}) for line, contexts in by_line}
        lines[str(Path(name).relative_to(copy))] = tests
    return lines


def _run_tests(copy: Path, arguments: Sequence[str], watcher: Watcher) -> int:
    """pytest in the copy, in this process: all three packages are imported from there."""
    os.chdir(copy)
    sources = [str(copy / folder) for folder in SOURCES]
    sys.path[:0] = [*sources, str(copy)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sources)
    options = ["-q", "-x", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--no-header"]
    code = int(pytest.main([*options, *arguments], plugins=[watcher]))
    importlib.import_module("hessmap")
    for name in ("hessmap", "hessmap_explorer", "hessmap_research"):
        if name in sys.modules:
            assert str(copy) in str(sys.modules[name].__file__), sys.modules[name].__file__
    return code


def _in_a_child(work: Callable[[], int], seconds: float, log: Path) -> int | None:
    """The exit code of work in a forked process; None where it took too long."""
    child = os.fork()
    if child == 0:
        _work_and_leave(work, seconds, log)
    end = time.monotonic() + WAIT * seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return None if code == -signal.SIGXCPU else code
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _work_and_leave(work: Callable[[], int], seconds: float, log: Path) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    code = 70
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
        try:
            code = work()
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
