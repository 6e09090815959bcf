"""Which small faults of the library would no test notice, or only the tests of the explorer and the research?

A random sample of one-token faults (``mutants.py``) is put one by one into a temporary copy of the project. Of the
library's tests, those that run the fault's block are run there in one process until one fails, first one of each file,
the quick ones first, for at most ``PATIENCE`` seconds of the processor. What survives is tried with the tests of the
explorer and the research that run the block, for as long again. If one of these notices a fault that the tests
of the library do not, then ``make test`` has a gap: after the tests of the library that were left off were run too, for
at most ``LONG`` seconds, the fault is a breach of the guard. Which tests run which block is measured once for each file
of tests, in a copy with marked sources (``blocks.py``), and again when that file changes. A fault in a block that runs
at import has the tests that run any function of its file, or all tests where it has none. What is found is kept in
``.matrix/``: a run that was stopped goes on.

``--again`` runs the survivors once more, with the tests of now. ``--write`` stores counts, breaches and survivors in
``.ci/mutations.json`` and keeps the answers that were written there by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from blocks import RECORDER, Blocks
from mutants import Mutant, mutants_of
from tests_of_copies import TIME_IS_UP, Measured, measured_blocks, run_in_copy

ROOT = Path(__file__).resolve().parent.parent
STATE, OUTCOME = ROOT / ".matrix" / "mutations", ROOT / ".ci" / "mutations.json"
LOG = STATE / f"log-{os.getpid()}.txt"
LIBRARY, RUNNER = "src/hessmap", "research/src/hessmap_research/runner"
# Where faults are made: every package of the library, and the runner of studies.
FOLDERS = [
    *(str(one.parent.relative_to(ROOT)) for one in sorted((ROOT / LIBRARY).glob("*/__init__.py"))),
    LIBRARY,  # its own files
    RUNNER,
]
# Tests of `make test`, and what `make test-all` adds to them.
DEFAULT, OTHERS = ("tests", "src"), ("explorer", "research")
PATIENCE = 40.0  # processor seconds of tests for one fault, in each of the two
LONG = 600.0  # and of all that was left off, before a fault is a breach of the guard
SLOW_UNIT = 900.0  # most processor seconds of a file of tests


def project_copy(folder: Path) -> Path:
    """The files that git knows or would take."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def units_of(places: Sequence[str]) -> dict[str, list[str]]:
    """Files of tests, each by itself, and the doctests of each folder."""
    found: dict[str, list[str]] = {}
    for path in sorted(path for place in places for path in (ROOT / place).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if "/src/" in f"/{name}":
            if ">>> " in path.read_text():
                found.setdefault(str(path.parent.relative_to(ROOT)), []).append(name)
        elif path.name.startswith("test_") and not name.startswith("tests/models/"):
            found[name] = [name]
    return found


def file_name(name: str) -> str:
    return f"{name.replace('/', '-')}.json"


def hash_of(names: Sequence[str]) -> str:
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()[:16]


class Marked:
    """A copy whose sources have markers, and what the tests run of it."""

    def __init__(self, temporary: Path) -> None:
        self.temporary = temporary
        self.folder = STATE / "blocks"
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = self.folder / "sources.json"
        if not stored.exists():
            stored.write_text(json.dumps(self._texts()))
        texts = json.loads(stored.read_text())  # as they were when the first file of tests was measured
        self.blocks: dict[str, Blocks] = {}
        first = 0
        for name, text in texts.items():
            self.blocks[name] = Blocks(text, first)
            first += self.blocks[name].count
        now = self._texts()
        self.is_as_measured = {name: now.get(name) == text for name, text in texts.items()}
        changed = sum(not same for same in self.is_as_measured.values()) + len(set(now) - set(texts))
        if changed:
            print(f"{changed} sources changed since the tests were measured: any function of theirs counts as run.")
            print(f"Remove {self.folder} to measure all tests again.")
        self._tests: dict[tuple[str, ...], dict[int, list[str]]] = {}
        self.seconds: dict[str, float] = {}

    @staticmethod
    def _texts() -> dict[str, str]:
        paths = [path for place in (LIBRARY, RUNNER) for path in sorted((ROOT / place).rglob("*.py"))]
        return {str(path.relative_to(ROOT)): path.read_text() for path in paths}

    @cached_property
    def copy(self) -> Path:
        copy = project_copy(self.temporary / "marked")
        (copy / "src" / "hessmap_blocks.py").write_text(RECORDER)
        for name, blocks in self.blocks.items():
            if self.is_as_measured[name]:
                (copy / name).write_text(blocks.instrumented())
        return copy

    def measure(self, places: tuple[str, ...], end: float) -> None:
        """Block -> green tests that run it; those that are red with markers alone tell nothing."""
        if places in self._tests:
            return
        units = units_of(places)
        missing = [name for name in units if self._stored(name).get("hash") != hash_of(units[name])]
        if missing:
            print(f"{len(missing)} of {len(units)} files of tests are measured", flush=True)

            def keep(place: int, found: Measured) -> None:
                name = missing[place]
                (self.folder / file_name(name)).write_text(json.dumps({**found, "hash": hash_of(units[name])}))
                if time.monotonic() > end:
                    os._exit(TIME_IS_UP)

            if not measured_blocks(self.copy, [units[name] for name in missing], keep, SLOW_UNIT, LOG):
                raise TimeoutError
        found: dict[int, list[str]] = {}
        for measured in map(self._stored, units):
            self.seconds |= measured["seconds"]
            for test, blocks in measured["blocks"].items():
                if test not in measured["red"]:
                    for block in blocks:
                        found.setdefault(block, []).append(test)
        self._tests[places] = found

    def _stored(self, unit: str) -> Measured:
        path = self.folder / file_name(unit)
        found: Measured = json.loads(path.read_text()) if path.exists() else {}
        return found

    def tests_of(self, name: str, mutant: Mutant, places: tuple[str, ...]) -> list[str]:
        """The tests that run the fault, in the order in which they are tried."""
        tests, blocks = self._tests[places], self.blocks.get(name)
        numbers: Iterable[int] = tests
        if blocks is not None:
            everywhere = range(blocks.first, blocks.first + blocks.count)
            inner = [one for one in everywhere if one not in blocks.at_import]
            number = blocks.of_line.get(mutant.line)
            if self.is_as_measured[name] and number is not None and number not in blocks.at_import:
                numbers = [number]
            elif inner:
                numbers = inner
        return self._in_turn({test for number in numbers for test in tests.get(number, ())})

    def _in_turn(self, tests: set[str]) -> list[str]:
        """The quickest test of each file, then the second of each, and so on: they have little in common."""
        ordered: dict[str, list[str]] = {}
        for test in sorted(tests, key=lambda test: (self.seconds.get(test, 0.0), test)):
            ordered.setdefault(test.split("::")[0], []).append(test)
        places = {test: place for own in ordered.values() for place, test in enumerate(own)}
        return sorted(tests, key=lambda test: (places[test], self.seconds.get(test, 0.0), test))


class Trial:
    """A plain copy into which one fault after the other is put.

    Args:
        copy: Folder of the copy.
        marked: Which tests run what.
    """

    def __init__(self, copy: Path, marked: Marked) -> None:
        self.copy, self.marked = copy, marked
        self._known = STATE / "green.json"
        self.is_green: dict[str, bool] = json.loads(self._known.read_text()) if self._known.exists() else {}

    def outcome_of(self, name: str, mutant: Mutant, end: float) -> dict[str, Any]:
        """What the tests say of one fault: killed, survived, or no test runs its block."""
        own, others = ((*OTHERS[1:],), ()) if name.startswith(RUNNER) else (DEFAULT, OTHERS)
        self.marked.measure(own, end)
        tests = self.marked.tests_of(name, mutant, own)
        near, left = self._within(tests, PATIENCE)
        killer = self._killer(name, mutant, near)
        if killer:
            return {"outcome": "killed", "by": killer}
        found = {"outcome": "survived" if near else "not run by any test", "tests": len(near), "left_off": len(left)}
        if others:
            self.marked.measure(others, end)
            far, unread = self._within(self.marked.tests_of(name, mutant, others), PATIENCE)
            found |= {"others": len(far), "others_left_off": len(unread)}
            other = self._killer(name, mutant, far)
            if other:
                killer = self._killer(name, mutant, self._within(left, LONG)[0])
                if killer:
                    return {"outcome": "killed", "by": killer, "late": True}
                found |= {"outcome": "breach", "by": other}
        return found

    def _within(self, tests: list[str], seconds: float) -> tuple[list[str], list[str]]:
        total, chosen = 0.0, []
        for test in tests:
            total += self.marked.seconds.get(test, 0.0)
            if total <= seconds or not chosen:
                chosen.append(test)
        taken = set(chosen)
        return chosen, [test for test in tests if test not in taken]

    def _killer(self, name: str, mutant: Mutant, tests: list[str]) -> str | None:
        """The first test that fails with the fault and is green without."""
        path = self.copy / name
        original = path.read_text()
        tests = [test for test in tests if self.is_green.get(test, True)]
        while tests:
            seconds = 4 * sum(self.marked.seconds.get(test, 0.0) for test in tests) + 40
            for stale in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
                stale.unlink()
            path.write_text(mutant.applied_to(original))
            try:
                code, red = run_in_copy(self.copy, tests, seconds, LOG)
            finally:
                path.write_text(original)
            if code == 0:
                return None
            if red is None:
                return "no end" if code is None else f"pytest ends with {code}"
            if self._is_green(red):
                return red
            tests = tests[tests.index(red) + 1 :] if red in tests else []
        return None

    def _is_green(self, test: str) -> bool:
        if test not in self.is_green:
            code, _ = run_in_copy(self.copy, [test], 4 * self.marked.seconds.get(test, 0.0) + 40, LOG)
            self.is_green[test] = code == 0
            self._known.write_text(json.dumps(self.is_green, indent=1))
        return self.is_green[test]


def folder_of(name: str) -> str:
    """The folder of the table that a file belongs to."""
    return next(one for one in sorted(FOLDERS, key=len, reverse=True) if name.startswith(f"{one}/"))


def sample(folders: Sequence[str], seed: int) -> list[tuple[str, Mutant]]:
    """All faults of the folders in a random order."""
    files = sorted({path for folder in folders for path in (ROOT / folder).rglob("*.py")})
    names = [name for path in files if folder_of(name := str(path.relative_to(ROOT))) in folders]
    everything = [(name, mutant) for name in names for mutant in mutants_of((ROOT / name).read_text())]
    random.Random(f"{seed} {' '.join(folders)}").shuffle(everything)
    return everything


def key_of(name: str, mutant: Mutant) -> str:
    return f"{name}:{mutant.line} {mutant.kind}: {mutant.before} -> {mutant.after}"


def known() -> dict[str, dict[str, Any]]:
    """Outcomes by fault."""
    stored = STATE / "outcomes.json"
    found: dict[str, dict[str, Any]] = json.loads(stored.read_text()) if stored.exists() else {}
    return found


def remember(key: str, outcome: dict[str, Any]) -> None:
    (STATE / "outcomes.json").write_text(json.dumps({**known(), key: outcome}, indent=1))


def is_killed(outcome: dict[str, Any]) -> bool:
    return outcome["outcome"] == "killed"


def faults_left(given: argparse.Namespace) -> list[tuple[str, str, Mutant]]:
    """The first faults of the sample that were not tried yet, or the survivors."""
    found = known()
    faults = [(key_of(*one), *one) for one in sample(given.folders, given.seed)]
    if given.again:
        return [one for one in faults if one[0] in found and not is_killed(found[one[0]])]
    return [one for one in faults[: given.count] if one[0] not in found]


def counts() -> dict[str, dict[str, int]]:
    """Outcomes by folder."""
    found = {folder: Counter[str]() for folder in FOLDERS}
    for key, one in known().items():
        found[folder_of(key)][one["outcome"]] += 1
    return {folder: dict(sorted(own.items())) for folder, own in found.items()}


def write(seed: int) -> None:
    """Counts by folder, breaches of the guard and survivors; answers to survivors are written by hand and kept."""
    before = json.loads(OUTCOME.read_text())["survivors"] if OUTCOME.exists() else {}
    survivors = {
        key: {**one, "answer": before.get(key, {}).get("answer", "")}
        for key, one in sorted(known().items())
        if not is_killed(one)
    }
    answered = {key: one for key, one in before.items() if one.get("answer") and key not in survivors}
    stored = {
        "seed": seed,
        "python": sys.version.split()[0],
        "tried": len(known()),
        "breaches": [key for key, one in survivors.items() if one["outcome"] == "breach"],
        "counts": counts(),
        "survivors": {**survivors, **{key: one for key, one in answered.items() if key not in known()}},
    }
    OUTCOME.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n")


def run(given: argparse.Namespace) -> None:
    """One fault after the other, until there are none or the time is up."""
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as temporary:
        marked = Marked(Path(temporary).resolve())
        trial = Trial(project_copy(Path(temporary).resolve() / "plain"), marked)
        for key, name, mutant in faults_left(given):
            if time.monotonic() > end:
                break
            try:
                outcome = trial.outcome_of(name, mutant, end)
            except TimeoutError:
                print("the time is up before all files of tests are measured; the next run goes on")
                break
            remember(key, outcome)
            if not is_killed(outcome):
                print(outcome["outcome"], key, outcome.get("by", ""), flush=True)


def chosen_folders(names: Sequence[str]) -> list[str]:
    """The folders of the table that the names end: ``theory``, ``hessmap/maps``, or the whole path."""
    found = [[folder for folder in FOLDERS if f"/{folder}".endswith(f"/{name.strip('/')}")] for name in names]
    for name, folders in zip(names, found, strict=True):
        if not folders:
            raise KeyError(name)
    library = [folder for folder in FOLDERS if folder != RUNNER]
    return list(dict.fromkeys(folder for folders in found for folder in folders)) if names else library


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help=f"by the end of their path; the library if none is given: {FOLDERS}")
    parser.add_argument("--count", type=int, default=200, help="faults, all folders together")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="after which it stops; the rest runs next time"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="the survivors, with the tests of now")
    parser.add_argument("--write", action="store_true", help="store the outcome in .ci/mutations.json")
    given = parser.parse_args()
    try:
        given.folders = chosen_folders(given.folders)
    except KeyError as error:
        parser.error(f"{error.args[0]} is none of {', '.join(FOLDERS)}")
    STATE.mkdir(parents=True, exist_ok=True)
    run(given)
    for folder, own in counts().items():
        print(f"{folder:40}", own)
    breaches = [key for key, one in known().items() if one["outcome"] == "breach"]
    print(f"{len(known())} faults, {len(breaches)} that only the explorer's or the research's tests notice")
    if given.write:
        write(given.seed)


if __name__ == "__main__":
    main()
