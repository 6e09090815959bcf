"""What a run did, with the command that repeats each failed case alone."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from hessmap.results import Record

DEFAULT_STORE = Path("hessmap-runs/hessmap.sqlite")


@dataclass(frozen=True, eq=False, repr=False)
class FailedCase(Record):
    """A case that failed, its error (the first line says what, the rest where), and how to repeat it alone."""

    case: dict[str, Any]
    error: str
    command: str


@dataclass(frozen=True, eq=False, repr=False)
class RunSummary(Record):
    """Counts of one run. Cases stored before are skipped; cases that were not reached are left for the next run."""

    study: str
    data: str
    num_cases: int
    num_skipped: int
    num_done: int
    num_failed: int
    num_left: int
    seconds: float
    is_interrupted: bool = False
    failures: tuple[FailedCase, ...] = ()
    notes: tuple[str, ...] = ()
    summary_fields: ClassVar[tuple[str, ...]] = (
        "study",
        "num_cases",
        "num_skipped",
        "num_done",
        "num_failed",
        "num_left",
        "seconds",
    )


def repeat_command(address: str, key: str, data: str, store: Path) -> str:
    """The command that runs one case alone.

    >>> repeat_command("fcn/simulate", '{"width":3}', "", DEFAULT_STORE)
    'hessmap study run fcn/simulate --case \\'{"width":3}\\''
    """
    words = ["hessmap", "study", "run", address, "--case", key]
    words += ["--data", data] if data else []
    words += ["--store", str(store)] if store != DEFAULT_STORE else []
    return shlex.join(words)
