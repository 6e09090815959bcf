"""Running a study in this process: what is stored is skipped, what fails is recorded, what changed is run again."""

from __future__ import annotations

import shlex
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import toy_studies

from hessmap.errors import InvalidInput, UnknownName
from hessmap.progress import Progress
from hessmap.records.store import StoreError
from hessmap_research.runner.encoding import case_of_key
from hessmap_research.runner.run import RunSummary, run
from hessmap_research.runner.store import StudyStore, run_lock
from hessmap_research.studies import grid


def run_here(name: str, store: Path, **options: Any) -> RunSummary:
    return run(f"toy_studies:{name}", store, engine="inline", **options)


def counts(summary: RunSummary) -> tuple[int, int, int, int]:
    return summary.num_skipped, summary.num_done, summary.num_failed, summary.num_left


def test_a_second_run_skips_what_is_stored(store_path: Path) -> None:
    assert counts(run_here("SQUARE", store_path)) == (0, 8, 0, 0)
    assert counts(run_here("SQUARE", store_path)) == (8, 0, 0, 0)
    with StudyStore(store_path) as store:
        assert [row["square"] for row in store.rows("toy/square", 1)] == [width**2 for width in range(8)]


def test_only_new_cases_are_run_when_the_grid_grows(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here("SQUARE", store_path)
    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, cases=grid(width=range(10))))
    assert counts(run_here("SQUARE", store_path)) == (8, 2, 0, 0)


def test_a_new_version_runs_everything_again_and_keeps_the_old(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here("SQUARE", store_path)
    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, version=2))
    assert counts(run_here("SQUARE", store_path)) == (0, 8, 0, 0)
    with StudyStore(store_path) as store:
        assert [(summary.version, summary.num_done) for summary in store.summaries()] == [(1, 8), (2, 8)]


def test_changed_data_are_run_again(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hessmap_research.runner.plan.hash_of_data", lambda name: f"hash of {name}")
    assert counts(run_here("ON_DATA", store_path)) == (0, 3, 0, 0)
    assert counts(run_here("ON_DATA", store_path, data="mnist")) == (0, 5, 0, 0)
    assert counts(run_here("ON_DATA", store_path)) == (3, 0, 0, 0)
    monkeypatch.setattr("hessmap_research.runner.plan.hash_of_data", lambda name: f"new hash of {name}")
    assert counts(run_here("ON_DATA", store_path)) == (0, 3, 0, 0)
    with StudyStore(store_path) as store:
        assert len(store.rows("toy/on-data", 1)) == 3 + 5


def test_the_embedded_data_have_a_content_hash(store_path: Path) -> None:
    run_here("ON_DATA", store_path)
    stored = sqlite3.connect(store_path).execute("SELECT DISTINCT data, data_hash FROM result").fetchall()
    assert [name for name, _ in stored] == ["digits"]
    assert len(stored[0][1]) == 16


def test_a_failing_case_stops_nothing_and_its_command_repeats_it_alone(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = run_here("FAILING", store_path)
    assert counts(summary) == (0, 6, 2, 0)
    assert [failure.case["width"] for failure in summary.failures] == [3, 7]
    assert summary.failures[0].error.startswith("ArithmeticError: 3 is one below a multiple of four\nTraceback")
    words = shlex.split(summary.failures[0].command)
    assert words[:4] == ["hessmap", "study", "run", "toy_studies:FAILING"]
    assert words[words.index("--store") + 1] == str(store_path)
    monkeypatch.setattr(toy_studies, "FAILING", replace(toy_studies.FAILING, measure=toy_studies.square))
    again = run_here("FAILING", store_path, case=case_of_key(words[words.index("--case") + 1]))
    assert counts(again) == (0, 1, 0, 0)
    with StudyStore(store_path) as store:
        assert [case_of_key(failure.key)["width"] for failure in store.failures("toy/failing", 1)] == [7]


def test_failures_are_skipped_and_said_until_they_are_asked_for(store_path: Path) -> None:
    run_here("FAILING", store_path)
    summary = run_here("FAILING", store_path)
    assert counts(summary) == (8, 0, 0, 0)
    assert "Failed in an earlier run and skipped: 2; --retry-failed takes them again." in summary.notes
    assert counts(run_here("FAILING", store_path, retry_failed=True)) == (6, 0, 2, 0)


def test_again_replaces_the_records(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_here("SQUARE", store_path)
    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, measure=lambda case: {"square": -1}))
    assert counts(run_here("SQUARE", store_path)) == (8, 0, 0, 0)
    assert counts(run_here("SQUARE", store_path, again=True)) == (0, 8, 0, 0)
    with StudyStore(store_path) as store:
        assert {row["square"] for row in store.rows("toy/square", 1)} == {-1}
        assert len(store.rows("toy/square", 1)) == 8


def test_a_new_version_is_run_again_and_changed_code_alone_is_not(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here("SQUARE", store_path)
    changed = replace(toy_studies.SQUARE, measure=lambda case: {"square": -1})
    monkeypatch.setattr(toy_studies, "SQUARE", changed)
    assert counts(run_here("SQUARE", store_path)) == (8, 0, 0, 0)
    monkeypatch.setattr(toy_studies, "SQUARE", replace(changed, version=2))
    assert counts(run_here("SQUARE", store_path)) == (0, 8, 0, 0)


def test_what_cannot_be_stored_fails_that_case_alone(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(case: Any) -> dict[str, Any]:
        return {1: {"width": 3}, 2: {"value": object()}}.get(case["width"], {"value": 1})

    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, measure=odd))
    summary = run_here("SQUARE", store_path)
    assert counts(summary) == (0, 6, 2, 0)
    assert "a record must not repeat a name of its case; it repeats width" in summary.failures[0].error
    assert "record.value is a object" in summary.failures[1].error


def test_a_case_that_calls_exit_fails_that_case_alone(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, measure=lambda case: exit(3)))
    assert counts(run_here("SQUARE", store_path)) == (0, 0, 8, 0)


