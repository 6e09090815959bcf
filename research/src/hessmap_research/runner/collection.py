"""The records of a study, to be shown or exported: from the store, or from the committed results alone.

An exported file ``results/fcn-simulate.json`` is stable in order, has one case a line, and is made to be committed.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hessmap.errors import DataFileError, sentence
from hessmap.records import DEFAULT_STORE, atomic_write
from hessmap.records.record import decoded_record, encode
from hessmap_research.runner.claims import StudyOutcome, stored_text
from hessmap_research.runner.encoding import case_key, case_of_key
from hessmap_research.runner.plan import keys_on
from hessmap_research.runner.row import Row
from hessmap_research.runner.store import Failure, StudyStore
from hessmap_research.runner.study import Study

DEFAULT_RESULTS = Path("results")  # of the current folder: what is exported is written there
_INSTALLED, _CLONE = (Path(__file__).parents[level] / "results" for level in (1, 3))
PACKAGE_RESULTS = _INSTALLED if _INSTALLED.is_dir() else _CLONE  # gzipped where they were installed; never written to


class NoRecords(DataFileError):
    """Nothing of a study has been run or exported."""


@dataclass(frozen=True)
class StoredRecords:
    """Rows, failures and provenances of a study, as a store or a results file holds them."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    provenances: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Collection:
    """A study, the rows of its present cases in their order, and what to know about them.

    ``source`` says what they were read from and ``path`` where that is; a page that is shared shows the first alone.
    """

    study: Study
    stored: StoredRecords
    source: str
    path: Path
    notes: tuple[str, ...] = ()

    @cached_property
    def outcome(self) -> StudyOutcome:
        return self.study.outcome(self.stored.rows, len(self.stored.failures))


def study_collection(
    study: Study, store: Path = DEFAULT_STORE, results: Path | None = None, data: str | None = None
) -> Collection:
    """The records of a study.

    They are read from ``results`` where it is given; else from the first of these that has some: the store,
    ``./results``, the results that come with the package.
    """
    if results is not None:
        return collection_from_results(study, results, data)
    try:
        return collection_from_store(study, store, data)
    except NoRecords:
        folder = results_folder(study)
        if not results_path(study, folder).exists():
            raise
        return collection_from_results(study, folder, data)


def results_folder(study: Study) -> Path:
    """Where the exported records of a study are read, unless a folder is given: ``./results``, else the package."""
    return DEFAULT_RESULTS if results_path(study).exists() else PACKAGE_RESULTS


def collection_from_results(study: Study, folder: Path, data: str | None = None) -> Collection:
    path = results_path(study, folder)
    return _of_present_cases(study, read_results(study, folder), f"the exported {path.name}", path, data)


def collection_from_store(study: Study, path: Path, data: str | None = None) -> Collection:
    stored = _read_store(study, path, data) if path.exists() else None
    if stored is None:
        got, remedy = f"{path} has none", f"hessmap study run {study.name} makes them"
        raise NoRecords(sentence(f"study {study.name} must have records of version {study.version}", got, remedy))
    return _of_present_cases(study, stored, "the store", path, data)


def _read_store(study: Study, path: Path, data: str | None) -> StoredRecords | None:
    with StudyStore(path) as store:
        rows = store.rows(study.name, study.version, data)
        failures = store.failures(study.name, study.version, data)
        provenances = store.provenances(study.name, study.version)
    return StoredRecords(rows, failures, tuple(map(json.loads, provenances))) if rows or failures else None


def _of_present_cases(study: Study, stored: StoredRecords, source: str, path: Path, data: str | None) -> Collection:
    """The rows and failures of the study's present cases, in the order of its grid, with a note on the others."""
    if data is not None:
        study.data_choice(data)
    names = (data,) if data is not None else study.data or ("",)
    keys = [key for name in names for key in keys_on(study, name)]
    rows = {case_key(row.case): row for row in stored.rows if data in (None, row.case.get("data"))}
    failures = {failure.key: failure for failure in stored.failures}
    present = tuple(rows[key] for key in keys if key in rows)
    failed = tuple(failures[key] for key in keys if key in failures)
    num_other = len(rows) - len(present)
    notes = (f"{num_other} records of cases that the study no longer has are left out.",) if num_other else ()
    return Collection(study, StoredRecords(present, failed, stored.provenances), source, path, notes)


def results_path(study: Study, folder: Path = DEFAULT_RESULTS) -> Path:
    """Where the records of a study are stored: ``fcn-simulate.json``, or gzipped ``fcn-simulate.json.gz``."""
    path = written_path(study, folder)
    packed = path.with_suffix(".json.gz")
    return packed if packed.exists() and not path.exists() else path


