"""What the rows of the matrix gave, in ``benchmarks/results/portability.json``, and the tables that are made of it.

Run as a program, it makes the tables of the page anew.

One entry says what one part of the tests (a folder, the files beside the folders, the examples in docstrings) gave in
one row on one processor. A part that is run again takes the place of what it gave before.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "results" / "portability.json"
PAGE = ROOT / "docs" / "portability.md"
TREES = ("tests", "research/tests")  # a part is a folder of either, of both where they have one of the same name
EXPLORER, BESIDE, DOCTESTS = "explorer", "beside", "doctests"  # its tests; those in no folder; examples in docstrings
NOT_NUMERIC = ("cli", "data_sets", "examples", EXPLORER, "papers", "records", "views")

Entry = dict[str, Any]


def all_parts() -> list[str]:
    """Of the three suites: their folders of tests, the explorer's, the files beside the folders, the doctests."""
    folders = {
        path.relative_to(ROOT / tree).parts[0] for tree in TREES for path in (ROOT / tree).glob("*/**/test_*.py")
    }
    return [*sorted(folders - {"models"}), EXPLORER, BESIDE, DOCTESTS]  # models need an environment of their own


def numeric_parts() -> list[str]:
    return [part for part in all_parts() if part not in NOT_NUMERIC]


def paths_of(part: str) -> list[str]:
    """What pytest is given to run a part."""
    if part == BESIDE:
        return [str(path.relative_to(ROOT)) for tree in TREES for path in sorted((ROOT / tree).glob("test_*.py"))]
    if part == DOCTESTS:
        return ["src", "explorer/src", "research/src"]
    if part == EXPLORER:
        return ["explorer/tests"]
    return [f"{tree}/{part}" for tree in TREES if (ROOT / tree / part).is_dir()]


def counts(report: Path) -> Entry:
    """Of the XML that pytest writes: how many passed, failed and were skipped, the seconds, the red ones."""
    found: Entry = {"passed": 0, "failed": 0, "skipped": 0, "seconds": 0, "red": []}
    for case in ElementTree.parse(report).iter("testcase"):
        kinds = {child.tag for child in case}
        kind = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        found[kind] += 1
        found["seconds"] = round(found["seconds"] + float(case.get("time", 0)), 3)
        if kind == "failed":
            found["red"].append(f"{case.get('classname')}.{case.get('name')}".strip("."))
    return found


def entries() -> list[Entry]:
    return json.loads(FILE.read_text()) if FILE.exists() else []


def green_parts(processor: str, row: str) -> set[str]:
    found = [one for one in entries() if (one["processor"], one["row"]) == (processor, row)]
    return {one["part"] for one in found if one.get("passed") and not one["failed"]}


def keep(new: Iterable[Entry]) -> None:
    """Put entries into the file, in the place of those of the same row, part and processor, and into the page."""
    FILE.touch()
    with FILE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # rows may run side by side
        old = json.loads(file.read() or "[]")
        kept = {tuple(one[key] for key in ("processor", "row", "part")): one for one in [*old, *new]}
        lines = ",\n".join(json.dumps(kept[key]) for key in sorted(kept))
        file.seek(0)
        file.truncate()
        file.write(f"[\n{lines}\n]\n")
        file.flush()
        write_page()


def row_of_table(found: Sequence[Entry], wanted: Sequence[str]) -> tuple[str, str]:
    """What ran of the wanted parts with its counts, and what did not."""
    if same := [one["same_bits_as"] for one in found if "same_bits_as" in one]:
        return f"the same bits as `{same[0]}`: not run again", ""
    sums = Counter({kind: sum(one[kind] for one in found) for kind in ("passed", "failed", "skipped")})
    said = ", ".join(f"{number:,} {kind}" for kind, number in sums.items() if number or kind == "passed")
    said += "; of each: " + ", ".join(f"`{one['part']}` {one['passed']:,}" for one in found)
    missing = [part for part in wanted if part not in {one["part"] for one in found}]
    return said, ", ".join(f"`{part}`" for part in missing) or "nothing"


def tables() -> dict[str, str]:
    """Of the page: the rows of other processors, and those of other versions."""
    by_row: dict[tuple[str, str], list[Entry]] = {}
    for one in entries():
        by_row.setdefault((one["processor"], one["row"]), []).append(one)
    made: Mapping[str, list[str]] = {
        "processors": ["| processor | row | result | not run | commits |", "| --- | --- | --- | --- | --- |"],
        "versions": [
            "| row | Python | torch | numpy | scipy | python-flint | result | not run | commits |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ],
    }
    for (processor, row), found in sorted(by_row.items()):
        commits = ", ".join(dict.fromkeys(f"`{one['commit']}`" for one in found))
        if found[0]["what"] == "portable":
            cells = [processor, f"`{row}`", *row_of_table(found, numeric_parts()), commits]
            made["processors"].append(f"| {' | '.join(cells)} |")
        else:
            versions = found[0]["versions"]
            names = [versions[name] for name in ("python", "torch", "numpy", "scipy", "python-flint")]
            cells = [f"`{row}`", *names, *row_of_table(found, all_parts()), commits]
            made["versions"].append(f"| {' | '.join(cells)} |")
    return {name: "\n".join(lines) for name, lines in made.items()}


def page_with_tables(page: str) -> str:
    """The page with its tables made anew, each between the comments that name it."""
    for name, table in tables().items():
        pattern = rf"(<!-- table: {name} -->\n).*?(<!-- end -->)"
        page = re.sub(pattern, lambda match, table=table: f"{match[1]}{table}\n{match[2]}", page, flags=re.DOTALL)
    return page


def write_page() -> None:
    PAGE.write_text(page_with_tables(PAGE.read_text()))


if __name__ == "__main__":
    write_page()