def test_a_case_outside_the_grid_is_refused(store_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r'one of the 8 of study toy/square, like {"width":0}; got {"width":9}'):
        run_here("SQUARE", store_path, case={"width": 9})


def test_equal_cases_are_an_error_of_the_study(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy_studies, "SQUARE", replace(toy_studies.SQUARE, cases=grid(width=[1, 2, 1])))
    with pytest.raises(InvalidInput, match=r'must differ; {"width":1} is there twice'):
        run_here("SQUARE", store_path)


def test_an_unknown_engine_and_a_scheduler_without_dask_are_refused(store_path: Path) -> None:
    with pytest.raises(UnknownName, match="engine must be one of processes, inline, dask; got 'threads'"):
        run("toy_studies:SQUARE", store_path, engine="threads")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a scheduler belongs to engine dask; the engine is inline"):
        run_here("SQUARE", store_path, scheduler="tcp://localhost:1")
    with pytest.raises(InvalidInput, match="engine dask needs the address of a scheduler"):
        run("toy_studies:SQUARE", store_path, engine="dask")


def test_two_runs_of_one_study_at_a_time_are_refused(store_path: Path) -> None:
    run_here("FAILING", store_path)
    with run_lock(store_path, "toy/square"), pytest.raises(StoreError, match="one run at a time"):
        run_here("SQUARE", store_path)


def test_a_damaged_store_stops_the_run_before_anything_is_written(store_path: Path) -> None:
    run_here("MANY", store_path)
    content = bytearray(store_path.read_bytes())
    content[8192:12288] = b"\xa5" * 4096
    store_path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged"):
        run_here("SQUARE", store_path)
    assert store_path.read_bytes() == content


class Reports(Progress):
    """Remembers what a run reports."""

    def __init__(self) -> None:
        self.reports: list[tuple[object, ...]] = []

    def start(self, step: str, total: int | None = None) -> None:
        self.reports.append((step, total))

    def advance(self, done: int, note: str = "") -> None:
        self.reports.append((done, note))

    def finish(self) -> None:
        self.reports.append(("finished",))


def test_progress_is_reported_case_by_case(store_path: Path) -> None:
    progress = Reports()
    run_here("FAILING", store_path, progress=progress)
    first, *cases, last = progress.reports
    assert first == ("toy/failing (1 worker)", 8)
    assert [done for done, _ in cases] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [str(note).partition(", ")[2] for _, note in cases] == ["", "", "", *4 * ["1 failed"], "2 failed"]
    assert all("left" in str(note) for _, note in cases)
    assert last == ("finished",)
