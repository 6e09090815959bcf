"""The engine of an existing Dask cluster: workers measure, this process alone writes.

A worker that dies is survived by Dask: its scheduler gives the case to another one, and reports it as failed after
``distributed.scheduler.allowed-failures`` deaths.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hessmap.errors import HessmapError, sentence
from hessmap_research.runner.engines.case import provenance_text
from hessmap_research.runner.engines.executors import FutureEngine, remote_outcome
from hessmap_research.runner.store import Outcome
from hessmap_research.runner.study import Study

_CONNECT_SECONDS = 15
_COUNT_SECONDS = 2.0  # how often the workers are counted


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
