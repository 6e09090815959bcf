"""Running a study: what is stored is skipped, what fails is recorded, and every case is a transaction of its own."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from threading import Event

from hessmap.runs.encoding import case_of_key
from hessmap.runs.engines import Engine, EngineName, engine_for
from hessmap.runs.interrupt import finishing_first
from hessmap.runs.plan import Plan, planned
from hessmap.runs.progress import Progress, Silence
from hessmap.runs.registry import find
from hessmap.runs.remaining import Remaining
from hessmap.runs.run_summary import DEFAULT_STORE, FailedCase, RunSummary, repeat_command
from hessmap.runs.store import Outcome, Store, only_run
from hessmap.runs.study import Case


def run(
    address: str,
    store: Path = DEFAULT_STORE,
    *,
    data: str | None = None,
    engine: EngineName = "processes",
    workers: int | None = None,
    scheduler: str | None = None,
    case: Case | None = None,
    retry_failed: bool = False,
    again: bool = False,
    progress: Progress | None = None,
) -> RunSummary:
    """Run the cases of a study that are not stored yet; ``address`` is its name or its "package.module:attribute".

    ``case`` runs that one alone (also when it failed before), ``retry_failed`` takes the failed ones again, ``again``
    takes all of them again and replaces their records.
    """
    study = find(address)
    watcher = progress or Silence()
    started = time.monotonic()
    with Store(store, create=True) as opened, only_run(store, study.name):
        opened.require_sound()
        plan = planned(study, opened, data, case, retry_failed, again)
        remaining = Remaining(plan.predicted_seconds)
        failed: list[Outcome] = []
        is_interrupted = False
        if plan.pending:
            models = store.parent.absolute() / "models"
            chosen = engine_for(engine, study, address, models, workers, scheduler, remaining.seconds_of)
            watcher.started(study, len(plan.keys), len(plan.pending), chosen.lanes)
            with finishing_first(watcher.stopping) as stop:
                failed = _stored(plan, chosen, opened, again, remaining, watcher, stop)
                is_interrupted = stop.is_set()
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


def _stored(
    plan: Plan, engine: Engine, store: Store, again: bool, remaining: Remaining, watcher: Progress, stop: Event
) -> list[Outcome]:
    """Measure what is pending and store each outcome as it comes; the failed ones are returned."""
    failed: list[Outcome] = []
    study_id = store.study_id(plan.study.name, plan.study.version)
    with closing(engine.outcomes(plan.pending, stop)) as outcomes:
        for outcome in outcomes:
            store.add(study_id, plan.data, plan.data_hash, outcome, replace=again)
            remaining.finished(outcome.key, outcome.seconds, outcome.is_done)
            watcher.advanced(outcome, remaining.num_left, remaining.seconds(engine.lanes))
            if not outcome.is_done:
                failed.append(outcome)
    return failed


def _failed_case(outcome: Outcome, address: str, plan: Plan, store: Path) -> FailedCase:
    command = repeat_command(address, outcome.key, plan.data, store)
    return FailedCase(case_of_key(outcome.key), outcome.error or "", command)
