"""The registry: one TOML file for each paper, and the outcomes of all studies as ``results/`` holds them.

Functions, studies and claims are referred to by name; nothing of them is imported here. The tests compare every name
with what there is, and every status with the stored outcomes.

The names of items: which kinds and numbers each stands for, so that "Figure 7" finds "Figures 7, 8".
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from hessmap.errors import InvalidInput, UnknownName, require, sentence, short_text, unknown_name
from hessmap.records import Record
from hessmap_research.runner.claims import StudyOutcome, stored_text

_PANEL = r"(?:[a-z]|[ivx]+)(?![a-z0-9])"
_NUMBER = rf"(?:(?:[a-z]\.?)?[0-9]{{1,3}}(?:\.[0-9]{{1,3}})*(?: ?{_PANEL})?|{_PANEL})"
_PART = re.compile(
    rf"(?:(?P<kind>(?![ivx]+\b)[a-z]{{2,}})\.? ?)?(?:(?P<first>{_NUMBER})(?: ?(?:to|-+|–) ?(?P<last>{_NUMBER}))?)?"
)
_SINGULAR_ENDINGS = (("ices", "ix"), ("ies", "y"), ("s", ""))
_SHORT_KINDS = {"thm": "theorem", "eqn": "equation"}  # others are the beginnings of words: fig, eq, prop
_UNNAMED_KIND = "section"

Number = tuple[str, ...]
Status = Literal[
    "proved here",
    "verified",
    "sharpened",
    "corrected",
    "bounded only",
    "conjecture",
    "not reproduced",
    "inconclusive",
    "not run",
]
STATUSES: dict[Status, str] = {
    "proved here": "hessmap has a proof, on a page or in ball arithmetic",
    "verified": "what the paper says was found, at the size that the evidence states",
    "sharpened": "the printed statement holds; more is true and is here",
    "corrected": "as printed it fails, under the paper's own assumptions; the right statement is here and was verified",
    "bounded only": "an upper bound is proved, the value is not",
    "conjecture": "holds in every case that was tried; no proof",
    "not reproduced": "was tried and not found",
    "inconclusive": "was tried and what was run does not decide it",
    "not run": "nothing was tried",
}
_FILES = ("fully_connected", "convolutional", "layers", "functions", "teacher_student")
_OUTCOMES = "verdicts.json"


@dataclass(frozen=True)
class ItemName:
    """``labels`` are kinds with a number each, ``subject`` follows the colon, ``rest`` are words of neither.

    A number is split where digits and letters change and at points: "S9.1" is ("s", "9", "1"). It is empty for a kind
    alone, and a kind is empty where none is named: of an item that is a section, of a question any kind.
    """

    labels: tuple[tuple[str, Number], ...]
    subject: str = ""
    rest: str = ""

    @property
    def kind(self) -> str:
        """That of the first label.

        >>> item_name("Properties 1 to 4").kind, item_name("S9.4: the tangent kernel").kind
        ('property', 'section')
        """
        return self.labels[0][0] or _UNNAMED_KIND

    def finds(self, other: ItemName) -> bool:
        """Whether somebody who asks for this name means the other: the same, a part of it, or the figure of a panel.

        >>> [item_name("Figure 3").finds(item_name(text)) for text in ("Figure 3 B, C", "Figures 2 to 4", "Figure 31")]
        [True, True, False]
        """
        if self.rest or not other.subject.startswith(self.subject):
            return False
        return any(
            (kind or _UNNAMED_KIND).startswith(asked_kind) and (_is_within(number, asked) or _is_panel(asked, number))
            for asked_kind, asked in self.labels
            for kind, number in other.labels
        )


def item_name(text: str) -> ItemName:
    """A name, read: lists, ranges, plural kinds and what stands before a colon.

    >>> item_name("Theorems 6.1, H.1: PAC-Bayes bound").labels
    (('theorem', ('6', '1')), ('theorem', ('h', '1')))
    >>> item_name("Figures S18 to S20").labels
    (('figure', ('s', '18')), ('figure', ('s', '19')), ('figure', ('s', '20')))
    """
    head, _, subject = " ".join(re.sub(r"[()]", " ", text.lower()).split()).partition(":")
    labels: list[tuple[str, Number]] = []
    rest: list[str] = []
    kind = ""
    before: Number = ()
    for part in re.split(r"\s*(?:,|&|\band\b)\s*", head.strip()):
        match = _PART.match(part)
        if match is None or match.end() < len(part):
            rest.append(part[match.end() if match else 0 :].strip())
        if match is None or not match[0]:
            continue
        if match["kind"]:
            kind, before = _singular(match["kind"]), ()
        numbers = list(_numbers(match["first"], match["last"], before)) if match["first"] else [()]
        labels += [(kind, number) for number in numbers]
        before = numbers[-1] if numbers else ()
    return ItemName(tuple(labels), subject.strip(), " ".join(rest))


def _singular(kind: str) -> str:
    """A kind as it is written of one.

    >>> [_singular(word) for word in ("properties", "lemmas", "appendix", "thm")]
    ['property', 'lemma', 'appendix', 'theorem']
    """
    for ending, of_one in _SINGULAR_ENDINGS:
        if kind.endswith(ending):
            kind = kind.removesuffix(ending) + of_one
            break
    return _SHORT_KINDS.get(kind, kind)


def _numbers(first: str, last: str | None, before: Number) -> Iterator[Number]:
    """What "16 to 18", "B.1" or, after 3 B, a mere "C" stands for."""
    start = _split(first)
    if before and before[-1].isalpha() and len(start) == 1 and start[0].isalpha():
        start = (*before[:-1], *start)
    if last is None:
        yield start
        return
    *stem, low = start
    high = _split(last)[-1]
    if low.isdigit() and high.isdigit():
        yield from ((*stem, str(number)) for number in range(int(low), int(high) + 1))
    elif len(low) == len(high) == 1:
        yield from ((*stem, chr(code)) for code in range(ord(low), ord(high) + 1))


def _split(number: str) -> Number:
    return tuple(re.findall("[0-9]+|[a-z]+", number))


def _is_within(number: Number, larger: Number) -> bool:
    return number[: len(larger)] == larger


def _is_panel(asked: Number, number: Number) -> bool:
    """Whether 4b is asked for and the item is all of 4."""
    added = asked[len(number) :]
    return bool(number) and _is_within(asked, number) and all(piece.isalpha() for piece in added)


@dataclass(frozen=True, eq=False, repr=False)
class Item(Record):
    """A theorem, lemma, figure or table of a paper.

    ``claim`` is in our words. ``functions`` are dotted names of hessmap or hessmap_research; ``studies`` and ``tests``
    (paths in the repository) are where it is compared with something. ``outcomes`` are those of studies that the status
    needs: the study, the id of a claim and its outcome ("holds", "does not hold" or "inconclusive"), or the study,
    "cases" and "agrees". ``numbers`` are rows of a table: what, the paper's number (empty where it prints none)
    and ours. ``left`` is what remains to be run,
    whatever the status: what is verified is so at the size that ``evidence`` states, and a larger run may be left.
    ``also`` are other names, of sections and equations that state the same. ``row_filters`` choose the stored rows that
    the item is about, by a study, a field and one of its values; a field that is named twice has either value.
    """

    paper: int
    item: str
    claim: str
    status: Status
    evidence: str = ""
    functions: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    outcomes: tuple[tuple[str, str, str], ...] = ()
    page: str = ""
    numbers: tuple[tuple[str, str, str], ...] = ()
    left: str = ""
    also: tuple[str, ...] = ()
    row_filters: tuple[tuple[str, str, str], ...] = ()
    summary_fields: ClassVar[tuple[str, ...]] = ("paper", "item", "status", "claim")

    @property
    def kind(self) -> str:
        """What its name begins with, of one: theorem, lemma, figure, .. A number alone is that of a section.

        >>> Item(0, "Figures S2, S3", "eigenvalues repeat", "verified").kind
        'figure'
        """
        return item_name(self.item).kind

    @property
    def figures(self) -> tuple[str, ...]:
        """Pictures of its studies in ``research/docs``; a study that has none is left out.

        >>> Item(1, "Figure 5", "ranks fall", "verified", studies=("cnn/locality",)).figures
        ('pictures/cnn-locality.svg',)
        """
        return tuple(picture for study in self.studies if (picture := _picture(study)))

    def chosen(self, study: str) -> dict[str, tuple[str, ...]]:
        """The values that the fields of the rows of a study may have.

        >>> fields = (("cnn/locality", "data", "mnist"), ("cnn/locality", "data", "cifar10"))
        >>> Item(1, "Figure 5", "ranks fall", "verified", row_filters=fields).chosen("cnn/locality")
        {'data': ('mnist', 'cifar10')}
        """
        found: dict[str, tuple[str, ...]] = {}
        for _, field, value in (line for line in self.row_filters if line[0] == study):
            found[field] = (*found.get(field, ()), value)
        return found

    @property
    def is_missing(self) -> bool:
        """Nothing was tried, or something remains to be run."""
        return self.status == "not run" or bool(self.left)


@dataclass(frozen=True, eq=False, repr=False)
class Paper(Record):
    """A paper and its items; ``question`` is its main one, ``answer`` the outcome here in one sentence,
    which ``picture`` shows."""

    number: int
    name: str
    title: str
    page: str
    question: str
    answer: str
    picture: str
    items: tuple[Item, ...]
    summary_fields: ClassVar[tuple[str, ...]] = ("number", "name", "title")

    def counts(self) -> dict[Status, int]:
        """How many items have each status that one has, in the order of ``STATUSES``."""
        found = [item.status for item in self.items]
        return {status: found.count(status) for status in STATUSES if status in found}

    def items_named(self, name: str) -> tuple[Item, ...]:
        """The items that a name stands for; several where it is that of a part of each.

        >>> [item.item for item in papers()[2].items_named("Figure 7")]
        ['Figures 7, 8']
        """
        same = tuple(item for item in self.items if item.item.lower() == name.lower())
        asked = item_name(name)
        found = same or tuple(
            item for item in self.items if any(asked.finds(item_name(own)) for own in (item.item, *item.also))
        )
        if not found:
            raise self._no_such_item(name)
        return found

    def _no_such_item(self, name: str) -> UnknownName:
        """The error for a name that none of the items has, with the command that lists those of its kind."""
        kind = next((kind for kind, _ in item_name(name).labels), "")
        is_known = bool(kind) and any(item_name(kind).finds(item_name(item.item)) for item in self.items)
        command = f"hessmap papers {self.number}"
        remedy = f"All of this kind: {command} {kind}" if is_known else f"All of them: {command}"
        must = f"the item must be one of paper {self.number}"
        return UnknownName(sentence(must, f"got {short_text(name)}", remedy))


def _picture(study: str) -> str:
    """The picture of a study relative to ``research/docs``, or an empty string (pip installs no pictures)."""
    docs = Path(__file__).resolve().parents[3] / "docs"
    names = (f"pictures/{study.replace('/', '-')}.{ending}" for ending in ("svg", "png"))
    return next((name for name in names if (docs / name).is_file()), "")


@cache
def papers() -> tuple[Paper, ...]:
    """All papers, by number.

    >>> [(paper.number, paper.name) for paper in papers()][0]
    (0, 'Singh, Bachmann & Hofmann 2021')
    """
    return tuple(_paper(number, name) for number, name in enumerate(_FILES))


def _paper(number: int, name: str) -> Paper:
    content = tomllib.loads((files("hessmap_research.papers") / f"{name}.toml").read_text(encoding="utf-8"))
    items = tuple(_item(number, fields) for fields in content.pop("items"))
    names = [item.item for item in items]
    twice = sorted({item for item in names if names.count(item) > 1})
    require(not twice, f"every item of {name}.toml must be listed once", f"{', '.join(twice)} is listed twice")
    return Paper(number=number, items=items, **content)


def _item(paper: int, fields: dict[str, Any]) -> Item:
    """An item as a file spells it: lists become tuples, and paragraphs lines."""
    made: dict[str, Any] = {
        name: tuple(_tuples(value)) if isinstance(value, list) else value.strip() for name, value in fields.items()
    }
    if made.get("status") not in get_args(Status):
        raise unknown_name(f"status of {made.get('item')!r}", made.get("status"), get_args(Status))
    try:
        return Item(paper=paper, **made)
    except TypeError as error:
        raise InvalidInput(sentence("an item has the fields of Item", f"{made.get('item')!r}: {error}")) from error


def _tuples(values: list[Any]) -> Iterator[Any]:
    return (tuple(value) if isinstance(value, list) else value for value in values)


@cache
def stored_outcomes() -> dict[str, StudyOutcome]:
    """The outcomes of all studies with exported results, by name; ``make papers`` brings them up to date."""
    content = json.loads((files("hessmap_research.papers") / _OUTCOMES).read_text(encoding="utf-8"))
    return {study: StudyOutcome.from_stored(study, kept) for study, kept in content.items()}


def outcomes_text(results: Path) -> str:
    """The content of the file of outcomes, read from a folder of exported results."""
    contents = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))]
    lines = [f" {json.dumps(content['study'])}: {stored_text(content['outcome'])}" for content in contents]
    return "{\n" + ",\n".join(lines) + "\n}\n"
