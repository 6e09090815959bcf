"""The engine of local worker processes: a worker that dies costs the case that it was at, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from threading import Event

from hessmap.errors import HessmapError, sentence
from hessmap_research.runner.engines.case import KEPT_MEMORY, provenance_text, thread_environment
from hessmap_research.runner.store import Outcome
from hessmap_research.runner.study import Study

_SECONDS_AHEAD = 0.1  # how much work a worker holds: enough to hide the pipe, little enough to share out at the end
_KEYS_AHEAD = 64
_BYTES_AHEAD = 32_000  # stays below the buffer of the pipe, so that sending never blocks
_ATTEMPTS = 2
_START_ATTEMPTS = 3  # workers in a row that die before they are ready; after that, none is replaced
_POLL_SECONDS = 0.2
_WORKERS = "HESSMAP_WORKERS"  # how many processes share the memory: problems take their part of it


class WorkerError(HessmapError, RuntimeError):
    """No worker process could be started."""


class Worker:
    """One worker process, the pipe to it, and the keys that it was given, in the order in which it takes them."""

    def __init__(self, address: str, threads: int, models: Path, num_workers: int) -> None:
        self.connection, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        fds = (theirs.fileno(), lifeline)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "hessmap_research.runner.engines.worker", *map(str, fds), str(os.getpid())],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={
                    **KEPT_MEMORY,
                    **os.environ,
                    **_python_path(),
                    **thread_environment(threads),
                    _WORKERS: str(num_workers),
                },
                process_group=0,  # Ctrl-C in the terminal reaches the parent alone, which lets cases finish
            )
        except OSError:
            self.connection.close()
            os.close(self._lifeline)
            self._log.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self.keys: deque[str] = deque()
        self.is_ready = False
        self.is_ending = False
        self._send((sys.path, address, str(models)))

    def _send(self, message: object) -> None:
        with suppress(OSError):  # it has died: reading from it says so, and what it was given goes to others
            self.connection.send(message)

    def give(self, keys: Sequence[str]) -> None:
        self.keys.extend(keys)
        self._send(list(keys))

    def end(self) -> None:
        """Finish the case under way and leave."""
        self.is_ending = True
        self._send(None)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self, patience: float = 0.0) -> tuple[int, str]:
        """Make sure that the process is gone: its exit code (minus the signal that killed it) and last words."""
        self.connection.close()
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        os.close(self._lifeline)
        with self._log as log:
            log.seek(0)
            return code, log.read()[-2000:].decode(errors="replace").strip()


class Processes:
    """Cases on several local processes. ``seconds_of`` predicts the time of a case, for sharing the work out."""

    def __init__(
        self, study: Study, address: str, models: Path, num_workers: int, seconds_of: Callable[[str], float | None]
    ) -> None:
        self.num_workers = num_workers
        self._study = study
        self._address = address
        self._models = models
        self._seconds_of = seconds_of
        self._deaths: dict[str, int] = {}
        self._num_failed_starts = 0
        self._last_words = ""

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]:
        todo = deque(keys)
        workers: list[Worker] = []
        try:
            for _ in range(min(self.num_workers, len(todo))):
                workers.append(self._new_worker())  # noqa: PERF401 - those that started are closed if the next is not
            while workers:
                self._share_out(todo, workers, stop.is_set())
                for worker in _workers_with_news(workers):
                    is_alive, received = self._news(worker)
                    yield from received
                    if not is_alive:
                        workers.remove(worker)
                        yield from self._take_back(worker, todo)
                        if todo and not stop.is_set() and self._num_failed_starts < _START_ATTEMPTS:
                            workers.append(self._new_worker())
            if todo and not stop.is_set():
                raise WorkerError(sentence("worker processes must start", self._last_words))
        finally:
            for worker in workers:
                worker.close()

    def _new_worker(self) -> Worker:
        try:
            return Worker(self._address, self._study.threads, self._models, self.num_workers)
        except OSError as error:
            raise WorkerError(sentence("worker processes must start", f"the system refused one ({error})")) from error

    def _share_out(self, todo: deque[str], workers: Sequence[Worker], is_stopping: bool) -> None:
        for worker in workers:
            if worker.is_ending:
                continue  # what comes back from a dead one is for others
            if is_stopping or not (todo or worker.keys):
                worker.end()
            elif worker.is_ready or not worker.keys:
                keys = self._next_keys(todo, worker)
                if keys:
                    worker.give(keys)

    def _next_keys(self, todo: deque[str], worker: Worker) -> list[str]:
        """What the worker gets on top: up to some time of work, one case where the time is unknown or long."""
        ahead = sum(self._seconds_of(key) or _SECONDS_AHEAD for key in worker.keys)
        if ahead > _SECONDS_AHEAD / 2 or len(worker.keys) > _KEYS_AHEAD / 2:
            return []
        keys: list[str] = []
        num_bytes = sum(map(len, worker.keys))
        num_free = _KEYS_AHEAD - len(worker.keys)
        while todo and ahead < _SECONDS_AHEAD and len(keys) < num_free and num_bytes < _BYTES_AHEAD:
            ahead += self._seconds_of(todo[0]) or _SECONDS_AHEAD
            num_bytes += len(todo[0])
            keys.append(todo.popleft())
        return keys

    def _news(self, worker: Worker) -> tuple[bool, list[Outcome]]:
        """Whether the worker lives, and all outcomes that it has sent by now."""
        outcomes: list[Outcome] = []
        try:
            while worker.connection.poll():
                message = worker.connection.recv()
                if isinstance(message, Outcome):
                    worker.keys.popleft()
                    outcomes.append(replace(message, attempts=1 + self._deaths.get(message.key, 0)))
                else:
                    worker.is_ready = True
                    self._num_failed_starts = 0
        except (EOFError, OSError):
            return False, outcomes
        return not worker.has_ended() or worker.connection.poll(), outcomes

    def _take_back(self, worker: Worker, todo: deque[str]) -> Iterator[Outcome]:
        """Put back what a dead worker was given; the case that it was at is tried once more, then it has failed.

        A worker that died before it was ready was at no case: none of its cases counts as tried.
        """
        code, words = worker.close(patience=10.0)
        if worker.is_ending and code == 0:
            return  # what is left of its keys is for the next run
        if not worker.is_ready:
            self._num_failed_starts += 1
            self._last_words = f"one ended with {ending_of(code)}. {words}".rstrip(". ")
        elif worker.keys:
            key = worker.keys.popleft()
            self._deaths[key] = self._deaths.get(key, 0) + 1
            if self._deaths[key] < _ATTEMPTS:
                worker.keys.appendleft(key)
            else:
                yield self._failure(key, code, words)
        todo.extendleft(reversed(worker.keys))

    def _failure(self, key: str, code: int, words: str) -> Outcome:
        times = f"{_ATTEMPTS} times out of {_ATTEMPTS}"
        error = f"WorkerDied: the worker process ended with {ending_of(code)}, {times}\n{words}"
        return Outcome(key, None, error, 0.0, provenance_text(), _ATTEMPTS)


def _workers_with_news(workers: Sequence[Worker]) -> list[Worker]:
    """The workers that have sent something or have ended; after a while of silence perhaps none."""
    ready = wait([worker.connection for worker in workers], timeout=_POLL_SECONDS)
    return [worker for worker in workers if worker.connection in ready or (not ready and worker.has_ended())]


def _python_path() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def ending_of(code: int) -> str:
    """How a process ended, in words, by its exit code (minus the signal that killed it)."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
