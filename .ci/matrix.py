"""The tests on other machines than this one, as far as one machine can stand for others.

``portable`` runs the numeric tests with the kernels of older processors, on one and two threads, with three seeds of
hypothesis. ``versions`` runs the whole suite on the oldest and newest dependencies and on every Python that is here.
Each row is one run of pytest, one after the other; its output goes to ``.matrix/``, a line of it to the table.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / ".matrix"
NOT_NUMERIC = ("cli", "data_sets", "examples", "results", "studies", "views")
MEMORY = ("curvature/test_memory.py", "layers/test_layer_memory.py")  # bytes, not numbers

KERNELS = {
    "aten-default": {"ATEN_CPU_CAPABILITY": "default"},
    "aten-avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "all-oldest": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    },
}
THREADS = (1, 2)
SEEDS = (1, 2, 3)
PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True)
class Run:
    """One run of pytest: its name, the Python that runs it, what it runs, and the environment that is added."""

    name: str
    python: Path
    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)

    def carried_out(self) -> tuple[bool, str]:
        """Whether all was green, and a line that says what was."""
        log, started = OUTPUT / f"{self.name}.log", time.monotonic()
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={OUTPUT / 'tmp'}"]
        with log.open("w") as file:
            code = subprocess.run(
                [*command, *self.arguments],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        lines = log.read_text().splitlines()
        counts = re.sub(r" in .*", "", lines[-1].strip("= ")) if lines else "no output"
        red = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        line = f"{self.name:22} {counts} ({time.monotonic() - started:.0f} s)"
        return code == 0, "\n".join([line, *(f"    {one}" for one in red[:20])])


def portable_runs(processes: int, chosen: Sequence[str]) -> Iterator[Run]:
    """Every kind of kernels on every number of threads; the seeds take turns."""
    tests = ["tests", *(f"--ignore=tests/{one}" for one in (*NOT_NUMERIC, *MEMORY))]
    combinations = [(kernels, threads) for threads in THREADS for kernels in KERNELS]
    for place, (kernels, threads) in enumerate(combinations):
        seed = SEEDS[place % len(SEEDS)]
        name = f"{kernels}-{threads}-seed{seed}"
        lanes = ["--numprocesses", str(max(1, processes // threads)), "--dist", "loadfile"]
        added = {**KERNELS[kernels], "OMP_NUM_THREADS": str(threads)}
        if is_chosen(name, chosen):
            yield Run(name, Path(sys.executable), [*tests, *lanes, f"--hypothesis-seed={seed}"], added)


def version_runs(processes: int, chosen: Sequence[str]) -> Iterator[Run]:
    """The oldest versions on the oldest Python, the newest on all of them."""
    names = [f"{PYTHONS[0]}-oldest", *(f"{python}-newest" for python in PYTHONS)]
    for wanted in (name for name in names if is_chosen(name, chosen)):
        python, kind = wanted.split("-")
        if (interpreter := found_python(python)) is None:
            print(f"{wanted:22} not run: there is no Python {python} here")
            continue
        # An old package warns of what newer ones below it have deprecated since.
        warnings = ["-W", "ignore::DeprecationWarning"] if kind == "oldest" else []
        lanes = ["--numprocesses", str(processes), "--dist", "loadfile"]
        yield Run(wanted, environment(wanted, interpreter, kind), [*lanes, *warnings], {"OMP_NUM_THREADS": "1"})


def is_chosen(name: str, chosen: Sequence[str]) -> bool:
    return not chosen or any(part in name for part in chosen)


def found_python(version: str) -> Path | None:
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    return pyenv[-1] if pyenv else Path(on_path) if on_path else None


def environment(name: str, interpreter: Path, kind: str) -> Path:
    """The Python of an environment that holds this project with the oldest or the newest of what it needs."""
    folder = OUTPUT / f"venv-{name}"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", folder], check=True)
    constraints = OUTPUT / f"constraints-{name}.txt"
    constraints.write_text("\n".join(oldest()) if kind == "oldest" else "")
    install = [python, "-m", "pip", "install", "--quiet", "--quiet", "--upgrade", "--upgrade-strategy", "eager"]
    subprocess.run([*install, "--constraint", constraints, "--editable", f"{ROOT}[dev]"], check=True)
    return python


def oldest() -> list[str]:
    """The lower bounds of pyproject.toml as pins."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    return [re.sub(r"\[.*?\]", "", one).replace(">=", "==") for one in needed if ">=" in one]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["portable", "versions"])
    parser.add_argument("names", nargs="*", help="rows to run, by a part of their names; all of them if none is given")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of pytest, for a row of one thread")
    given = parser.parse_args()
    OUTPUT.mkdir(exist_ok=True)
    rows = portable_runs if given.what == "portable" else version_runs
    all_green = True
    for row in rows(given.processes, given.names):
        is_green, line = row.carried_out()
        all_green &= is_green
        print(line, flush=True)
    sys.exit(not all_green)


if __name__ == "__main__":
    main()
