"""Small studies for the tests: they are addressed as "toy_studies:NAME" and are no part of the project's listing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from hessmap_research.studies import Case, Check, Lines, Series, Study, View, grid

VIEW = View(
    figures=(Lines(title="square", x="width", series=(Series("square", line="predicted", points="square"),)),),
    table=("width", "square"),
)


def _toy(name: str, cases: Any, measure: Any, **more: Any) -> Study:
    return Study(
        name=f"toy/{name}",
        question="Is the square the square?",
        reference="arithmetic",
        cases=cases,
        measure=measure,
        view=VIEW,
        **more,
    )


def square(case: Case) -> dict[str, Any]:
    return {"square": case["width"] ** 2, "predicted": case["width"] ** 2}


def almost_square(case: Case) -> dict[str, Any]:
    return {**square(case), "square": -1}


def square_or_fail(case: Case) -> dict[str, Any]:
    if case["width"] % 4 == 3:
        raise ArithmeticError(f"{case['width']} is one below a multiple of four")
    return square(case)


def _scratch() -> Path:
    """A folder of the test, through which cases tell what they did."""
    return Path(os.environ["TOY_SCRATCH"])


def _say(what: str) -> None:
    with (_scratch() / "said").open("a") as file:
        file.write(f"{what}\n")


def deadly(case: Case) -> dict[str, Any]:
    """Case 5 kills its worker every time; case 2 the first time."""
    width = case["width"]
    _say(f"{width}")
    if width == 5 or (width == 2 and (_scratch() / "said").read_text().split().count("2") == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    return square(case)


def gated(case: Case) -> dict[str, Any]:
    """Case 0 ends at once; the others when the test makes a file, so that what is under way is not a matter of time."""
    _say(f"start {case['width']} {os.getpid()}")
    while case["width"] > 0 and not (_scratch() / "gate").exists():
        time.sleep(0.01)
    _say(f"end {case['width']} {os.getpid()}")
    return square(case)


def stuck_in_c(case: Case) -> dict[str, Any]:
    """Holds the interpreter lock for long, so that no thread of the worker can run."""
    import ctypes

    _say(f"start {case['width']} {os.getpid()}")
    ctypes.PyDLL(None).sleep(3600)
    return square(case)


def large(case: Case) -> dict[str, Any]:
    return {**square(case), "text": "x" * 20_000}


def num_threads(case: Case) -> dict[str, Any]:
    import torch

    kept = int(os.environ["MALLOC_TRIM_THRESHOLD_"])
    return {"environment": os.environ["OMP_NUM_THREADS"], "torch": torch.get_num_threads(), "kept_memory": kept}


def cases_on_data(data: str) -> tuple[dict[str, Any], ...]:
    return grid(width=range(3 if data == "digits" else 5))


SQUARE = _toy("square", grid(width=range(8)), square, checks=(Check("square", "predicted"),))
FAILING = _toy("failing", grid(width=range(8)), square_or_fail)
DEADLY = _toy("deadly", grid(width=range(8)), deadly)
GATED = _toy("gated", grid(width=range(8)), gated, seconds=lambda case: 100.0 if case["width"] else 1e-6)
STUCK = _toy("stuck", grid(width=range(2)), stuck_in_c)
MANY = _toy("many", grid(width=range(2000)), square, seconds=1e-4)
LARGE = _toy("large", grid(width=range(200)), large)
ON_DATA = _toy("on-data", cases_on_data, square, data=("digits", "mnist"))
THREADS = _toy("threads", grid(width=[1]), num_threads, threads=2)
NOT_A_STUDY = 3
