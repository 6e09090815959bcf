"""The pages of the site as tests see them: their blocks of code, in order, with the language of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
# A fence with its language and what follows it, or a comment whose code runs and is not shown.
BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>[\w-]*)(?P<options>[^\n]*)\n(?P<code>.*?)^ *(?P=fence) *$"
    r"|^<!-- (?P<hidden>run|slow)\n(?P<setup>.*?)-->",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code: where it stands, its language ("" where none is given), and whether it takes long."""

    page: str
    line: int
    language: str
    title: str
    code: str
    is_slow: bool

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page. ``<!-- slow -->`` in the line before a fence marks the block as one that takes long."""
    text = path.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        if found["hidden"]:
            yield Block(page_name(path), line, "python", "", found["setup"], found["hidden"] == "slow")
            continue
        indent = len(found["indent"])
        code = "\n".join(row[indent:] for row in found["code"].splitlines()) + "\n"
        title = re.search(r'title="([^"]+)"', found["options"])
        is_slow = text[: found.start()].rstrip().endswith("<!-- slow -->")
        yield Block(page_name(path), line, found["language"], title[1] if title else "", code, is_slow)
