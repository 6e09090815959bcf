"""The records of a study to be shown or exported: from the store, or from the committed results alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from hessmap.errors import DataFileError, sentence
from hessmap.runs.encoding import case_key
from hessmap.runs.plan import keys_on
from hessmap.runs.results_file import DEFAULT_RESULTS, Stored, read_results, results_path
from hessmap.runs.run_summary import DEFAULT_STORE
from hessmap.runs.store import Store
from hessmap.runs.study import Study
from hessmap.runs.verdict import Verdict


class NoRecords(DataFileError):
    """Nothing of a study has been run or exported."""


@dataclass(frozen=True)
class Collection:
    """A study, the rows of its present cases in their order, where they came from, and what to know about them."""

    study: Study
    stored: Stored
    source: str
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        return self.study.verdict(self.stored.rows, len(self.stored.failures))


def collected(
    study: Study, store: Path = DEFAULT_STORE, results: Path | None = None, data: str | None = None
) -> Collection:
    """The records of a study from ``results`` where it is given, else from the store, else from ./results."""
    if results is not None:
        return collected_from_results(study, results, data)
    try:
        return collected_from_store(study, store, data)
    except NoRecords:
        if not results_path(study).exists():
            raise
        return collected_from_results(study, DEFAULT_RESULTS, data)


def collected_from_results(study: Study, folder: Path, data: str | None = None) -> Collection:
    return _collection(study, read_results(study, folder), str(results_path(study, folder)), data)


def collected_from_store(study: Study, path: Path, data: str | None = None) -> Collection:
    stored = _from_store(study, path, data)
    if stored is None:
        got, remedy = f"{path} has none", f"hessmap study run {study.name} makes them"
        raise NoRecords(sentence(f"study {study.name} must have records of version {study.version}", got, remedy))
    return _collection(study, stored, f"the store {path}", data)


def _collection(study: Study, stored: Stored, source: str, data: str | None) -> Collection:
    if data is not None:
        study.data_choice(data)
    ordered, num_other = _in_order(study, stored, data)
    notes = (f"{num_other} records of cases that the study no longer has are left out.",) if num_other else ()
    return Collection(study, ordered, source, notes)


def _from_store(study: Study, path: Path, data: str | None) -> Stored | None:
    if not path.exists():
        return None
    with Store(path) as store:
        rows = store.rows(study.name, study.version, data)
        failures = store.failures(study.name, study.version, data)
        provenances = store.provenances(study.name, study.version)
    return Stored(rows, failures, tuple(map(json.loads, provenances))) if rows or failures else None


def _in_order(study: Study, stored: Stored, data: str | None) -> tuple[Stored, int]:
    """The rows and failures of the study's present cases, in the order of its grid; how many others there were."""
    names = (data,) if data is not None else study.data or ("",)
    keys = [key for name in names for key in keys_on(study, name)]
    rows = {case_key(row.case): row for row in stored.rows if data in (None, row.case.get("data"))}
    failures = {failure.key: failure for failure in stored.failures}
    present = tuple(rows[key] for key in keys if key in rows)
    failed = tuple(failures[key] for key in keys if key in failures)
    return Stored(present, failed, stored.provenances), len(rows) - len(present)
