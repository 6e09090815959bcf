"""Cases as futures: on any ``concurrent.futures.Executor``, and by an adapter on what resembles one.

An engine submits a few cases ahead, yields outcomes as futures finish, and cancels the rest at the end. What differs
between executors is how a case is submitted, how many run at a time, and what an error means: three methods.

The engine of an existing Dask cluster: workers measure, this process alone writes.

A worker that dies is survived by Dask: its scheduler gives the case to another one, and reports it as failed after
``distributed.scheduler.allowed-failures`` deaths.
"""

from __future__ import annotations

import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from threading import Event
from typing import Any

from hessmap.errors import HessmapError, sentence
from hessmap_research.runner.engines.case import case_outcome, limit_threads, provenance_text
from hessmap_research.runner.registry import find
from hessmap_research.runner.store import Outcome
from hessmap_research.runner.study import Study

_POLL_SECONDS = 0.2
_SHORT_SECONDS = 1.0  # shorter cases are queued ahead, longer ones are not, so that Ctrl-C waits for none unstarted
_SHORT_CASES_AHEAD = 8
_CONNECT_SECONDS = 15
_COUNT_SECONDS = 2.0  # how often the workers are counted


class ExecutorError(HessmapError, RuntimeError):
    """An executor cannot be used, or lost its workers."""


class FutureEngine:
    """Cases that are submitted one by one and finish as futures, in any order."""

    num_workers: int = 1

    def __init__(self, address: str, seconds_of: Callable[[str], float | None]) -> None:
        self._address = address
        self._seconds_of = seconds_of

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]:
        todo, finished = deque(keys), queue.SimpleQueue[Any]()
        futures: dict[Any, str] = {}
        try:
            while (todo and not stop.is_set()) or futures:
                self._count_workers()
                while todo and not stop.is_set() and len(futures) < self._num_ahead(todo[0]):
                    key = todo.popleft()
                    future = self._submit(key)
                    futures[future] = key
                    future.add_done_callback(finished.put)
                try:
                    future = finished.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                yield self._outcome(future, futures.pop(future))
        finally:
            self._end(list(futures))

    def _num_ahead(self, key: str) -> int:
        seconds = self._seconds_of(key)
        return self.num_workers * (_SHORT_CASES_AHEAD if seconds is not None and seconds < _SHORT_SECONDS else 1)

    def _count_workers(self) -> None:
        """Set ``num_workers`` where it changes while a study runs."""

    def _submit(self, key: str) -> Any:
        raise NotImplementedError

    def _outcome(self, future: Any, key: str) -> Outcome:
        raise NotImplementedError

    def _end(self, futures: list[Any]) -> None:
        raise NotImplementedError


class OnExecutor(FutureEngine):
    """Cases on an executor of the caller, which is not shut down.

    Its workers must be able to import hessmap and the study: processes, other machines, or threads of this process.
    """

    def __init__(
        self,
        study: Study,
        address: str,
        executor: Executor,
        workers: int | None,
        seconds_of: Callable[[str], float | None],
    ) -> None:
        super().__init__(address, seconds_of)
        self._executor = executor
        self.num_workers = workers or int(getattr(executor, "_max_workers", 1) or 1)

    def _submit(self, key: str) -> Any:
        try:
            return self._executor.submit(remote_outcome, self._address, key)
        except RuntimeError as error:
            raise ExecutorError(sentence("an executor must take cases", f"it says: {error}")) from error

    def _outcome(self, future: Any, key: str) -> Outcome:
        try:
            outcome = future.result()
        except CancelledError as error:
            raise ExecutorError(sentence("an executor must run its cases", "one was cancelled")) from error
        except Exception as error:  # of the executor: what a case raises is in its outcome
            return Outcome(key, None, f"{type(error).__name__}: {error}", 0.0, provenance_text())
        assert isinstance(outcome, Outcome)
        return outcome

    def _end(self, futures: list[Any]) -> None:
        for future in futures:
            future.cancel()


class SubmititExecutor(Executor):
    """An executor of submitit (SLURM jobs) with the interface of ``concurrent.futures``.

    Args:
        executor: A ``submitit.AutoExecutor``, whose ``submit`` returns jobs with ``done``, ``result`` and ``cancel``.
        seconds: How often jobs are asked whether they are done. Defaults to 5.
    """

    def __init__(self, executor: Any, seconds: float = 5.0) -> None:
        self._jobs = executor
        self._seconds = seconds
        self._is_shut = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a job; a thread waits for its end."""
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job, future = self._jobs.submit(fn, *args, **kwargs), Future[Any]()
        threading.Thread(target=self._wait_for, args=(job, future), daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no further jobs; those under way go on."""
        self._is_shut = True

    def _wait_for(self, job: Any, future: Future[Any]) -> None:
        while not job.done():
            if future.cancelled():
                job.cancel()
                return
            time.sleep(self._seconds)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(job.result())
        except BaseException as error:
            future.set_exception(error)


def remote_outcome(address: str, key: str) -> Outcome:
    """Measure one case in a worker, which finds the study by its address."""
    study = _study_at(address)
    limit_threads(study.threads)
    return case_outcome(study, key)


@functools.lru_cache(maxsize=64)
def _study_at(address: str) -> Study:
    return find(address)


class ClusterError(HessmapError, ConnectionError):
    """The cluster cannot be reached or used."""


class Cluster(FutureEngine):
    """Cases on the workers of the scheduler at an address."""

    def __init__(self, study: Study, address: str, scheduler: str, seconds_of: Callable[[str], float | None]) -> None:
        super().__init__(address, seconds_of)
        self._scheduler = scheduler
        self._client = _new_client(scheduler)
        self._counted = -_COUNT_SECONDS
        self.num_workers = 1
        self._count_workers()

    def _submit(self, key: str) -> Any:
        return self._client.submit(remote_outcome, self._address, key, pure=False)

    def _end(self, futures: list[Any]) -> None:
        self._client.cancel(futures)
        self._client.close()

    def _count_workers(self) -> None:
        if time.monotonic() - self._counted < _COUNT_SECONDS:
            return
        try:
            self.num_workers = max(1, sum(self._client.nthreads().values()))
        except OSError as error:
            raise self._lost_worker_error("it is gone") from error
        self._counted = time.monotonic()

    def _outcome(self, future: Any, key: str) -> Outcome:
        from distributed.scheduler import KilledWorker

        if future.status == "finished":
            outcome = future.result()
            assert isinstance(outcome, Outcome)
            return outcome
        error = future.exception() if future.status == "error" else None
        if isinstance(error, KilledWorker):
            return Outcome(key, None, f"KilledWorker: {error}", 0.0, provenance_text())
        raise self._lost_worker_error(f"a case ended with {error!r}" if error else "it is gone")

    def _lost_worker_error(self, got: str) -> ClusterError:
        must = f"the scheduler at {self._scheduler} must be there and its workers must have hessmap and the study"
        return ClusterError(sentence(must, got))


def _new_client(scheduler: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        remedy = "Install it with: pip install distributed"
        raise ClusterError(sentence("engine dask needs the package distributed", "it is not here", remedy)) from error
    try:
        client: Any = Client  # the package is not typed
        return client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(sentence("a Dask scheduler must answer", f"{scheduler} does not ({error})")) from error
