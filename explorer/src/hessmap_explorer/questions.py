"""A question of the Predict screen: a family and the values of its fields, read from the address of the page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hessmap.errors import InvalidInput, require, require_name, sentence, unknown_name
from hessmap_explorer.families import FAMILIES
from hessmap_explorer.fields import QUESTIONS, Family, Field, is_count

MOST_LAYERS = 32
MOST_UNITS = 100_000


@dataclass(frozen=True)
class Question:
    """A family, the values of its fields, and what is known of loss and data."""

    family: Family
    values: dict[str, Any]
    known: dict[str, Any]

    @property
    def network(self) -> Any:
        return self.family.network(self.values)

    @property
    def given(self) -> dict[str, Any]:
        """What is known of loss and data, without the generic values."""
        return {name: value for name, value in self.known.items() if value not in (None, False)}


def read_question(given: Mapping[str, str]) -> Question:
    """The question that the query of an address asks; what it leaves out has its default."""
    name = given.get("family", next(iter(FAMILIES)))
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    family = FAMILIES[name]
    asked = {field: QUESTIONS[field] for field in family.asks}
    fields = {field.name: field for field in family.fields}
    unknown = [key for key in given if key not in fields and key not in asked and key != "family"]
    if unknown:
        raise unknown_name(f"a field of {family.label}", unknown[0], [*fields, *asked])
    values = {key: _value(field, given.get(key)) for key, field in fields.items()}
    return Question(family, values, {key: _value(field, given.get(key)) for key, field in asked.items()})


def _value(field: Field, text: str | None) -> Any:
    """The value of a field as theory wants it."""
    if text is None or (text == "" and field.default is None):
        return field.default
    if field.kind == "flag":
        require_name(field.name, text, ("true", "false"))
        return text == "true"
    if field.kind == "choice":
        require_name(field.name, text, field.choices)
        return text
    if field.kind == "text":
        require(len(text) <= 200, f"{field.name} must have at most 200 characters", f"it has {len(text):,}")
        return text
    if field.kind == "count":
        return _count(field, text)
    parts = text.split("-")
    got = f"{field.name} has {len(parts):,}"
    require(len(parts) <= MOST_LAYERS, f"a network here has at most {MOST_LAYERS} layers", got, "Use hessmap predict")
    return tuple(_count(field, part) for part in parts)


def _count(field: Field, text: str) -> int:
    if not is_count(text):
        must = f"{field.name} must be whole numbers{' with - between' if field.kind == 'counts' else ''}"
        raise InvalidInput(sentence(must, f"got {text!r:.40}"))
    got = f"{field.name} is {int(text):,}"
    require(int(text) <= MOST_UNITS, f"numbers here go up to {MOST_UNITS:,}", got, "Use hessmap predict")
    return int(text)


def varied(question: Question, name: str, value: int) -> Question:
    """The question with one number changed: a field, or "widths.1" for one of several counts."""
    first, _, place = name.partition(".")
    if first in question.known and not place and QUESTIONS[first].kind == "count":
        return Question(question.family, question.values, {**question.known, first: value})
    fields = {field.name: field for field in question.family.fields if field.kind in ("count", "counts")}
    if first not in fields or (fields[first].kind == "counts") != bool(place):
        raise unknown_name("a number to vary", name, _numbers(question))
    if not place:
        return Question(question.family, {**question.values, first: value}, question.known)
    counts = list(question.values[first])
    if not is_count(place) or int(place) >= len(counts):
        raise unknown_name("a number to vary", name, _numbers(question))
    counts[int(place)] = value
    return Question(question.family, {**question.values, first: tuple(counts)}, question.known)


def _numbers(question: Question) -> list[str]:
    """Every number of a question by its name."""
    names = [key for key in question.known if QUESTIONS[key].kind == "count"]
    for field in question.family.fields:
        if field.kind == "count":
            names.append(field.name)
        elif field.kind == "counts":
            names += [f"{field.name}.{place}" for place in range(len(question.values[field.name]))]
    return names
