"""What a run has to do: the cases of a study on some data, less those that are stored."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hessmap.errors import InvalidInput, sentence
from hessmap.runs.data_choice import hash_of_data
from hessmap.runs.encoding import case_key, case_of_key
from hessmap.runs.store import Store
from hessmap.runs.study import Case, Study
from hessmap.runs.study_source import source_hash


@dataclass(frozen=True)
class Plan:
    """The keys of all cases, of those to run now, and what is to be said about the stored ones."""

    study: Study
    data: str
    data_hash: str
    keys: tuple[str, ...]
    pending: tuple[str, ...]
    num_skipped: int
    notes: tuple[str, ...]

    @property
    def predicted_seconds(self) -> dict[str, float]:
        return {key: self.study.seconds_of(case_of_key(key)) for key in self.pending}


def planned(
    study: Study, store: Store, data: str | None, case: Case | None, retry_failed: bool, again: bool
) -> Plan:
    """The plan of a run into a store; see `hessmap.runs.run.run` for the choices."""
    chosen = study.data_choice(data)
    keys = keys_on(study, chosen)
    wanted = (_key_in(keys, {"data": chosen, **case} if chosen else case, study),) if case is not None else keys
    data_hash = hash_of_data(chosen)
    stored = store.statuses(study.name, study.version, data_hash)
    skip = {"done"} if retry_failed or case is not None else {"done", "failed"}
    pending = wanted if again else tuple(key for key in wanted if stored.get(key) not in skip)
    skipped = set(wanted) - set(pending)
    notes = (*_notes_on_failures(sum(stored[key] == "failed" for key in skipped)), *_notes_on_source(study, store))
    return Plan(study, chosen, data_hash, keys, pending, len(skipped), notes)


def keys_on(study: Study, data: str) -> tuple[str, ...]:
    """The keys of the study's cases on a data set; two equal cases are an error of the study."""
    keys = tuple(map(case_key, study.cases_on(data)))
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise InvalidInput(sentence(f"the cases of study {study.name} must differ", f"{twice} is there twice"))
    return keys


def _key_in(keys: tuple[str, ...], case: Case, study: Study) -> str:
    key = case_key(case)
    if key not in keys:
        must = f"the case must be one of the {len(keys)} of study {study.name}, like {keys[0] if keys else 'none'}"
        raise InvalidInput(sentence(must, f"got {key}"))
    return key


def _notes_on_failures(num_failed: int) -> tuple[str, ...]:
    if not num_failed:
        return ()
    return (f"Failed in an earlier run and skipped: {num_failed}; --retry-failed takes them again.",)


def _notes_on_source(study: Study, store: Store) -> tuple[str, ...]:
    """Stores of version 0.1.0 have a hash of the study's file, which says nothing once the file has moved."""
    provenances = map(json.loads, store.provenances(study.name, study.version))
    before = {content["study_code"] for content in provenances if "study_code" in content}
    if not before - {source_hash(study)}:
        return ()
    return ("The study's code has changed since some of its stored records; raise its version to run them again.",)
