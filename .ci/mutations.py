"""Which small faults of the source would no test notice?

A sample of one-token faults (``mutants.py``), drawn with a fixed seed from each folder of ``TESTS``, is put one by one
into a temporary copy of the project. The tests of the folder that run the line are run there in one process, the quick
ones first, until one fails. What no test notices is a survivor: an equal program, or a missing test. Which tests run
which line is measured once, in the same copy. What is found is kept in ``.matrix/``: a run that was stopped goes on.

``--again`` runs the survivors once more, with the tests of now. ``--write`` stores counts and survivors in
``.ci/mutations.json`` and keeps the answers that were written there by hand.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mutants import Mutant, mutants_of
from tests_of_copies import Measured, measured_lines, run_in_copy

ROOT = Path(__file__).resolve().parent.parent
STATE, OUTCOME = ROOT / ".matrix" / "mutations", ROOT / ".ci" / "mutations.json"
LOG = STATE / f"log-{os.getpid()}.txt"
LIBRARY, RESEARCH = "src/hessmap", "research/src/hessmap_research"
CURVATURE = ["tests/curvature", "tests/layers/test_kinds_of_layers.py"]
RUNNER = [
    "worker_processes",
    "rows_and_verdicts",
    "store",
    "study_encoding",
    "study_registry",
    "study_run",
    "claims",
    "model_cache",
]
# Where the faults are made -> the tests that should notice; the doctests of the folder join them.
TESTS = {
    f"{LIBRARY}/theory": ["tests/theory"],
    f"{LIBRARY}/measurement": ["tests/measurement", "tests/layers/test_layer_measurements.py"],
    f"{LIBRARY}/hessians": CURVATURE,
    f"{LIBRARY}/problem": CURVATURE,
    f"{LIBRARY}/losses": CURVATURE,
    f"{LIBRARY}/exact": ["tests/finite_field"],
    f"{LIBRARY}/maps/curvature_map/dense.py": ["tests/map/test_data_ranks.py"],
    f"{LIBRARY}/certificates": ["tests/certificates"],
    f"{LIBRARY}/applications": ["tests/applications"],
    f"{RESEARCH}/runner": [f"research/tests/studies/test_{name}.py" for name in RUNNER],
}
FIRST, PATIENCE = 8, 30.0  # tests that are tried alone first; processor seconds of tests for one fault


def project_copy(folder: Path) -> Path:
    """The files that git knows or would take, without documents."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if not name.startswith(("docs/", "research/docs/")) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@cache
def measured_once(copy: Path, folder: str) -> Measured:
    """Folders with the same tests are measured together."""
    together = [one for one, tests in TESTS.items() if tests == TESTS[folder]]
    stored = STATE / f"lines-{file_name(together[0])}"
    if not stored.exists():
        found = measured_lines(copy, together, TESTS[folder], LOG)
        stored.write_text(json.dumps(found))
    measured: Measured = json.loads(stored.read_text())
    return measured


def tests_of(measured: Measured, name: str, mutant: Mutant) -> list[str]:
    """The tests that run the mutant's line, quick ones first; for what runs at import, those of the whole file."""
    lines = measured["lines"].get(name, {})
    touched = set(lines.get(str(mutant.line), ()))
    if not touched and str(mutant.line) in lines:
        touched = {test for tests in lines.values() for test in tests}
    return sorted(touched, key=lambda test: measured["seconds"].get(test, 0.0))


def outcome_of(copy: Path, name: str, mutant: Mutant, measured: Measured) -> dict[str, Any]:
    """What the tests say of one fault: killed, survived, or no test runs its line."""
    tests, total, chosen = tests_of(measured, name, mutant), 0.0, []
    for test in tests:
        total += measured["seconds"].get(test, 0.0)
        if total <= PATIENCE or not chosen:
            chosen.append(test)
    path = copy / name
    original = path.read_text()
    path.write_text(mutant.applied_to(original))
    for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        stale.unlink()
    try:
        for part in (chosen[:FIRST], chosen[FIRST:]):
            seconds = sum(measured["seconds"].get(test, 0.0) for test in part)
            code = run_in_copy(copy, part, 4 * seconds + 30, LOG) if part else 0
            if code != 0:
                return {"outcome": "killed" if code is not None else "killed (no end)"}
    finally:
        path.write_text(original)
    if not chosen:
        return {"outcome": "not run by any test"}
    return {"outcome": "survived", "tests": len(chosen), "left_off": len(tests) - len(chosen)}


