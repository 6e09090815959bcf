"""Cases and records as JSON text, and back: strict JSON, so that every SQLite and JSON client can read it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, sentence
from hessmap.results import Record


def case_key(case: Mapping[str, Any]) -> str:
    """The one spelling of a case: names sorted, no spaces, so that equal cases have equal keys.

    >>> case_key({"width": 3, "activation": "relu", "hidden": (2, 2)})
    '{"activation":"relu","hidden":[2,2],"width":3}'
    """
    for name, value in case.items():
        if not _is_case_value(value):
            must = "a case must hold finite numbers, strings, booleans, None and tuples of them"
            raise InvalidInput(sentence(must, f"{name!r} is {value!r}, a {type(value).__name__}"))
    return json.dumps(case, sort_keys=True, separators=(",", ":"), allow_nan=False)


def case_of_key(key: str) -> dict[str, Any]:
    """The case that a key spells; lists come back as tuples."""
    try:
        case = json.loads(key)
    except json.JSONDecodeError as error:
        raise InvalidInput(sentence("a case must be spelled in JSON", f"got {key!r} ({error})")) from error
    if not isinstance(case, dict):
        raise InvalidInput(sentence('a case must be a JSON object, like {"width":3}', f"got {key!r}"))
    return {name: _tuples(value) for name, value in case.items()}


def encode(record: Mapping[str, Any]) -> str:
    """A record as strict JSON: arrays keep shape and number format, inf and nan are spelled ``{"float": "inf"}``.

    Of Records inside it only the fields that are compared are kept: the store has a provenance of its own.
    """
    return json.dumps(_plain("record", record), separators=(",", ":"), allow_nan=False)


def decode(text: str) -> dict[str, Any]:
    """What ``encode`` wrote: arrays are arrays, inf is inf, Records are dictionaries with the key ``"record"``.

    >>> decode(encode({"gap": float("inf"), "values": np.array([1.0, np.inf])}))
    {'gap': inf, 'values': array([ 1., inf])}
    """
    decoded: dict[str, Any] = restored(json.loads(text))
    return decoded


def _is_case_value(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, tuple | list):
        return all(map(_is_case_value, value))
    return value is None or isinstance(value, str | int)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(name: str, value: Any) -> Any:
    """``value`` in the types of strict JSON; ``name`` is the place that an error speaks of."""
    if isinstance(value, Record):
        return _plain(name, {"record": type(value).__name__, **_compared(value)})
    if isinstance(value, Mapping):
        return {str(key): _plain(f"{name}.{key}", item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(f"{name}[{place}]", item) for place, item in enumerate(value)]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, np.generic):
        return _plain(name, value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if hasattr(value, "__array__"):
        return _plain_array(name, np.asarray(value))
    must = "a record must hold numbers, strings, arrays, Records and containers of them"
    raise InvalidInput(sentence(must, f"{name} is a {type(value).__name__}"))


def _compared(record: Record) -> dict[str, Any]:
    """The fields that make two records equal; the moment a record was found at would make no two exports equal."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record) if field.compare}


def _plain_array(name: str, array: np.ndarray[Any, Any]) -> Any:
    if array.ndim == 0:
        return _plain(name, array.item())
    if array.dtype.kind not in "biuf":
        raise InvalidInput(sentence("an array of a record must hold real numbers", f"{name} holds {array.dtype}"))
    items: list[Any] = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        items = [item if math.isfinite(item) else str(item) for item in items]
    return {"array": items, "shape": list(array.shape), "dtype": str(array.dtype)}


def restored(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(restored, value))
    if not isinstance(value, dict):
        return value
    if value.keys() == {"float"}:
        return float(value["float"])
    if value.keys() == {"array", "shape", "dtype"}:
        return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    return {name: restored(item) for name, item in value.items()}
