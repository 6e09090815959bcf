"""The tests on other machines than this one, as far as one machine can stand for others.

``portable`` runs the numeric tests with the kernels of older processors, on one and two threads, with three seeds of
hypothesis. ``versions`` runs all three suites on the oldest and newest dependencies and on every Python that is here.
Each row is one run of pytest for each part of the tests, one after the other; their output goes to ``.matrix/``, what
they gave to the record and to the tables of ``docs/portability.md`` (``portability_record.py``).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import portability_record as record

ROOT = Path(__file__).resolve().parent.parent
OUTPUT = ROOT / ".matrix"
PROJECTS = [ROOT / folder / "pyproject.toml" for folder in ("", "explorer", "research")]
SOURCES = ("src", "tests", "explorer/src", "explorer/tests", "research/src", "research/tests")
MEMORY = ("curvature/test_memory.py", "layers/test_layer_memory.py")  # bytes, not numbers

KERNELS = {
    "native": {},
    "aten-default": {"ATEN_CPU_CAPABILITY": "default"},
    "aten-avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "openblas-haswell": {"OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR"},
    "all-oldest": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Prescott",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    },
}
THREADS = (1, 2)
SEEDS = (1, 2, 3)
PYTHONS = ("3.11", "3.12", "3.13")
PACKAGES = ("torch", "numpy", "scipy", "python-flint")


@dataclass(frozen=True)
class Row:
    """One kind of runs of pytest: the Python that runs it, its arguments, the environment that is added."""

    what: str
    name: str
    python: Path
    arguments: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)

    def output_of(self, *command: str | Path) -> str:
        """What the row's Python prints in the row's environment."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(
            [self.python, *command], env=environment, check=True, capture_output=True, text=True
        ).stdout

    def is_green(self, part: str) -> bool:
        """Run a part of the tests, keep what it gave, print a line and the red tests."""
        label = f"{self.name}.{part}"
        log, report = OUTPUT / f"{label}.log", OUTPUT / f"{label}.xml"
        report.unlink(missing_ok=True)
        command = [self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        where = {"commit": commit(), **self.place}  # before it: the tree may move while it runs
        with log.open("w") as file:
            code = subprocess.run(
                [*command, f"--basetemp={OUTPUT / 'tmp' / label}", *self.arguments, *record.paths_of(part)],
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if not report.exists():
            print(f"{label}: pytest ended with {code} and without a report, see {log}", flush=True)
            return False
        found = record.counts(report)
        record.keep([{**where, "part": part, **found}])
        print(f"{label:36} {found['passed']} passed, {found['failed']} failed ({found['seconds']:.0f} s)")
        print(*(f"    {red}\n" for red in found["red"]), sep="", end="", flush=True)
        return code == 0

    @property
    def bits(self) -> str:
        return self.output_of(Path(__file__).with_name("kernel_bits.py"))

    @property
    def place(self) -> record.Entry:
        """Where it runs, as the record says it."""
        code = f"import importlib.metadata as m, json; print(json.dumps({{p: m.version(p) for p in {PACKAGES}}}))"
        version = self.output_of("-c", "import platform; print(platform.python_version())").strip()
        versions = {"python": version, **json.loads(self.output_of("-c", code))}
        return {"processor": processor(), "what": self.what, "row": self.name, "versions": versions}


def portable_rows(processes: int, chosen: Sequence[str]) -> Iterator[Row]:
    """Every kind of kernels on every number of threads; the seeds take turns. Kernels that are this processor's own
    need no run."""
    for threads in THREADS:
        for place, (kernels, variables) in enumerate(KERNELS.items()):
            seed = SEEDS[(place + threads) % len(SEEDS)]
            name = f"{kernels}-{threads}-seed{seed}"
            arguments = [*(f"--ignore=tests/{one}" for one in MEMORY), *lanes(processes // threads)]
            added = {**variables, "OMP_NUM_THREADS": str(threads)}
            row = Row("portable", name, Path(sys.executable), [*arguments, f"--hypothesis-seed={seed}"], added)
            if not is_chosen(name, chosen):
                continue
            own = replace(row, environment={"OMP_NUM_THREADS": str(threads)})
            if kernels != "native" and row.bits == own.bits:
                print(f"{name}: the same bits as native-{threads}, not run")
                record.keep([{**row.place, "part": "", "commit": commit(), "same_bits_as": f"native-{threads}"}])
            else:
                yield row


def version_rows(processes: int, chosen: Sequence[str]) -> Iterator[Row]:
    """The oldest versions on the oldest Python, the newest on all of them."""
    names = [f"{PYTHONS[0]}-oldest", *(f"{python}-newest" for python in PYTHONS)]
    for wanted in (name for name in names if is_chosen(name, chosen)):
        version, kind = wanted.split("-")
        if (interpreter := found_python(version)) is None:
            print(f"{wanted:24} not run: there is no Python {version} here")
            continue
        # An old package warns of what newer ones below it have deprecated since.
        warnings = ["-W", "ignore::DeprecationWarning"] if kind == "oldest" else []
        python = environment(wanted, interpreter, kind)
        yield Row("versions", wanted, python, [*lanes(processes), *warnings], {"OMP_NUM_THREADS": "1"})


def lanes(processes: int) -> list[str]:
    return ["--numprocesses", str(processes), "--dist", "loadfile"] if processes > 1 else []


def is_chosen(name: str, chosen: Sequence[str]) -> bool:
    return not chosen or any(part in name for part in chosen)


def found_python(version: str) -> Path | None:
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    on_path = shutil.which(f"python{version}")
    return pyenv[-1] if pyenv else Path(on_path) if on_path else None


def environment(name: str, interpreter: Path, kind: str) -> Path:
    """The Python of an environment that holds this project with the oldest or the newest of what it needs."""
    folder = OUTPUT / f"venv-{name}"
    python, installed = folder / "bin" / "python", folder / "installed"
    project = "\n".join(path.read_text() for path in PROJECTS)
    if installed.exists() and installed.read_text() == project:
        return python
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    constraints = OUTPUT / f"constraints-{name}.txt"
    constraints.write_text("\n".join(oldest()) if kind == "oldest" else "")
    install = [python, "-m", "pip", "install", "--quiet", "--quiet", "--upgrade", "--upgrade-strategy", "eager"]
    packages = [f"--editable={ROOT}[dev]", *(f"--editable={path.parent}" for path in PROJECTS[1:])]
    subprocess.run([*install, "--constraint", constraints, *packages], check=True)
    installed.write_text(project)
    return python


def oldest() -> list[str]:
    """The lower bounds of all three packages as pins."""
    projects = [tomllib.loads(path.read_text())["project"] for path in PROJECTS]
    extras = [extra for project in projects for extra in project.get("optional-dependencies", {}).values()]
    needed = [one for group in [*(project["dependencies"] for project in projects), *extras] for one in group]
    return [re.sub(r"\[.*?\]", "", one).replace(">=", "==") for one in needed if ">=" in one]


def processor() -> str:
    """The model, and whether it has the two families of vector instructions by which kernels are chosen."""
    text = Path("/proc/cpuinfo").read_text()
    (name,) = re.findall(r"model name\s*: (.*)", text)[:1]
    flags = re.findall(r"flags\s*: (.*)", text)[0].split()
    has = [label for flag, label in (("avx2", "AVX2"), ("avx512f", "AVX-512")) if flag in flags]
    return f"{name} ({', '.join(has) or 'without AVX2'})"


def commit() -> str:
    """What is run, with a plus where the sources or tests are not as committed."""
    git = ["git", "-C", str(ROOT)]
    said = subprocess.run([*git, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, check=True).stdout
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *SOURCES], check=False).returncode
    return said.strip() + "+" * bool(changed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["portable", "versions"])
    parser.add_argument("names", nargs="*", help="rows to run, by a part of their names; all of them if none is given")
    parser.add_argument("--parts", nargs="+", default=[], choices=record.all_parts(), help="folders of tests")
    parser.add_argument("--missing", action="store_true", help="only the parts that the record does not have as green")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="of pytest, for a row of one thread")
    given = parser.parse_args()
    (OUTPUT / "tmp").mkdir(parents=True, exist_ok=True)
    is_portable = given.what == "portable"
    rows = portable_rows(given.processes, given.names) if is_portable else version_rows(given.processes, given.names)
    parts = given.parts or (record.numeric_parts() if is_portable else record.all_parts())
    all_green = True
    for row in rows:
        green = record.green_parts(processor(), row.name) if given.missing else set()
        for part in (part for part in parts if part not in green):
            all_green &= row.is_green(part)
    sys.exit(not all_green)


if __name__ == "__main__":
    main()
