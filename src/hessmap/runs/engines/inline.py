"""The engine that is this process: for debugging, for studies that are instant, and for notebooks."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from threading import Event

from hessmap.runs.engines.case import carried_out
from hessmap.runs.model_cache import use_models_folder
from hessmap.runs.store import Outcome
from hessmap.runs.study import Study


class Inline:
    """One case after the other, here."""

    def __init__(self, study: Study, models: Path) -> None:
        self.lanes = 1
        self._study = study
        self._models = models

    def outcomes(self, keys: Sequence[str], stop: Event) -> Generator[Outcome]:
        before = use_models_folder(self._models)
        try:
            for key in keys:
                if stop.is_set():
                    return
                yield carried_out(self._study, key)
        finally:
            use_models_folder(before)
