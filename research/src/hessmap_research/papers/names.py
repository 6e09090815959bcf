"""The names of items: which kinds and numbers each stands for, so that "Figure 7" finds "Figures 7, 8"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_PANEL = r"(?:[a-z]|[ivx]+)(?![a-z0-9])"
_NUMBER = rf"(?:(?:[a-z]\.?)?[0-9]{{1,3}}(?:\.[0-9]{{1,3}})*(?: ?{_PANEL})?|{_PANEL})"
_PART = re.compile(
    rf"(?:(?P<kind>(?![ivx]+\b)[a-z]{{2,}})\.? ?)?(?:(?P<first>{_NUMBER})(?: ?(?:to|-+|–) ?(?P<last>{_NUMBER}))?)?"
)
_SINGULAR_ENDINGS = (("ices", "ix"), ("ies", "y"), ("s", ""))
_SHORT_KINDS = {"thm": "theorem", "eqn": "equation"}  # others are the beginnings of words: fig, eq, prop
_UNNAMED_KIND = "section"

Number = tuple[str, ...]


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
