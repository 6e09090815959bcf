"""A study on an existing Dask scheduler with two workers on loopback, one of them killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_processes import SEARCH_PATH, said, until, waiting

pytest.importorskip("distributed", reason="the package distributed is not installed")

from hessmap_research.runner.engines.executors import ClusterError
from hessmap_research.runner.run import run
from hessmap_research.runner.store import StudyStore


@pytest.fixture
def scheduler(tmp_path: Path, scratch: Path) -> Iterator[str]:
    """The address of a scheduler with two workers of one thread each, in processes of their own."""
    address_file = tmp_path / "scheduler.json"
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH}
    common = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    both = ["--scheduler-file", str(address_file), "--no-dashboard"]
    worker = ["worker", *both, "--nthreads", "1", "--no-nanny"]
    programs: list[subprocess.Popen[bytes]] = []

    def start(words: list[str]) -> None:
        programs.append(subprocess.Popen([sys.executable, "-m", "dask", *words], **common))  # type: ignore[call-overload]

    try:
        start(["scheduler", *both, "--host", "127.0.0.1", "--port", "0"])
        until(lambda: address(address_file))
        start(worker)
        start(worker)
        until(lambda: num_workers(address(address_file)) == 2)
        yield address(address_file)
    finally:
        for program in programs:
            program.kill()
            program.wait()


def address(path: Path) -> str:
    """What the scheduler wrote, or nothing: the file is there before all of it is written."""
    try:
        return str(json.loads(path.read_text())["address"])
    except (FileNotFoundError, json.JSONDecodeError):
        return ""


def num_workers(scheduler: str) -> int:
    from distributed import Client

    with Client(scheduler, set_as_default=False) as client:
        return len(client.nthreads())


def test_a_study_runs_on_a_cluster_and_survives_a_worker(scheduler: str, store_path: Path, scratch: Path) -> None:
    def kill_one() -> None:
        until(lambda: len(waiting(scratch)) == 2)
        os.kill(said(scratch, "start")[-1][1], signal.SIGKILL)
        (scratch / "gate").touch()

    killer = threading.Thread(target=kill_one)
    killer.start()
    summary = run("toy_studies:GATED", store_path, engine="dask", scheduler=scheduler)
    killer.join()
    assert (summary.num_done, summary.num_failed, summary.num_left) == (8, 0, 0)
    started, ended = said(scratch, "start"), said(scratch, "end")
    assert len({pid for _, pid in started}) == 2
    assert len(started) > len(ended)
    with StudyStore(store_path) as store:
        assert sorted(row["square"] for row in store.rows("toy/gated", 1)) == [width**2 for width in range(8)]
    failing = run("toy_studies:FAILING", store_path, engine="dask", scheduler=scheduler)
    assert (failing.num_done, failing.num_failed) == (6, 2)
    assert failing.failures[0].error.startswith("ArithmeticError")


def test_a_scheduler_that_does_not_answer_is_one_sentence(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap_research.runner.engines.executors._CONNECT_SECONDS", 0.5)
    with pytest.raises(ClusterError, match=r"a Dask scheduler must answer; tcp://127\.0\.0\.1:9 does not"):
        run("toy_studies:SQUARE", store_path, engine="dask", scheduler="tcp://127.0.0.1:9")


def test_without_the_package_the_error_says_what_to_install(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ClusterError, match=r"needs the package distributed; .* pip install distributed"):
        run("toy_studies:SQUARE", store_path, engine="dask", scheduler="tcp://127.0.0.1:9")
