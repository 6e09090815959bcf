"""What a run has to do, less what is stored, and how long it still takes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from hessmap.errors import InvalidInput, sentence
from hessmap.records import data_hash
from hessmap_research.runner.encoding import case_key, case_of_key
from hessmap_research.runner.store import StudyStore
from hessmap_research.runner.study import Case, Study

_FIRST_DRAW = {"gaussian": {"num_samples": 8, "dim": 4}}
_CASES_PER_WORKER = 20  # from here on the clock on the wall is the better witness


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


def run_plan(
    study: Study,
    store: StudyStore,
    data: str | None,
    case: Case | None,
    retry_failed: bool,
    again: bool,
    elsewhere: Collection[str] = (),
) -> Plan:
    """The plan of a run into a store; see `run` for the choices. ``elsewhere`` holds the keys of cases
    whose records are in another place."""
    chosen = study.data_choice(data)
    keys = keys_on(study, chosen)
    wanted = (_key_in(keys, {"data": chosen, **case} if chosen else case, study),) if case is not None else keys
    content_hash = hash_of_data(chosen)
    stored = store.statuses(study.name, study.version, content_hash)
    skip = {"done"} if retry_failed or case is not None else {"done", "failed"}
    pending = wanted if again else tuple(key for key in wanted if stored.get(key) not in skip and key not in elsewhere)
    skipped = set(wanted) - set(pending)
    num_failed = sum(stored.get(key) == "failed" for key in skipped)
    notes = _notes_on_failures(num_failed)
    return Plan(study, chosen, content_hash, keys, pending, len(skipped), notes)


def keys_on(study: Study, data: str) -> tuple[str, ...]:
    """The keys of the study's cases on a data set; two equal cases are an error of the study."""
    keys = tuple(map(case_key, study.cases_on(data)))
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise InvalidInput(sentence(f"the cases of study {study.name} must differ", f"{twice} is there twice"))
    return keys


def hash_of_data(name: str) -> str:
    """A hash of the files of a data set, of its samples where it has no files, or "" for no data.

    A changed file means changed cases.
    """
    if not name:
        return ""
    from hessmap.datasets import available, by_name

    here = {status.name: status for status in available() if status.is_present}
    if name in here and here[name].files:
        return _hash_of_files(here[name].files)
    # A data set that is not here says so, and how to get it; one that is drawn is known by a first draw.
    samples = by_name(name, **_FIRST_DRAW.get(name, {}))
    return data_hash(samples.inputs.numpy(), samples.targets.numpy())


def _hash_of_files(paths: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: Path(path).name):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


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


class RemainingTime:
    """Time left for cases of different predicted cost on some workers.

    At first the predictions are scaled by predicted against actual seconds of the finished cases, and divided by the
    workers. After many cases the wall clock decides, which also sees what lies between the cases.
    """

    def __init__(self, predicted: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self._predicted = dict(predicted)
        self._clock = clock
        self._started = clock()
        self._work_left = sum(self._predicted.values())
        self._work_done = 0.0
        self._work_measured = 0.0
        self._seconds_measured = 0.0
        self._num_done = 0

    def count(self, key: str, seconds: float, is_done: bool = True) -> None:
        """Count a case; one that failed says nothing about the speed of others."""
        work = self._predicted.pop(key, 0.0)
        self._work_left -= work
        self._work_done += work
        self._num_done += 1
        if is_done:
            self._work_measured += work
            self._seconds_measured += seconds

    def seconds_of(self, key: str) -> float | None:
        """The corrected prediction for one case; None before a case has finished."""
        return self._predicted.get(key, 0.0) * self._scale if self._work_measured > 0 else None

    @property
    def num_left(self) -> int:
        return len(self._predicted)

    def seconds(self, num_workers: int) -> float | None:
        """The time left if ``num_workers`` cases are measured at a time; None before anything is known."""
        if not self._predicted:
            return 0.0
        if self._num_done >= _CASES_PER_WORKER * num_workers and self._work_done > 0:
            return self._work_left / self._work_done * (self._clock() - self._started)
        if self._work_measured <= 0:
            return None
        return self._scale * self._work_left / min(num_workers, len(self._predicted))

    @property
    def _scale(self) -> float:
        return self._seconds_measured / self._work_measured


def time_left(seconds: float | None) -> str:
    """The time left in words, no finer than it is known.

    >>> time_left(None), time_left(3.2), time_left(100), time_left(4000)
    ('time left not known yet', 'a few seconds left', 'about 2 min left', 'about 1.1 h left')
    """
    if seconds is None:
        return "time left not known yet"
    if seconds < 10:
        return "a few seconds left"
    if seconds < 60:
        return f"about {round(seconds, -1):.0f} s left"
    if seconds < 3600:
        return f"about {seconds / 60:.0f} min left"
    return f"about {seconds / 3600:.1f} h left"
