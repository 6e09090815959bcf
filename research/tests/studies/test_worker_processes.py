"""Local processes: workers, the parent, Ctrl-C and the disk, each failing in turn."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import sys
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
from toy_processes import is_running, said, study_program, until, waiting

from hessmap_research.runner.encoding import case_of_key
from hessmap_research.runner.engines import processes
from hessmap_research.runner.engines.processes import WorkerError
from hessmap_research.runner.run import run
from hessmap_research.runner.store import StudyStore
from patience import PATIENCE

NEEDS_PRCTL = pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a worker that is stuck in C code")


def test_processes_give_the_records_that_this_process_gives(store_path: Path, tmp_path: Path) -> None:
    summary = run("toy_studies:MANY", store_path, workers=2)
    assert (summary.num_done, summary.num_failed, summary.num_left) == (2000, 0, 0)
    run("toy_studies:MANY", tmp_path / "here.sqlite", engine="inline")
    with StudyStore(store_path) as there, StudyStore(tmp_path / "here.sqlite") as here:
        both = [{row["width"]: row["square"] for row in store.rows("toy/many", 1)} for store in (there, here)]
    assert both[0] == both[1] == {width: width**2 for width in range(2000)}


def test_a_killed_worker_costs_its_case_which_is_tried_again_and_then_failed(store_path: Path, scratch: Path) -> None:
    summary = run("toy_studies:DEADLY", store_path, workers=2)
    assert (summary.num_done, summary.num_failed, summary.num_left) == (7, 1, 0)
    (failure,) = summary.failures
    assert failure.case == {"width": 5}
    assert failure.error.startswith("WorkerDied: the worker process ended with signal 9, 2 times out of 2")
    with StudyStore(store_path) as store:
        assert {row["width"] for row in store.rows("toy/deadly", 1)} == {0, 1, 2, 3, 4, 6, 7}
        (stored,) = store.failures("toy/deadly", 1)
        assert stored.attempts == 2
    attempts = dict(sqlite3.connect(store_path).execute("SELECT case_key, attempts FROM result").fetchall())
    assert {case_of_key(key)["width"] for key, number in attempts.items() if number == 2} == {2, 5}
    tries = (scratch / "said").read_text().split()
    assert {width: tries.count(width) for width in set(tries)} == {**dict.fromkeys("013467", 1), "2": 2, "5": 2}


def test_workers_that_cannot_start_are_an_error_with_their_last_words(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no luck >&2\nexit 7\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    with pytest.raises(WorkerError, match=r"worker processes must start; one ended with exit code 7\. no luck"):
        run("toy_studies:SQUARE", store_path)


def python_that_dies(path: Path, num_deaths: int, scratch: Path) -> Path:
    """A program in the place of Python that kills itself the first times that it is started."""
    count = scratch / "starts"
    count.touch()
    path.write_text(
        f"#!/bin/sh\necho start >> {count}\n"
        f'[ "$(wc -l < {count})" -le {num_deaths} ] && kill -9 $$\n'
        f'exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("num_deaths", [1, 2])
def test_a_worker_killed_while_starting_is_replaced(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch: Path, num_deaths: int
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_that_dies(tmp_path / "python", num_deaths, scratch)))
    summary = run("toy_studies:SQUARE", store_path, workers=1)
    assert (summary.num_done, summary.num_failed, summary.num_left) == (8, 0, 0)
    assert len((scratch / "starts").read_text().split()) == num_deaths + 1
    with StudyStore(store_path) as store:
        assert sorted(row["width"] for row in store.rows("toy/square", 1)) == list(range(8))
    attempts = sqlite3.connect(store_path).execute("SELECT DISTINCT attempts FROM result").fetchall()
    assert attempts == [(1,)]  # no case was at fault


def test_workers_that_are_killed_again_and_again_end_the_run_in_one_sentence(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scratch: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(python_that_dies(tmp_path / "python", 99, scratch)))
    with pytest.raises(WorkerError, match=r"worker processes must start; one ended with signal 9\.$"):
        run("toy_studies:SQUARE", store_path, workers=2)
    assert 3 <= len((scratch / "starts").read_text().split()) <= 5


def test_a_system_that_refuses_processes_is_one_sentence(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(WorkerError, match="worker processes must start; the system refused one .*No such file"):
        run("toy_studies:SQUARE", store_path)


def test_a_killed_parent_leaves_no_process_and_the_next_run_continues(store_path: Path, scratch: Path) -> None:
    program = study_program("run", "toy_studies:GATED", "--store", str(store_path), "--workers", "2")
    until(lambda: len(waiting(scratch)) == 2)
    program.kill()
    program.communicate()
    until(lambda: not any(map(is_running, waiting(scratch))))
    (scratch / "gate").touch()
    summary = run("toy_studies:GATED", store_path, engine="inline")
    assert (summary.num_skipped, summary.num_done) == (1, 7)
    with StudyStore(store_path) as store:
        store.require_sound()
        assert sorted(row["width"] for row in store.rows("toy/gated", 1)) == list(range(8))


@NEEDS_PRCTL
def test_a_killed_parent_leaves_no_process_that_is_stuck_in_c(store_path: Path, scratch: Path) -> None:
    program = study_program("run", "toy_studies:STUCK", "--store", str(store_path), "--workers", "2")
    until(lambda: len(said(scratch, "start")) == 2)
    program.kill()
    program.communicate()
    assert len({pid for _, pid in said(scratch, "start")}) == 2
    until(lambda: not any(is_running(pid) for _, pid in said(scratch, "start")))


def test_ctrl_c_finishes_the_cases_under_way_and_leaves(store_path: Path, scratch: Path) -> None:
    words = ("run", "toy_studies:GATED", "--store", str(store_path), "--workers", "2")
    program = study_program(*words, process_group=0)
    until(lambda: len(waiting(scratch)) == 2)
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does it: to the whole group
    assert program.stderr is not None
    assert "Finishing the cases under way" in program.stderr.readline()
    (scratch / "gate").touch()
    out, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 130, err
    assert "cases are left; the same command continues" in out
    finished = {width for width, _ in said(scratch, "end")}
    assert finished == {width for width, _ in said(scratch, "start")} == {0, 1, 2}
    with StudyStore(store_path) as store:
        assert {row["width"] for row in store.rows("toy/gated", 1)} == finished


def test_a_second_ctrl_c_leaves_at_once(store_path: Path, scratch: Path) -> None:
    """The cases under way would wait for ever."""
    program = study_program("run", "toy_studies:GATED", "--store", str(store_path), "--workers", "2")
    until(lambda: len(waiting(scratch)) == 2)
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    assert "Finishing" in program.stderr.readline()
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=PATIENCE)
    assert program.returncode == 130
    until(lambda: not any(map(is_running, waiting(scratch))))
    with StudyStore(store_path) as store:
        store.require_sound()


def test_ctrl_c_lets_the_case_of_this_process_finish(store_path: Path, scratch: Path) -> None:
    program = study_program("run", "toy_studies:GATED", "--store", str(store_path), "--engine", "inline")
    until(lambda: waiting(scratch))
    program.send_signal(signal.SIGINT)
    assert program.stderr is not None
    assert "Finishing" in program.stderr.readline()
    (scratch / "gate").touch()
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 130, err
    assert [width for width, _ in said(scratch, "start")] == [width for width, _ in said(scratch, "end")] == [0, 1]


def _only_small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_full_disk_ends_the_run_with_a_clear_error_and_the_store_intact(store_path: Path, engine: str) -> None:
    words = ("run", "toy_studies:LARGE", "--store", str(store_path), "--engine", engine)
    out, err = study_program(*words, preexec_fn=_only_small_files).communicate(timeout=PATIENCE)
    assert "hessmap: the disk must have room for the store" in err, (out, err)
    assert "Traceback" not in err
    with StudyStore(store_path) as store:
        store.require_sound()
        num_stored = len(store.rows("toy/large", 1))
    assert 0 < num_stored < 200
    summary = run("toy_studies:LARGE", store_path, engine="inline")
    assert (summary.num_skipped, summary.num_done) == (num_stored, 200 - num_stored)


def test_workers_hold_blas_to_the_threads_of_the_study(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    run("toy_studies:THREADS", store_path, workers=1)
    with StudyStore(store_path) as store:
        (row,) = store.rows("toy/threads", 1)
    assert (row["environment"], row["torch"]) == ("2", 2)
    assert os.environ["OMP_NUM_THREADS"] == "7"


@pytest.mark.parametrize("chosen", [None, 1000])
def test_workers_keep_freed_memory_unless_the_user_says_how_much(
    store_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: int | None
) -> None:
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    if chosen is not None:
        monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(chosen))
    run("toy_studies:THREADS", store_path, workers=1)
    with StudyStore(store_path) as store:
        (row,) = store.rows("toy/threads", 1)
    assert row["kept_memory"] == (chosen or 2**29)


class Listed:
    """A worker as the loop sees it: a connection, and whether its process has ended."""

    def __init__(self, is_over: bool) -> None:
        self.connection, self.theirs = Pipe()
        self.is_over = is_over

    def has_ended(self) -> bool:
        return self.is_over


def test_news_are_of_those_that_sent_something_else_of_those_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_POLL_SECONDS", 0.0)
    silent, ended, talking = Listed(False), Listed(True), Listed(False)
    workers: Any = [silent, ended, talking]
    assert processes._workers_with_news(workers) == [ended]
    assert processes._workers_with_news(workers[:1]) == []
    talking.theirs.send("an outcome")
    assert processes._workers_with_news(workers) == [talking]  # who ended without a word is asked when all are silent
