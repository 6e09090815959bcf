"""What every benchmark shares: rounds that ours and the peers take in turn, in one process, and a JSON file that says
where it ran."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from hessmap.records import provenance

RESULTS = Path(__file__).parent / "results"
ROUNDS = 3
CLOCK = os.environ.get("HESSMAP_BENCH_CLOCK", "wall")


def best_seconds(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The best of several rounds."""
    return min(timed(work)[0] for _ in range(rounds))


def seconds_in_turn(
    works: Mapping[str, Callable[[], Any]], rounds: int = ROUNDS
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Every work the same number of rounds, taken in turn, and what the last round of each gave.

    Of each the best, the median, the spread (largest less smallest, over the median), and all rounds in order.
    """
    seconds: dict[str, list[float]] = {name: [] for name in works}
    values: dict[str, Any] = {}
    for _ in range(rounds):
        for name, work in works.items():
            spent, values[name] = timed(work)
            seconds[name].append(spent)
    return {name: summary(spent) for name, spent in seconds.items()}, values


def summary(seconds: list[float]) -> dict[str, Any]:
    """
    >>> summary([3.0, 1.0, 2.0])
    {'best': 1.0, 'median': 2.0, 'spread': 1.0, 'rounds': [3.0, 1.0, 2.0]}
    """
    middle = median(seconds)
    return {"best": min(seconds), "median": middle, "spread": (max(seconds) - min(seconds)) / middle, "rounds": seconds}


def speedups(seconds: Mapping[str, Mapping[str, Any]], ours: str, peer: str) -> dict[str, float]:
    """Of ours over the peer, best against best and median against median."""
    return {key: seconds[peer][key] / seconds[ours][key] for key in ("best", "median")}


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = now()
    result = work()
    return now() - start, result


def now() -> float:
    """Seconds of the clock; with HESSMAP_BENCH_CLOCK=processor those of the processor, of this process and of its
    children that ended, which hold on one thread of a machine that other programs share."""
    return processor_now() if CLOCK == "processor" else time.perf_counter()


def processor_now() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def environment() -> dict[str, Any]:
    """The machine, its load and the versions; ``load_before`` far above zero spoils a measurement."""
    return {
        "processor": _processor(),
        "num_cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", "not set"),
        "clock": CLOCK,
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


def forget_peak(give_back: bool = True) -> int:
    """Give back what is free, set the peak to what is held now, and say that."""
    if give_back:
        ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()