def sample(folder: str, seed: int) -> list[tuple[str, Mutant]]:
    """All faults of a folder in a random order."""
    source = ROOT / folder
    files = [source] if source.suffix else sorted(source.rglob("*.py"))
    everything = [(str(path.relative_to(ROOT)), mutant) for path in files for mutant in mutants_of(path.read_text())]
    random.Random(f"{seed} {folder}").shuffle(everything)
    return everything


def file_name(folder: str) -> str:
    return f"{folder.replace('/', '-')}.json"


def key_of(name: str, mutant: Mutant) -> str:
    return f"{name}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}"


def known_of(folder: str) -> dict[str, dict[str, Any]]:
    stored = STATE / file_name(folder)
    known: dict[str, dict[str, Any]] = json.loads(stored.read_text()) if stored.exists() else {}
    return known


def remember(folder: str, key: str, outcome: dict[str, Any]) -> None:
    known = {**known_of(folder), key: outcome}
    (STATE / file_name(folder)).write_text(json.dumps(known, indent=1))


def is_killed(outcome: dict[str, Any]) -> bool:
    return str(outcome["outcome"]).startswith("killed")


def faults_left(folder: str, given: argparse.Namespace) -> Iterator[tuple[str, str, Mutant]]:
    """The first faults of the sample that were not tried yet, or the survivors."""
    known = known_of(folder)
    faults = [(key_of(*one), *one) for one in sample(folder, given.seed)]
    if given.again:
        return iter([one for one in faults if one[0] in known and not is_killed(known[one[0]])])
    return iter([one for one in faults[: given.count] if one[0] not in known])


def write(seed: int) -> None:
    """Counts by folder and survivors; the answer to a survivor is written by hand and kept.

    A folder without a fault in this state keeps what is stored of it."""
    stored_before = json.loads(OUTCOME.read_text()) if OUTCOME.exists() else {"counts": {}, "survivors": {}}
    before = stored_before["survivors"]
    state = {folder: known_of(folder) for folder in TESTS}
    counts = {
        folder: dict(sorted(Counter(one["outcome"] for one in known.values()).items()))
        or stored_before["counts"].get(folder, {})
        for folder, known in state.items()
    }
    survivors = {
        key: one
        for key, one in before.items()
        if any(key.startswith(folder) and not known for folder, known in state.items())
    } | {
        key: {**one, "answer": before.get(key, {}).get("answer", "")}
        for known in state.values()
        for key, one in sorted(known.items())
        if not is_killed(one)
    }
    stored = {"seed": seed, "python": sys.version.split()[0], "counts": counts, "survivors": survivors}
    OUTCOME.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")


def run(given: argparse.Namespace) -> None:
    """One fault of each folder in turn, until there are none or the time is up."""
    end = time.monotonic() + given.seconds
    left = {folder: faults_left(folder, given) for folder in given.folders}
    with tempfile.TemporaryDirectory() as temporary:
        copy = project_copy(Path(temporary).resolve())
        while left and time.monotonic() < end:
            for folder in [one for one in left if time.monotonic() < end]:
                fault = next(left[folder], None)
                if fault is None:
                    del left[folder]
                    continue
                key, name, mutant = fault
                outcome = outcome_of(copy, name, mutant, measured_once(copy, folder))
                remember(folder, key, outcome)
                if not is_killed(outcome):
                    print(outcome["outcome"], key, flush=True)


def chosen_folders(names: Sequence[str]) -> list[str]:
    """The folders of the table that the names end: ``theory``, ``maps/curvature_map/dense.py``, or the whole path."""
    found = [[folder for folder in TESTS if f"/{folder}".endswith(f"/{name.strip('/')}")] for name in names]
    for name, folders in zip(names, found, strict=True):
        if not folders:
            raise KeyError(name)
    return list(dict.fromkeys(folder for folders in found for folder in folders)) if names else list(TESTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folders", nargs="*", help="of the table TESTS, by the end of their path; all of them if none is given"
    )
    parser.add_argument("--count", type=int, default=50, help="faults for each folder")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after which it stops; the rest runs next time"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="the survivors, with the lines measured anew")
    parser.add_argument("--write", action="store_true", help="store the outcome in .ci/mutations.json")
    given = parser.parse_args()
    try:
        given.folders = chosen_folders(given.folders)
    except KeyError as error:
        parser.error(f"{error.args[0]} is none of {', '.join(TESTS)}")
    STATE.mkdir(parents=True, exist_ok=True)
    if given.again:
        for stored in STATE.glob("lines-*.json"):
            stored.unlink()
    run(given)
    for folder in given.folders:
        print(f"{folder:40}", dict(Counter(one["outcome"] for one in known_of(folder).values())))
    if given.write:
        write(given.seed)


if __name__ == "__main__":
    main()
