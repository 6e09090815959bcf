"""Values in the types of strict JSON, and back: arrays keep shape and number format, inf and nan are spelled out.

Python's own ``json`` writes ``Infinity``, which no other client reads; here it is ``{"float": "inf"}``. A fraction is
``{"fraction": "7/2"}``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from hessmap.errors import InvalidInput, sentence

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
    must = "a record must hold numbers, strings, arrays, Records and containers of them"
    raise InvalidInput(sentence(must, f"{name} is a {type(value).__name__}"))


def _plain_array(name: str, array: np.ndarray[Any, Any]) -> Any:
    if array.ndim == 0:
        return plain(name, array.item(), lambda _: None)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(sentence("an array of a record must hold real numbers", f"{name} holds {array.dtype}"))
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
            must = "an array of a record must hold real numbers"
            raise InvalidInput(sentence(must, f"its number format is {value['dtype']!r}"))
        return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
    fields = {name: restored_value(item, build) for name, item in value.items()}
    return build(fields) if build is not None else fields