def written_path(study: Study, folder: Path = DEFAULT_RESULTS) -> Path:
    """Where ``write_results`` writes: never gzipped, and read rather than a gzipped file beside it."""
    return folder / f"{study.name.replace('/', '-')}.json"


def joined_records(study: Study, stored: StoredRecords, folder: Path = DEFAULT_RESULTS) -> StoredRecords:
    """The records given, and those of the results file of the same version for cases that are not among them.

    A store holds what was run on one machine; the file what was run on any. Failures are those of the store alone.
    """
    if not results_path(study, folder).exists():
        return stored
    earlier = read_results(study, folder)
    rows = {case_key(row.case): row for row in (*earlier.rows, *stored.rows)}
    names = study.data or ("",)
    keys = [key for name in names for key in keys_on(study, name) if key in rows]
    described = {json.dumps(item, sort_keys=True): item for item in (*earlier.provenances, *stored.provenances)}
    return StoredRecords(tuple(rows[key] for key in keys), stored.failures, tuple(described.values()))


def exported_keys(study: Study, folder: Path = DEFAULT_RESULTS) -> frozenset[str]:
    """The keys of the cases that the results file of a study has, on any data set."""
    return frozenset(case_key(row.case) for row in read_results(study, folder).rows)


def write_results(study: Study, stored: StoredRecords, folder: Path = DEFAULT_RESULTS) -> Path:
    """Write the results file of a study; equal records give equal bytes, whenever and in whatever order they came."""
    path = written_path(study, folder)
    try:
        with atomic_write(path) as file:
            file.write(results_text(study, stored).encode())
    except OSError as error:
        raise DataFileError(sentence("a results file must be writable", f"{path} is not ({error.strerror})")) from error
    return path


def read_results(study: Study, folder: Path = DEFAULT_RESULTS) -> StoredRecords:
    """What ``write_results`` wrote."""
    path = results_path(study, folder)
    if not path.exists():
        must = f"the results of study {study.name} must have been exported"
        raise DataFileError(sentence(must, f"there is no {path}", f"hessmap study export {study.name} writes it"))
    try:
        content = json.loads(_text_of(path))
        rows = tuple(
            Row(case_of_key(case_key(item["case"])), decoded_record(item["record"])) for item in content["records"]
        )
        failures = tuple(
            Failure(case_key(item["case"]), item["error"], item["attempts"]) for item in content["failures"]
        )
        version, provenances = content["version"], tuple(content["provenance"])
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError) as error:
        must = "a results file must be as it was exported"
        raise DataFileError(sentence(must, f"{path} is not ({error!r})")) from error
    if version != study.version:
        must, got = f"study {study.name} is at version {study.version}", f"{path} holds version {version}"
        raise DataFileError(sentence(must, got, "Run and export it again"))
    return StoredRecords(rows, failures, provenances)


def _text_of(path: Path) -> str:
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")


def results_text(study: Study, stored: StoredRecords) -> str:
    """The content of a results file."""
    head = {"study": study.name, "version": study.version, "question": study.question, "reference": study.reference}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    outcome = study.outcome(stored.rows, len(stored.failures))
    lines.append(f' "outcome": {stored_text(outcome.stored())},')
    failures = [
        {"case": case_of_key(failure.key), "error": shared_error(failure), "attempts": failure.attempts}
        for failure in stored.failures
    ]
    lines += _lines("provenance", [json.dumps(item, sort_keys=True) for item in stored.provenances])
    lines += _lines("failures", [json.dumps(item, sort_keys=True) for item in failures])
    records = [f'{{"case": {case_key(row.case)},\n   "record": {encode(row.record)}}}' for row in stored.rows]
    lines += _lines("records", records, is_last=True)
    return "\n".join(["{", *lines, "}", ""])


def shared_error(failure: Failure) -> str:
    """The first line of an error as it can be shared: of files of the machine the names alone.

    >>> shared_error(Failure("{}", "OSError: '/home/me/data/x.npz' at 1/2 of https://a.org/b/c\\ntraceback", 1))
    "OSError: 'x.npz' at 1/2 of https://a.org/b/c"
    """
    return re.sub(r"(?<![\w.~/:])~?/(?:[^\s/'\"():,]+/)+(?=[^\s/'\"():,])", "", failure.error.split("\n")[0])


def _lines(name: str, items: Sequence[str], is_last: bool = False) -> list[str]:
    comma = "" if is_last else ","
    if not items:
        return [f' "{name}": []{comma}']
    return [f' "{name}": [', ",\n".join(f"  {item}" for item in items), f" ]{comma}"]
