"""Phrases that readers stumble over do not return: patterns over sources and pages, each with its plain form."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# phrase: what to write
PHRASES = {
    r"\banew\b": "again",
    r"\bheld against\b": "compared with",
    r"\bas the paper has it\b": "as in the paper",
    r"\b(is|and|are) no bounds?\b": "is not a bound",
    r"\bs of a core\b": "CPU-seconds",
    r"\bbut for\b": "except for",
    r"\bso many\b": "that many, or the number",
    r"\bsome (ten|hundred|thousand)\b": "about ten, a few hundred",
    r"\bunless given\b": "Default: ..",
    r"\blinear twin\b": "the network without activations",
    r"\bkinds? of truth\b": "kind",
    r"\bwhoever\b": "if you ..",
    r"\bphotographs\b": "CIFAR-10 images",
}
SOURCES = (
    ("src", "*.py"),
    ("src", "*.j2"),
    ("explorer/src", "*.py"),
    ("explorer/src", "*.js"),
    ("explorer/src", "*.j2"),
    ("docs", "*.md"),
    ("examples", "*.py"),
    ("research/src", "*.py"),
    ("research/src", "*.toml"),
    ("research/docs", "*.md"),
)


def files() -> list[Path]:
    found = [path for folder, pattern in SOURCES for path in (ROOT / folder).rglob(pattern)]
    return [path for path in [*found, ROOT / "README.md", ROOT / "CHANGELOG.md"] if "vendor" not in path.parts]


def phrases_in(text: str) -> set[str]:
    plain = " ".join(text.split())  # phrases that a line break divides count too
    return {phrase for phrase in PHRASES if re.search(phrase, plain, re.IGNORECASE)}


def test_no_listed_phrase_is_in_a_source_or_page() -> None:
    found = {path.relative_to(ROOT).as_posix(): phrases_in(path.read_text(encoding="utf-8")) for path in files()}
    new = {f"{name}: {phrase} (write: {PHRASES[phrase]})" for name, phrases in found.items() for phrase in phrases}
    assert new == set(), "\n".join(sorted(new))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The weights are drawn anew.", {r"\banew\b"}),
        ("equal but\nfor rounding", {r"\bbut for\b"}),
        ("renewed; a bound; not a bound", set()),
        ("It is no bound.", {r"\b(is|and|are) no bounds?\b"}),
    ],
)
def test_phrases_are_found_across_lines_and_in_whole_words(text: str, expected: set[str]) -> None:
    assert phrases_in(text) == expected
