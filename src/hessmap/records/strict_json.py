"""Values in the types of strict JSON and back, and the check of each value against its field's annotation.

Arrays keep shape and dtype. Python's own ``json`` writes ``Infinity``, which other clients do not read; here it is
``{"float": "inf"}``. A fraction is ``{"fraction": "7/2"}``.
"""

from __future__ import annotations

import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, sentence, short_text

_DTYPES = ["bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)), "float16", "float32"]
_DTYPES += ["float64"]
Expand = Callable[[object], Mapping[str, Any] | None]


def parsed_json(text: Any, must: str) -> Any:
    """The value that a JSON text from outside spells.

    Args:
        text: Text or bytes.
        must: What is required of the text, for the error.

    Raises:
        InvalidInput: If it is not JSON, or nested too deeply or with numbers too long for Python to read.

    Example:
        >>> parsed_json("9" * 5000, "a case must be spelled in JSON")
        Traceback (most recent call last):
            ...
        hessmap.errors.InvalidInput: a case must be spelled in JSON; the text has a number of too many digits.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        got = f"the text is not: {error}"
    except RecursionError:
        got = "the text is nested too deeply"
    except UnicodeDecodeError:
        got = "the text is not UTF-8"
    except ValueError:  # int() refuses more than 4,300 digits
        got = "the text has a number of too many digits"
    except TypeError:
        got = f"it is a {type(text).__name__}"
    raise InvalidInput(sentence(must, got))


def plain(name: str, value: Any, expand: Expand) -> Any:
    """``value`` in the types of strict JSON; ``name`` is the place that an error speaks of.

    ``expand`` gives the fields of an object that is a record, and None for anything else.
    """
    fields = expand(value)
    if fields is not None:
        return plain(name, fields, expand)
    if isinstance(value, Mapping):
        return {str(key): plain(f"{name}.{key}", item, expand) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(f"{name}[{place}]", item, expand) for place, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.generic):
        return plain(name, value.item(), expand)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if hasattr(value, "__array__"):
        return _plain_array(name, np.asarray(value))
    must = "a record must contain numbers, strings, arrays, Records and containers of them"
    raise InvalidInput(sentence(must, f"{name} is a {type(value).__name__}"))


def _plain_array(name: str, array: np.ndarray[Any, Any]) -> Any:
    if array.ndim == 0:
        return plain(name, array.item(), lambda _: None)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(sentence("arrays of a record must be real", f"{name} has dtype {array.dtype}"))
    items: list[Any] = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        items = [item if math.isfinite(item) else str(item) for item in items]
    return {"array": items, "shape": list(array.shape), "dtype": str(array.dtype)}


def _restored_fraction(text: Any) -> Fraction:
    """Of whole numbers alone: ``Fraction`` would write out 1e1000000000."""
    if not re.fullmatch(r"-?\d+(/\d+)?", str(text)):
        raise InvalidInput(sentence("a fraction must be of two whole numbers", f"got {str(text)[:40]!r}"))
    return Fraction(text)


def restored_value(value: Any, build: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """What ``plain`` made: arrays are arrays, inf is inf, lists are tuples; ``build`` may turn dictionaries into more.

    >>> restored_value(plain("record", {"gap": float("inf"), "values": np.array([1.0, np.inf])}, lambda _: None))
    {'gap': inf, 'values': array([ 1., inf])}
    """
    if isinstance(value, list):
        return tuple(restored_value(item, build) for item in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"}:
        return float(value["float"])
    if value.keys() == {"fraction"}:
        return _restored_fraction(value["fraction"])
    if value.keys() == {"array", "shape", "dtype"}:
        if value["dtype"] not in _DTYPES:
            must = "an array of a record must contain real numbers"
            raise InvalidInput(sentence(must, f"its number format is {value['dtype']!r}"))
        return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    fields = {name: restored_value(item, build) for name, item in value.items()}
    return build(fields) if build is not None else fields


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
