"""The exported records of a study: one JSON file, stable in order, one case a line, made to be committed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hessmap.errors import DataFileError, sentence
from hessmap.results.strict_json import restored
from hessmap.runs.encoding import case_key, case_of_key, encode
from hessmap.runs.row import Row
from hessmap.runs.store import Failure
from hessmap.runs.study import Study

DEFAULT_RESULTS = Path("results")


@dataclass(frozen=True)
class Stored:
    """Rows, failures and provenances of a study, as a store or a results file holds them."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    provenances: tuple[dict[str, Any], ...]


def results_path(study: Study, folder: Path = DEFAULT_RESULTS) -> Path:
    """Where the records of a study are committed: ``results/fcn-simulate.json``."""
    return folder / f"{study.name.replace('/', '-')}.json"


def write_results(study: Study, stored: Stored, folder: Path = DEFAULT_RESULTS) -> Path:
    """Write the results file of a study; equal records give equal bytes, whenever and in whatever order they came."""
    path = results_path(study, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".json.new")
    fresh.write_text(results_text(study, stored), encoding="utf-8")
    fresh.replace(path)
    return path


def read_results(study: Study, folder: Path = DEFAULT_RESULTS) -> Stored:
    """What ``write_results`` wrote."""
    path = results_path(study, folder)
    if not path.exists():
        must = f"the results of study {study.name} must have been exported"
        raise DataFileError(sentence(must, f"there is no {path}", f"hessmap study export {study.name} writes it"))
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = tuple(Row(case_of_key(case_key(item["case"])), restored(item["record"])) for item in content["records"])
        failures = tuple(
            Failure(case_key(item["case"]), item["error"], item["attempts"]) for item in content["failures"]
        )
        version, provenances = content["version"], tuple(content["provenance"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        must = "a results file must be as it was exported"
        raise DataFileError(sentence(must, f"{path} is not ({error!r})")) from error
    if version != study.version:
        must, got = f"study {study.name} is at version {study.version}", f"{path} holds version {version}"
        raise DataFileError(sentence(must, got, "Run and export it again"))
    return Stored(rows, failures, provenances)


def results_text(study: Study, stored: Stored) -> str:
    """The content of a results file."""
    head = {"study": study.name, "version": study.version, "question": study.question, "reference": study.reference}
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    lines.append(f' "verdict": {json.dumps(study.verdict(stored.rows, len(stored.failures)).sentence)},')
    failures = [
        {"case": case_of_key(failure.key), "error": failure.error.split("\n")[0], "attempts": failure.attempts}
        for failure in stored.failures
    ]
    lines += _listed("provenance", [json.dumps(item, sort_keys=True) for item in stored.provenances])
    lines += _listed("failures", [json.dumps(item, sort_keys=True) for item in failures])
    records = [f'{{"case": {case_key(row.case)},\n   "record": {encode(row.record)}}}' for row in stored.rows]
    lines += _listed("records", records, is_last=True)
    return "\n".join(["{", *lines, "}", ""])


def _listed(name: str, items: Sequence[str], is_last: bool = False) -> list[str]:
    comma = "" if is_last else ","
    if not items:
        return [f' "{name}": []{comma}']
    return [f' "{name}": [', ",\n".join(f"  {item}" for item in items), f" ]{comma}"]
