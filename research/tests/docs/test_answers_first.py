"""Every study's section of a page begins with its answer: yes, no, open or "it depends" as its verdict has it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from committed import committed

from hessmap_research.runner.registry import find

ROOT = Path(__file__).parents[2]
PAGES = (
    "fully-connected", "convolutional", "layers", "function-rank", "teacher-student", "certificates", "conjectures",
)  # fmt: skip
WORDS = ("Yes", "No", "It depends", "Open")


def sections() -> Iterator[tuple[str, str]]:
    """A study that a heading names, and the first paragraph below it."""
    for page in PAGES:
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        pieces = re.split(r"^##+ (.*)$", text, flags=re.MULTILINE)
        for heading, body in zip(pieces[1::2], pieces[2::2], strict=True):
            named = re.search(r"`([a-z]+/[a-z0-9-]+)`", heading)
            if named:
                yield named.group(1), body.strip().split("\n\n")[0]


SECTIONS = list(sections())


def test_there_is_a_section_for_most_studies() -> None:
    assert len(SECTIONS) > 50


@pytest.mark.parametrize("page", PAGES)
def test_a_page_begins_with_an_answer_or_the_picture_of_it(page: str) -> None:
    _, *paragraphs = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").split("\n\n")
    written = [paragraph for paragraph in paragraphs if not paragraph.startswith(("<!--", "!["))]
    assert written[0].startswith("**"), written[0][:80]


@pytest.mark.parametrize(("name", "paragraph"), SECTIONS, ids=lambda value: value if "/" in value[:20] else "")
def test_a_section_begins_with_the_answer(name: str, paragraph: str) -> None:
    assert paragraph.startswith("**"), paragraph[:80]
    study = find(name)
    if study.question.split(" ", 1)[0] in ("Do", "Does", "Is", "Are"):
        answer = study.answer(committed(name).outcome)
        (word,) = (word for word in WORDS if answer.startswith(word))
        assert paragraph.removeprefix("**").startswith(word), (answer, paragraph[:80])
