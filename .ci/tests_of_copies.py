"""Tests of a copy of the project, run in a forked process that has what is slow to import already."""

from __future__ import annotations

import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

PRELOADED = ("torch", "numpy", "scipy.linalg", "scipy.optimize", "scipy.stats", "flint")
SLOW_TO_IMPORT = ("hessmap", "hessmap.maps", "hessmap.views.plots", "hessmap.cli.program")
SOURCES = ("src", "explorer/src", "research/src")
TIME_IS_UP = 75  # exit code
WAIT = 20.0  # on a busy machine: seconds for one of the processor
Measured = dict[str, Any]  # "blocks": test -> blocks; "seconds": test -> seconds of the processor; "red": tests


class Watcher:
    """A plugin of pytest: the processor seconds of each test. Examples that fail are not made smaller."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.red: list[str] = []

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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.red:
            self.red.append(report.nodeid)


class BlockWatcher(Watcher):
    """The blocks of each test as well: its own, and those of the fixtures that it shares."""

    def __init__(self, hits: set[int]) -> None:
        super().__init__()
        self.hits = hits
        self.blocks: dict[str, set[int]] = {}
        self._of_fixtures: dict[int, set[int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[Any]:
        before = set(self.hits)
        self.hits.clear()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._of_fixtures.setdefault(id(fixturedef), set()).update(self.hits)
            self.hits |= before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.hits.clear()
        result = yield from super().pytest_runtest_protocol(item)
        shared = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {}).values()
        own = [self._of_fixtures.get(id(one), set()) for definitions in shared for one in definitions]
        self.blocks[item.nodeid] = self.hits.union(*own)
        return result


def run_in_copy(copy: Path, tests: Sequence[str], seconds: float, log: Path) -> tuple[int | None, str | None]:
    """pytest's exit code for these tests up to the first that fails, and which that is; the code is None where they
    took more than ``seconds`` of the processor."""
    for name in PRELOADED:
        importlib.import_module(name)
    sys.dont_write_bytecode = True  # that of a fault would outlive it
    with tempfile.TemporaryDirectory() as folder:
        red = Path(folder) / "red"

        def work() -> int:
            watcher = Watcher()
            code = _run_tests(copy, ["-x", *tests], watcher)
            red.write_text("".join(watcher.red[:1]))
            return code

        code = _in_a_child(work, seconds, log)
        return code, (red.read_text() or None) if red.exists() else None


def measured_blocks(
    copy: Path, units: Sequence[Sequence[str]], keep: Callable[[int, Measured], None], seconds: float, log: Path
) -> bool:
    """For every unit, some files of tests: which of its tests run which blocks of the marked sources, their seconds,
    and those that are red. ``keep`` gets the place of a unit and what is found, in a process that has the sources.
    False where that process ended with ``TIME_IS_UP``."""

    def work() -> int:
        sys.path[:0] = [str(copy / folder) for folder in SOURCES]
        for name in (*PRELOADED, *SLOW_TO_IMPORT):
            importlib.import_module(name)
        for place, unit in enumerate(units):
            keep(place, _blocks_of_unit(copy, unit, seconds, log))
        return 0

    code = _in_a_child(work, float("inf"), log)
    if code not in (0, TIME_IS_UP):
        raise SystemExit(f"the tests could not be measured (exit code {code}, see {log})")
    return code == 0


def _blocks_of_unit(copy: Path, unit: Sequence[str], seconds: float, log: Path) -> Measured:
    found: Measured = {"blocks": {}, "seconds": {}, "red": []}
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "found"

        def work() -> int:
            os.environ |= {"HESSMAP_BLOCKS": folder, "HESSMAP_BLOCKS_OWNER": str(os.getpid())}
            watcher = BlockWatcher(importlib.import_module("hessmap_blocks").hits)
            code = _run_tests(copy, unit, watcher)
            tests = {test: sorted(blocks) for test, blocks in watcher.blocks.items()}
            stored.write_text(json.dumps({"blocks": tests, "seconds": dict(watcher.seconds), "red": watcher.red}))
            return code

        code = _in_a_child(work, seconds, log)
        if code not in (0, 1, 5):  # green, red, none selected
            print(f"{' '.join(unit)}: pytest ends with {code}: {log.read_text()[-300:]}", file=sys.__stderr__)
        if stored.exists():
            found = json.loads(stored.read_text())
        for path in Path(folder).glob("*.json"):  # of processes that tests started
            own = json.loads(path.read_text())
            if own["test"] in found["blocks"]:
                found["blocks"][own["test"]] = sorted({*found["blocks"][own["test"]], *own["blocks"]})
    return {**found, "code": code}


def _run_tests(copy: Path, arguments: Sequence[str], watcher: Watcher) -> int:
    """pytest in the copy, in this process: all three packages are imported from there."""
    os.chdir(copy)
    sources = [str(copy / folder) for folder in SOURCES]
    sys.path[:0] = [*sources, str(copy)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sources)
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--no-header"]
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
    if seconds != float("inf"):
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
