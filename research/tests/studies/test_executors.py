"""A study on executors of ``concurrent.futures``: pools of processes and threads, broken ones, and jobs of submitit."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from hessmap.errors import InvalidInput
from hessmap_research.runner.engines.executors import ExecutorError, SubmititExecutor
from hessmap_research.runner.run import run
from hessmap_research.runner.store import StudyStore


class Job:
    """As submitit has them: done at the second question."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.call, self.num_asked, self.is_cancelled = call, 0, False

    def done(self) -> bool:
        self.num_asked += 1
        return self.num_asked > 1

    def result(self) -> Any:
        return self.call()

    def cancel(self) -> None:
        self.is_cancelled = True


class Jobs:
    def __init__(self) -> None:
        self.made: list[Job] = []

    def submit(self, function: Callable[..., Any], *args: Any) -> Job:
        self.made.append(Job(lambda: function(*args)))
        return self.made[-1]


def squares(store_path: Path) -> list[int]:
    with StudyStore(store_path) as store:
        return sorted(row["square"] for row in store.rows("toy/square", 1))


def executors() -> dict[str, Callable[[], Executor]]:
    context = multiprocessing.get_context("spawn")
    return {
        "processes": lambda: ProcessPoolExecutor(2, mp_context=context),
        "threads": lambda: ThreadPoolExecutor(2),
        "jobs": lambda: SubmititExecutor(Jobs(), seconds=0.01),
    }


@pytest.mark.parametrize("name", executors())
def test_a_study_runs_on_an_executor(name: str, store_path: Path, tmp_path: Path, scratch: Path) -> None:
    expected = run("toy_studies:SQUARE", tmp_path / "here.sqlite", engine="inline")
    with executors()[name]() as executor:
        summary = run("toy_studies:SQUARE", store_path, engine=executor, workers=2)
        failing = run("toy_studies:FAILING", store_path, engine=executor, workers=2)
    assert (summary.num_done, summary.num_failed, summary.num_left) == (expected.num_done, 0, 0)
    assert squares(store_path) == squares(tmp_path / "here.sqlite")
    assert (failing.num_done, failing.num_failed) == (6, 2)
    assert failing.failures[0].error.startswith("ArithmeticError")


def test_a_worker_that_dies_is_a_failed_case(store_path: Path, scratch: Path) -> None:
    class Broken(Executor):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(OSError("the node is gone"))
            return future

    summary = run("toy_studies:SQUARE", store_path, engine=Broken())
    assert summary.num_done == 0
    assert summary.failures[0].error.startswith("OSError: the node is gone")


def test_an_executor_that_was_shut_down_is_one_sentence(store_path: Path, scratch: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        pass
    with pytest.raises(ExecutorError, match="an executor must take cases; it says: cannot schedule new futures"):
        run("toy_studies:SQUARE", store_path, engine=executor)
    with pytest.raises(InvalidInput, match="a scheduler belongs to engine dask; the engine is an executor"):
        run("toy_studies:SQUARE", store_path, engine=executor, scheduler="tcp://127.0.0.1:9")


def test_a_cancelled_future_cancels_its_job() -> None:
    class Endless(Job):
        def done(self) -> bool:
            return False

    class EndlessJobs(Jobs):
        def submit(self, function: Callable[..., Any], *args: Any) -> Job:
            self.made.append(Endless(lambda: None))
            return self.made[-1]

    jobs = EndlessJobs()
    executor = SubmititExecutor(jobs, seconds=0.01)
    future = executor.submit(print)
    assert future.cancel()
    while not jobs.made[0].is_cancelled:  # by its thread, soon
        pass
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(print)


def test_jobs_of_submitit_itself(
    store_path: Path, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitit = pytest.importorskip("submitit")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    jobs = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="local")
    jobs.update_parameters(timeout_min=5)
    summary = run("toy_studies:SQUARE", store_path, engine=SubmititExecutor(jobs, seconds=0.2), workers=2)
    assert (summary.num_failed, summary.num_left) == (0, 0)
