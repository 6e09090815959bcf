"""What every benchmark shares: best of several rounds in one process, and a JSON file that says where it ran."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hessmap.results import provenance

RESULTS = Path(__file__).parent / "results"
ROUNDS = 3


def best_seconds(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The best of several rounds."""
    return min(timed(work)[0] for _ in range(rounds))


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def environment() -> dict[str, Any]:
    """The machine, its load and the versions; ``load_before`` far above zero spoils a measurement."""
    return {
        "processor": _processor(),
        "num_cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
        "versions": provenance().versions,
        "rounds": ROUNDS,
    }


def write(name: str, where: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    """Put the report beside the others; ``where`` is the environment taken before the measurements."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"environment": where, "cases": cases}, indent=1) + "\n")
    print(f"written to {path.relative_to(RESULTS.parent.parent)}")


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor()


def peak_bytes() -> int:
    """The most memory this process held since the last ``forget_peak`` (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def forget_peak() -> int:
    """Give back what is free, set the peak to what is held now, and say that."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()
