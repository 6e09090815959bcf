"""The engine of an existing Dask cluster: workers measure, this process alone writes.

A worker that dies is survived by Dask: its scheduler gives the case to another one, and reports it as failed after
``distributed.scheduler.allowed-failures`` deaths.
"""

from __future__ import annotations

import functools
import queue
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from threading import Event
from typing import Any

from hessmap.errors import HessmapError, sentence
from hessmap_research.runner.engines.case import case_outcome, limit_threads, provenance_text
from hessmap_research.runner.registry import find
from hessmap_research.runner.store import Outcome
from hessmap_research.runner.study import Study

_CONNECT_SECONDS = 15
_POLL_SECONDS = 0.2
_COUNT_SECONDS = 2.0  # how often the workers are counted
_SHORT_SECONDS = 1.0  # shorter cases are queued ahead, longer ones are not, so that Ctrl-C waits for none unstarted
_SHORT_CASES_AHEAD = 8


class ClusterError(HessmapError, ConnectionError):
    """The cluster cannot be reached or used."""


class Cluster:
    """Cases on the workers of the scheduler at an address."""

    def __init__(self, study: Study, address: str, scheduler: str, seconds_of: Callable[[str], float | None]) -> None:
        self._study = study
        self._address = address
        self._scheduler = scheduler
        self._seconds_of = seconds_of
        self._client = _new_client(scheduler)
        self._counted = -_COUNT_SECONDS
        self.num_workers = 1
        self._count_workers()

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]:
        todo, finished = deque(keys), queue.SimpleQueue[Any]()
        futures: dict[Any, str] = {}
        try:
            while (todo and not stop.is_set()) or futures:
                self._count_workers()
                while todo and not stop.is_set() and len(futures) < self._num_ahead(todo[0]):
                    key = todo.popleft()
                    future = self._client.submit(_remote_outcome, self._address, key, pure=False)
                    futures[future] = key
                    future.add_done_callback(finished.put)
                try:
                    future = finished.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    continue
                yield self._outcome(future, futures.pop(future))
        finally:
            self._client.cancel(list(futures))
            self._client.close()

    def _num_ahead(self, key: str) -> int:
        seconds = self._seconds_of(key)
        return self.num_workers * (_SHORT_CASES_AHEAD if seconds is not None and seconds < _SHORT_SECONDS else 1)

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


def _remote_outcome(address: str, key: str) -> Outcome:
    study = _study_at(address)
    limit_threads(study.threads)
    return case_outcome(study, key)


@functools.lru_cache(maxsize=64)
def _study_at(address: str) -> Study:
    return find(address)
