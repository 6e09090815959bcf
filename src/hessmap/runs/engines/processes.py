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
from hessmap.runs.engines.case import provenance_of, thread_environment
from hessmap.runs.store import Outcome
from hessmap.runs.study import Study

_SECONDS_AHEAD = 0.1  # how much work a worker holds: enough to hide the pipe, little enough to share out at the end
_KEYS_AHEAD = 64
_BYTES_AHEAD = 32_000  # stays below the buffer of the pipe, so that sending never blocks
_ATTEMPTS = 2
_POLL_SECONDS = 0.2


class WorkerError(HessmapError, RuntimeError):
    """Worker processes cannot be started."""


class Worker:
    """One worker process, the pipe to it, and the keys that it holds, in the order in which it takes them."""

    def __init__(self, address: str, threads: int, models: Path) -> None:
        self.connection, theirs = Pipe()
        lifeline, self._lifeline = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        fds = (theirs.fileno(), lifeline)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "hessmap.runs.engines.worker", *map(str, fds), str(os.getpid())],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **thread_environment(threads)},
            process_group=0,  # Ctrl-C in the terminal reaches the parent alone, which lets cases finish
        )
        theirs.close()
        os.close(lifeline)
        self.held: deque[str] = deque()
        self.is_ready = False
        self.is_told_to_end = False
        self._send((sys.path, address, str(models)))

    def _send(self, message: object) -> None:
        with suppress(OSError):  # it has died: reading from it says so, and what it held is given out again
            self.connection.send(message)

    def give(self, keys: Sequence[str]) -> None:
        self.held.extend(keys)
        self._send(list(keys))

    def tell_to_end(self) -> None:
        """Finish the case under way and leave."""
        self.is_told_to_end = True
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
        self, study: Study, address: str, models: Path, lanes: int, seconds_of: Callable[[str], float | None]
    ) -> None:
        self.lanes = lanes
        self._study = study
        self._address = address
        self._models = models
        self._seconds_of = seconds_of
        self._deaths: dict[str, int] = {}

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]:
        todo = deque(keys)
        workers = [self._started() for _ in range(min(self.lanes, len(todo)))]
        try:
            while workers:
                self._share_out(todo, workers, stop.is_set())
                for worker in _speaking(workers):
                    is_alive, received = _received(worker)
                    yield from (self._counted(outcome) for outcome in received)
                    if not is_alive:
                        workers.remove(worker)
                        yield from self._buried(worker, todo)
                        if todo and not stop.is_set():
                            workers.append(self._started())
        finally:
            for worker in workers:
                worker.close()

    def _started(self) -> Worker:
        return Worker(self._address, self._study.threads, self._models)

    def _share_out(self, todo: deque[str], workers: Sequence[Worker], is_stopping: bool) -> None:
        for worker in workers:
            if worker.is_told_to_end:
                continue  # what comes back from a dead one is for others
            if is_stopping or not (todo or worker.held):
                worker.tell_to_end()
            elif worker.is_ready or not worker.held:
                keys = self._next_keys(todo, worker)
                if keys:
                    worker.give(keys)

    def _next_keys(self, todo: deque[str], worker: Worker) -> list[str]:
        """What the worker gets on top: up to some time of work, one case where the time is unknown or long."""
        ahead = sum(self._seconds_of(key) or _SECONDS_AHEAD for key in worker.held)
        if ahead > _SECONDS_AHEAD / 2 or len(worker.held) > _KEYS_AHEAD / 2:
            return []
        keys: list[str] = []
        num_bytes = sum(map(len, worker.held))
        num_free = _KEYS_AHEAD - len(worker.held)
        while todo and ahead < _SECONDS_AHEAD and len(keys) < num_free and num_bytes < _BYTES_AHEAD:
            ahead += self._seconds_of(todo[0]) or _SECONDS_AHEAD
            num_bytes += len(todo[0])
            keys.append(todo.popleft())
        return keys

    def _counted(self, outcome: Outcome) -> Outcome:
        return replace(outcome, attempts=1 + self._deaths.get(outcome.key, 0))

    def _buried(self, worker: Worker, todo: deque[str]) -> Iterator[Outcome]:
        """Give out again what a dead worker held; the case that it was at is tried once more, then it has failed."""
        code, words = worker.close(patience=10.0)
        if not worker.is_ready:
            raise WorkerError(sentence("worker processes must start", f"one ended with code {code}", words))
        if worker.is_told_to_end and code == 0:
            return  # what it still holds is left for the next run
        if worker.held:
            key = worker.held.popleft()
            self._deaths[key] = self._deaths.get(key, 0) + 1
            if self._deaths[key] < _ATTEMPTS:
                worker.held.appendleft(key)
            else:
                yield self._given_up(key, code, words)
        todo.extendleft(reversed(worker.held))

    def _given_up(self, key: str, code: int, words: str) -> Outcome:
        cause = f"signal {-code}" if code < 0 else f"exit code {code}"
        error = f"WorkerDied: the worker process ended with {cause}, {_ATTEMPTS} times out of {_ATTEMPTS}\n{words}"
        return Outcome(key, None, error, 0.0, provenance_of(self._study), _ATTEMPTS)


def _speaking(workers: Sequence[Worker]) -> list[Worker]:
    """The workers that have sent something or have ended; after a while of silence perhaps none."""
    ready = wait([worker.connection for worker in workers], timeout=_POLL_SECONDS)
    return [worker for worker in workers if worker.connection in ready or (not ready and worker.has_ended())]


def _received(worker: Worker) -> tuple[bool, list[Outcome]]:
    """Whether the worker lives, and all that it has sent by now."""
    outcomes: list[Outcome] = []
    try:
        while worker.connection.poll():
            message = worker.connection.recv()
            if isinstance(message, Outcome):
                worker.held.popleft()
                outcomes.append(message)
            else:
                worker.is_ready = True
    except (EOFError, OSError):
        return False, outcomes
    return not worker.has_ended() or worker.connection.poll(), outcomes
