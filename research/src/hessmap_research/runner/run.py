"""Running a study: what is stored is skipped, what fails is recorded, and every case is a transaction of its own."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from hessmap.progress import Progress, new_progress
from hessmap.records import DEFAULT_STORE, Record, command_line
from hessmap_research.runner.collection import exported_keys
from hessmap_research.runner.encoding import case_of_key
from hessmap_research.runner.engines import Engine, EngineName, engine_for
from hessmap_research.runner.plan import Plan, RemainingTime, run_plan, time_left
from hessmap_research.runner.registry import find
from hessmap_research.runner.store import Outcome, StudyStore, run_lock
from hessmap_research.runner.study import Case


@dataclass(frozen=True, eq=False, repr=False)
class FailedCase(Record):
    """A case that failed, its error (the first line says what, the rest where), and how to repeat it alone."""

    case: dict[str, Any]
    error: str
    command: str


@dataclass(frozen=True, eq=False, repr=False)
class RunSummary(Record):
    """Counts of one run. Cases stored before are skipped; cases that were not reached are left for the next run."""

    study: str
    data: str
    num_cases: int
    num_skipped: int
    num_done: int
    num_failed: int
    num_left: int
    seconds: float
    is_interrupted: bool = False
    failures: tuple[FailedCase, ...] = ()
    notes: tuple[str, ...] = ()
    summary_fields: ClassVar[tuple[str, ...]] = (
        "study",
        "num_cases",
        "num_skipped",
        "num_done",
        "num_failed",
        "num_left",
        "seconds",
    )


def run(
    address: str,
    store: Path = DEFAULT_STORE,
    *,
    data: str | None = None,
    engine: EngineName | Executor = "processes",
    workers: int | None = None,
    scheduler: str | None = None,
    case: Case | None = None,
    retry_failed: bool = False,
    again: bool = False,
    results: Path | None = None,
    progress: Progress | None = None,
) -> RunSummary:
    """Run the cases of a study that are not stored yet; ``address`` is its name or its "package.module:attribute".

    ``engine`` is a name or any ``concurrent.futures.Executor`` (a process pool, Dask's ``client.get_executor()``, loky,
    mpi4py's ``MPIPoolExecutor``, ``SubmititExecutor(submitit.AutoExecutor(..))``); ``workers`` is how many cases run on
    it at a time, by default its own number of workers.

    ``case`` runs that one alone (also when it failed before), ``retry_failed`` takes the failed ones again, ``again``
    takes all of them again and replaces their records. ``results`` is a folder of exported results whose cases are not
    run again.
    """
    study = find(address)
    shown = new_progress() if progress is None else progress
    started = time.monotonic()
    with StudyStore(store, create=True) as opened, run_lock(store, study.name):
        opened.require_sound()
        exported = () if results is None else exported_keys(study, results)
        plan = run_plan(study, opened, data, case, retry_failed, again, exported)
        remaining = RemainingTime(plan.predicted_seconds)
        failed: list[Outcome] = []
        is_interrupted = False
        if plan.pending:
            models = store.parent.absolute() / "models"
            chosen = engine_for(engine, study, address, models, workers, scheduler, remaining.seconds_of)
            place = "1 worker" if chosen.num_workers == 1 else f"{chosen.num_workers} workers"
            shown.start(f"{study.name} ({place})", total=len(plan.pending))
            try:
                with stop_event(lambda: shown.message(_STOPPING)) as stop:
                    failed = _store_outcomes(plan, chosen, opened, again, remaining, shown, stop)
                    is_interrupted = stop.is_set()
            finally:
                shown.finish()
    return RunSummary(
        study=study.name,
        data=plan.data,
        num_cases=len(plan.keys),
        num_skipped=plan.num_skipped,
        num_done=len(plan.pending) - remaining.num_left - len(failed),
        num_failed=len(failed),
        num_left=remaining.num_left,
        seconds=time.monotonic() - started,
        is_interrupted=is_interrupted,
        failures=tuple(_failed_case(outcome, address, plan, store) for outcome in failed),
        notes=plan.notes,
    )


_STOPPING = "Finishing the cases under way; Ctrl-C again leaves at once."


def _store_outcomes(
    plan: Plan,
    engine: Engine,
    store: StudyStore,
    again: bool,
    remaining: RemainingTime,
    shown: Progress,
    stop: threading.Event,
) -> list[Outcome]:
    """Measure what is pending and store each outcome as it comes; the failed ones are returned."""
    failed: list[Outcome] = []
    study_id = store.study_id(plan.study.name, plan.study.version)
    with closing(engine.outcomes(plan.pending, stop)) as outcomes:
        for outcome in outcomes:
            store.add(study_id, plan.data, plan.data_hash, outcome, replace=again)
            remaining.count(outcome.key, outcome.seconds, outcome.is_done)
            if not outcome.is_done:
                failed.append(outcome)
            failures = f", {len(failed)} failed" if failed else ""
            note = f"{time_left(remaining.seconds(engine.num_workers))}{failures}"
            shown.advance(len(plan.pending) - remaining.num_left, note)
    return failed


def _failed_case(outcome: Outcome, address: str, plan: Plan, store: Path) -> FailedCase:
    command = repeat_command(address, outcome.key, plan.data, store)
    return FailedCase(case_of_key(outcome.key), outcome.error or "", command)


def repeat_command(address: str, key: str, data: str, store: Path) -> str:
    """The command that runs one case alone.

    >>> repeat_command("fcn/simulate", '{"width":3}', "", DEFAULT_STORE)
    'hessmap study run fcn/simulate --case \\'{"width":3}\\''
    """
    words = ["study", "run", address, "--case", key]
    words += ["--data", data] if data else []
    words += ["--store", str(store)] if store != DEFAULT_STORE else []
    return command_line(*words)


@contextmanager
def stop_event(on_first: Callable[[], None]) -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets, so that cases under way can finish; the second raises KeyboardInterrupt.

    Signals belong to the main thread: elsewhere the event is never set.
    """
    stop = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        # Not here: a handler may interrupt a write to the terminal, and must not write to it again.
        threading.Thread(target=on_first).start()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
