"""What a study is about, what it wants, and what it would cost: known without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hessmap.records import DEFAULT_STORE, Record
from hessmap_research.runner.collection import NoRecords, collection_from_store
from hessmap_research.runner.engines import num_cores
from hessmap_research.runner.study import Case, Study

_FEW = 8


@dataclass(frozen=True, eq=False, repr=False)
class StudyDescription(Record):
    """The question, the paper's item, the axes of the grid, the data wanted, and the predicted cost.

    ``predicted_seconds`` is the work of all cases on one core, ``predicted_wall_seconds`` its share on ``num_workers``.
    """

    name: str
    version: int
    question: str
    reference: str
    num_cases: int
    num_done: int
    num_failed: int
    axes: dict[str, str]
    data: str
    data_choices: tuple[str, ...]
    missing_data: tuple[str, ...]
    predicted_seconds: float
    num_workers: int
    predicted_wall_seconds: float
    threads: int
    figures: tuple[str, ...]


def study_description(study: Study, data: str | None = None, store: Path = DEFAULT_STORE) -> StudyDescription:
    """The description of a study on the chosen data (or its default), and what a store holds of it."""
    chosen = study.data_choice(data)
    num_done, num_failed = _stored_counts(study, store, chosen)
    cases = study.cases_on(chosen)
    seconds = [study.seconds_of(case) for case in cases]
    num_workers = max(1, min(num_cores() // study.threads, len(cases)))
    return StudyDescription(
        name=study.name,
        version=study.version,
        question=study.question,
        reference=study.reference,
        num_cases=len(cases),
        num_done=num_done,
        num_failed=num_failed,
        axes=_axes(cases),
        data=chosen,
        data_choices=study.data,
        missing_data=_missing_data(study.data),
        predicted_seconds=sum(seconds),
        num_workers=num_workers,
        predicted_wall_seconds=max(sum(seconds) / num_workers, max(seconds, default=0.0)),
        threads=study.threads,
        figures=tuple(figure.title for figure in study.view.figures),
    )


def _stored_counts(study: Study, path: Path, data: str) -> tuple[int, int]:
    try:
        stored = collection_from_store(study, path, data or None).stored
    except NoRecords:
        return 0, 0
    return len(stored.rows), len(stored.failures)


def _missing_data(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    from hessmap.datasets import available

    return tuple(status.name for status in available() if status.name in names and not status.is_present)


def _axes(cases: Sequence[Case]) -> dict[str, str]:
    """The different values of each field, all of them where they are few."""
    values: dict[str, dict[Any, None]] = {}
    for case in cases:
        for name, value in case.items():
            values.setdefault(name, {})[value] = None
    return {name: _value_list(list(found)) for name, found in values.items()}


def _value_list(values: list[Any]) -> str:
    if all(isinstance(value, int | float) for value in values):
        values = sorted(values)
    texts = ["-".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in values]
    if len(texts) <= _FEW:
        return ", ".join(texts)
    return f"{', '.join(texts[:3])}, ..., {texts[-1]} ({len(texts)} values)"
