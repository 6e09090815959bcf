"""Long work of the explorer: every job is a ``hessmap`` command in a process of its own, as a user would type it.

A page that is closed loses nothing: jobs belong to the server. A job that is stopped is interrupted as by Ctrl-C, so
that what is done stays done.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from hessmap.errors import require, sentence, unknown_name
from hessmap.records import command_line
from hessmap.views.progress import PROGRESS_VARIABLE

OnDone = Callable[[Any], tuple[Any, str]]
Status = Literal["waiting", "running", "done", "failed", "stopped"]
_MOST_RUNNING = 2
_MOST_WAITING = 20
_MOST_KEPT = 100
_PATIENCE = 10.0  # seconds from the second request to stop until the process is killed


@dataclass
class Job:
    """One command: what it is for, how far it is, and what came of it. ``link`` leads to its result."""

    number: int
    kind: str
    title: str
    words: tuple[str, ...]
    link: str = ""
    on_done: OnDone | None = None
    status: Status = "waiting"
    progress: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    result: Any = None
    started: float = 0.0
    ended: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    is_stopping: bool = False

    @property
    def command(self) -> str:
        """As it can be typed, without the places of this machine."""
        shown = [word for word in self.words if not word.startswith(("--store=", "--no-files", "--json"))]
        return command_line(*shown)

    def described(self) -> dict[str, Any]:
        until = self.ended or time.monotonic()
        return {
            "number": self.number,
            "kind": self.kind,
            "title": self.title,
            "status": self.status,
            "progress": self.progress,
            "error": self.error,
            "result": self.result,
            "link": self.link if self.status == "done" else "",
            "command": self.command,
            "seconds": round(until - self.started, 1) if self.started else 0.0,
            "is_stopping": self.is_stopping,
        }


class Jobs:
    """The jobs of a server, newest last. Two run at a time; what comes on top waits."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._waiting: deque[Job] = deque()
        self._lock = threading.RLock()
        self._next = 1
        self._is_closed = False

    def start(
        self,
        kind: str,
        title: str,
        words: Sequence[str],
        link: str = "",
        on_done: OnDone | None = None,
    ) -> Job:
        """A new job. ``on_done`` takes what the command printed as JSON; it gives what a page is shown, and a link."""
        with self._lock:
            got = f"{len(self._waiting)} wait already"
            require(len(self._waiting) < _MOST_WAITING, f"at most {_MOST_WAITING} jobs can wait", got, "Stop one first")
            job = Job(self._next, kind, title, tuple(words), link, on_done)
            self._next += 1
            self._jobs[job.number] = job
            self._waiting.append(job)
            self._forget_old()
            self._start_waiting()
            return job

    def all(self) -> list[Job]:
        with self._lock:
            return list(self._jobs.values())

    def __getitem__(self, number: int) -> Job:
        with self._lock:
            if number not in self._jobs:
                raise unknown_name("a job", number, [str(known) for known in self._jobs] or ["(none yet)"])
            return self._jobs[number]

    def stop(self, number: int) -> Job:
        """Interrupt a job as Ctrl-C does; a second request ends it in any case."""
        job = self[number]
        with self._lock:
            if job.status == "waiting":
                self._waiting.remove(job)
                job.status = "stopped"
            elif job.status == "running":
                if job.process is not None:
                    (_kill if job.is_stopping else _interrupt)(job.process)
                job.is_stopping = True  # a process that is just being started is interrupted when it is there
            return job

    def close(self) -> None:
        """Interrupt whatever runs, and wait for it; what does not end in time is killed."""
        with self._lock:
            self._is_closed = True
            self._waiting.clear()
            running = [job.process for job in self._jobs.values() if job.status == "running" and job.process]
        for process in running:
            _interrupt(process)
        end = time.monotonic() + _PATIENCE
        for process in running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                _kill(process)
                process.wait()

    def _forget_old(self) -> None:
        ended = [number for number, job in self._jobs.items() if job.ended]
        for number in ended[: max(0, len(self._jobs) - _MOST_KEPT)]:
            del self._jobs[number]

    def _start_waiting(self) -> None:
        running = sum(job.status == "running" for job in self._jobs.values())
        while self._waiting and running < _MOST_RUNNING and not self._is_closed:
            job = self._waiting.popleft()
            job.status, job.started = "running", time.monotonic()
            threading.Thread(target=self._run, args=(job,), daemon=True).start()
            running += 1

    def _run(self, job: Job) -> None:
        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as said:
            try:
                code = self._process(job, printed, said)
                status, error = self._outcome(job, code, printed, said)
            except Exception as failure:  # whatever it is, the job has ended
                status, error = "failed", sentence("a job must start and end", f"{type(failure).__name__}: {failure}")
        with self._lock:
            job.status, job.error, job.ended, job.process = status, error, time.monotonic(), None
            self._start_waiting()

    def _process(self, job: Job, printed: Any, said: Any) -> int:
        reader, writer = os.pipe()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "COLUMNS": "10000",
            PROGRESS_VARIABLE: str(writer),
        }
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "hessmap", *job.words],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=said,
                pass_fds=(writer,),
                env=environment,
                process_group=0,  # Ctrl-C in the terminal of the server is passed on by the server
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        threading.Thread(target=_follow, args=(job, reader), daemon=True).start()
        with self._lock:
            job.process = process
            if job.is_stopping or self._is_closed:
                _interrupt(process)
        return process.wait()  # not until the pipe ends: what the command started may hold it open for longer

    def _outcome(self, job: Job, code: int, printed: Any, said: Any) -> tuple[Status, str]:
        """What came of it; where it worked, what it printed is the result."""
        printed.seek(0)
        said.seek(0)
        if code == 0:
            try:
                job.result = json.loads(printed.read())
            except (ValueError, RecursionError):  # no JSON, or none that can be shown
                job.result = None
            if job.on_done is not None:
                job.result, job.link = job.on_done(job.result)
            return "done", ""
        if job.is_stopping:
            return "stopped", ""
        lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
        told = [line.removeprefix("hessmap: ") for line in lines if line.startswith("hessmap: ")]
        if told:
            return "failed", told[-1]
        return "failed", sentence("a job must end by itself", f"it ended with {ending_of(code)}", "Repeat its command")


def _follow(job: Job, reader: int) -> None:
    """Keep the last line of progress that a job told."""
    with os.fdopen(reader, errors="replace") as lines:
        for line in lines:
            with suppress(ValueError, RecursionError):
                job.progress = json.loads(line)


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it started: a job leads a process group of its own."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def ending_of(code: int) -> str:
    """How a process ended, by its exit code (minus the signal that killed it)."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"
