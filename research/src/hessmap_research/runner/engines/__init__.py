"""Who measures the cases of a study: this process, local processes, a Dask cluster, or an executor of the caller."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from threading import Event
from typing import Literal, Protocol

from hessmap.errors import InvalidInput, require, sentence, unknown_name
from hessmap_research.runner.engines.case import case_outcome
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.runner.store import Outcome
from hessmap_research.runner.study import Study

EngineName = Literal["processes", "inline", "dask"]
ENGINES: tuple[EngineName, ...] = ("processes", "inline", "dask")


class Engine(Protocol):
    """Yields an outcome for every key, in any order, until it is to stop; ``num_workers`` cases run at a time."""

    num_workers: int

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]: ...


def engine_for(
    name: EngineName | Executor,
    study: Study,
    address: str,
    models: Path,
    workers: int | None,
    scheduler: str | None,
    seconds_of: Callable[[str], float | None],
) -> Engine:
    """The engine of a name, or on an executor. ``address`` is how other processes find the study, ``seconds_of``
    predicts a case."""
    if isinstance(name, Executor):
        from hessmap_research.runner.engines.executors import OnExecutor

        require(scheduler is None, "a scheduler belongs to engine dask", "the engine is an executor")
        return OnExecutor(study, address, name, workers, seconds_of)
    if name not in ENGINES:
        raise unknown_name("engine", name, ENGINES)
    if scheduler is not None and name != "dask":
        raise InvalidInput(sentence("a scheduler belongs to engine dask", f"the engine is {name}"))
    if name == "inline":
        return Inline(study, models)
    if name == "processes":
        from hessmap_research.runner.engines.processes import Processes

        num_workers = max(1, num_cores() // study.threads) if workers is None else workers
        require(num_workers >= 1, "workers must be at least 1", f"got {workers}")
        return Processes(study, address, models, num_workers, seconds_of)
    from hessmap_research.runner.engines.executors import Cluster

    if scheduler is None:
        raise InvalidInput(sentence("engine dask needs the address of a scheduler", "none is given"))
    return Cluster(study, address, scheduler, seconds_of)


class Inline:
    """One case after the other in this process: for debugging, for studies that are instant, and for notebooks."""

    def __init__(self, study: Study, models: Path) -> None:
        self.num_workers = 1
        self._study = study
        self._models = models

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]:
        before = use_models_folder(self._models)
        try:
            for key in keys:
                if stop.is_set():
                    return
                yield case_outcome(self._study, key)
        finally:
            use_models_folder(before)


def num_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
