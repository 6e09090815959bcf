"""How fast are studies? Cases a second through worker processes, and answers from a store of a million records.

    python benchmarks/study_store.py [--records 1000000]

Writes ``benchmarks/results/study_store.json`` beside the environment it ran in.
"""

from __future__ import annotations

import argparse
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hessmap.progress import Progress
from hessmap_research.runner.engines import num_cores
from hessmap_research.runner.run import run
from hessmap_research.runner.store import StudyStore
from hessmap_research.studies import Case, Lines, Series, Study, View, grid

NUM_CASES = 10_000
WANTED = {"processes_per_second": 1500.0, "list_seconds": 1.0, "show_seconds": 3.0, "help_seconds": 0.5}
_ADDRESS = "study_store:TRIVIAL"
_FILL = """
    INSERT INTO result (study_id, data, data_hash, case_key, status, record, error, attempts, seconds, finished,
                        provenance_id)
    VALUES (?, '', '', ?, 'done', ?, NULL, 1, 0.001, '2026-01-01T00:00:00Z', ?)
"""


def square(case: Case) -> dict[str, Any]:
    return {"square": case["width"] ** 2}


TRIVIAL = Study(
    name="bench/trivial",
    question="How many trivial cases go through in a second?",
    reference="none",
    cases=grid(width=range(NUM_CASES)),
    measure=square,
    view=View(
        figures=(Lines(title="square", x="width", series=(Series("square", points="square"),)),),
        table=("width", "square"),
    ),
    seconds=1e-5,
)


class StoringTimes(Progress):
    """Remembers when each outcome was stored, which leaves the start of the processes out."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def advance(self, done: int, note: str = "") -> None:
        self.times.append(time.perf_counter())


def throughput(store: Path, engine: Any) -> dict[str, float]:
    watcher = StoringTimes()
    started = time.perf_counter()
    summary = run(_ADDRESS, store, engine=engine, progress=watcher)
    assert summary.num_done == NUM_CASES
    seconds = time.perf_counter() - started
    steady = (NUM_CASES - 1) / (watcher.times[-1] - watcher.times[0])
    per_second = {"per_second": NUM_CASES / seconds, "steady_per_second": steady}
    workers = num_cores() if engine == "processes" else 1
    return {"num_cases": NUM_CASES, "workers": workers, "seconds": seconds, **per_second}


def fill(path: Path, num_records: int) -> float:
    """A store of many records: 100 studies of equal size, and the trivial one with all of its cases."""
    started = time.perf_counter()
    run(_ADDRESS, path)
    with StudyStore(path) as store:
        studies = [store.study_id(f"bench/filler-{place}", 1) for place in range(100)]
    client = sqlite3.connect(path)
    (provenance_id,) = client.execute("SELECT min(id) FROM provenance").fetchone()
    rows = (
        (studies[place % 100], f'{{"seed":{place},"width":{place % 977}}}', f'{{"square":{place**2}}}', provenance_id)
        for place in range(num_records - NUM_CASES)
    )
    with client:
        client.executemany(_FILL, rows)
    client.close()
    return time.perf_counter() - started


def command_seconds(*words: str, rounds: int = 3) -> tuple[float, float]:
    """The best wall time of a command in a process of its own, and the processor time of that round."""
    program = [sys.executable, "-m", "hessmap", *words]
    search = os.pathsep.join(filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH"))))
    variables = {**os.environ, "PYTHONPATH": search}
    times = []
    for _ in range(rounds):
        started, before = time.perf_counter(), _children_seconds()
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, env=variables)
        times.append((time.perf_counter() - started, _children_seconds() - before))
    return min(times)


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def answers(path: Path, num_records: int) -> dict[str, Any]:
    row: dict[str, Any] = {"num_records": num_records, "fill_seconds": fill(path, num_records)}
    row["megabytes"] = path.stat().st_size / 2**20
    with StudyStore(path) as opened:
        started = time.perf_counter()
        opened.require_sound()
        row["check_seconds"] = time.perf_counter() - started
    commands = {"list": ("study", "list"), "show": ("study", "show", _ADDRESS), "help": ("--help",)}
    for name, words in commands.items():
        store = ("--store", str(path)) if name != "help" else ()
        row[f"{name}_seconds"], row[f"{name}_processor_seconds"] = command_seconds(*words, *store)
    return row


def main() -> None:
    from harness import environment, write  # here, because it loads torch, and workers import this file for its study

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    num_records = parser.parse_args().records
    where = environment()
    with tempfile.TemporaryDirectory() as folder:
        inline, processes = (throughput(Path(folder) / f"{name}.sqlite", name) for name in ("inline", "processes"))
        stored = answers(Path(folder) / "large.sqlite", num_records)
    found = {**stored, "processes_per_second": processes["per_second"]}
    passes = {
        name: found[name] >= wanted if name.endswith("per_second") else found[name] <= wanted
        for name, wanted in WANTED.items()
    }
    for name, wanted in WANTED.items():
        print(f"{name}: {found[name]:.4g}, wanted {wanted:g}: {'passes' if passes[name] else 'FAILS'}")
    cases = [{"engine": "inline", **inline}, {"engine": "processes", **processes}, {"store": stored}]
    write("study_store", where, [*cases, {"wanted": WANTED, "passes": passes}])


if __name__ == "__main__":
    main()
