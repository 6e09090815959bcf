"""Values held against the annotations of a record's fields: what a file holds is read as it is written, or refused."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, sentence, short_text

_ORIGINS: dict[Any, tuple[type, str]] = {tuple: (tuple, "a list"), dict: (dict, "a JSON object")}
_SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "a text"),
    Fraction: ((int, Fraction), "a fraction"),
    type(None): ((type(None),), "null"),
}
_ARRAYS: dict[Any, tuple[str, str]] = {
    np.dtype[np.bool]: ("b", "true or false"),
    np.dtype[np.int64]: ("iu", "whole numbers"),
    np.dtype[np.float64]: ("iuf", "numbers"),
}


def require_field_types(kind: type, values: Mapping[str, Any]) -> None:
    """Raise InvalidInput for the first value that is not of its field's annotation; names of no field are let pass.

    A whole number may stand where a number belongs, and nothing else in the place of something else.

    >>> from hessmap.records.ranks import RankValue
    >>> require_field_types(RankValue, {"value": "3", "kind": "exact"})
    Traceback (most recent call last):
        ...
    hessmap.errors.InvalidInput: the field value of a RankValue must be a whole number; it is '3'. \
Make the record again, or correct the file.
    """
    annotations = _annotations(kind)
    for name, value in values.items():
        if name in annotations and (fault := _fault(value, annotations[name])):
            place, wanted, found = fault
            must = f"the field {name}{place} of a {kind.__name__} must be {wanted}"
            remedy = "Make the record again, or correct the file"
            raise InvalidInput(sentence(must, f"it is {short_text(found)}", remedy))


@cache
def _annotations(kind: type) -> dict[str, Any]:
    """Those of a class; of one whose annotations name what only its own function knows there are none to hold to."""
    try:
        return typing.get_type_hints(kind)
    except NameError:
        return {}


Fault = tuple[str, str, Any] | None  # the place inside of the field, what belongs there, what is there


def _fault(value: Any, wanted: Any) -> Fault:
    """The first disagreement of a value with an annotation, or None."""
    if wanted is Any or wanted is object:
        return None
    origin, inner = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (types.UnionType, typing.Union):
        return _union_fault(value, inner)
    if origin is typing.Literal:
        is_one = isinstance(value, str) and value in inner
        return None if is_one else ("", "one of " + ", ".join(map(repr, inner)), value)
    if wanted is np.ndarray or origin is np.ndarray:
        return _array_fault(value, inner)
    if origin in _ORIGINS:
        kind, words = _ORIGINS[origin]
        if not isinstance(value, kind):
            return "", words, value
        return _INNER[origin](value, inner)
    kinds, words = _SCALARS.get(wanted, ((wanted,), f"a {wanted.__name__}"))
    is_right = isinstance(value, kinds) and (wanted is bool or not isinstance(value, bool))
    return None if is_right else ("", words, value)


def _union_fault(value: Any, choices: tuple[Any, ...]) -> Fault:
    """None if the value is of any of them; else the deepest disagreement, with what else could stand at the top."""
    faults = [_fault(value, choice) for choice in choices]
    if None in faults:
        return None
    found = [fault for fault in faults if fault is not None]
    inside = [fault for fault in found if fault[0]]
    return inside[0] if inside else ("", " or ".join(words for _, words, _ in found), value)


def _array_fault(value: Any, inner: tuple[Any, ...]) -> Fault:
    kinds, words = _ARRAYS.get(inner[1] if len(inner) == 2 else None, ("biuf", "numbers"))
    is_right = isinstance(value, np.ndarray) and value.dtype.kind in kinds
    return None if is_right else ("", f"an array of {words}", value)


def _tuple_fault(value: tuple[Any, ...], inner: tuple[Any, ...]) -> Fault:
    is_any_length = len(inner) == 2 and inner[1] is Ellipsis
    if not is_any_length and len(value) != len(inner):
        return "", f"a list of {len(inner)}", value
    wanted = (inner[0],) * len(value) if is_any_length else inner
    return _first_fault(enumerate(value), wanted)


def _dict_fault(value: dict[str, Any], inner: tuple[Any, ...]) -> Fault:
    return _first_fault(value.items(), (inner[1],) * len(value))


def _first_fault(items: Any, wanted: tuple[Any, ...]) -> Fault:
    for (name, item), annotation in zip(items, wanted, strict=True):
        fault = _fault(item, annotation)
        if fault is not None:
            return f"[{name!r}]{fault[0]}", fault[1], fault[2]
    return None


_INNER: dict[Any, Callable[[Any, tuple[Any, ...]], Fault]] = {tuple: _tuple_fault, dict: _dict_fault}
