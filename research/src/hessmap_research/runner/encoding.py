"""Cases as JSON text, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from hessmap.errors import InvalidInput, sentence, short_text
from hessmap.records.strict_json import parsed_json


def case_key(case: Mapping[str, Any]) -> str:
    """The one spelling of a case: names sorted, no spaces, so that equal cases have equal keys.

    >>> case_key({"width": 3, "activation": "relu", "hidden": (2, 2)})
    '{"activation":"relu","hidden":[2,2],"width":3}'
    """
    for name, value in case.items():
        if not _is_case_value(value):
            must = "a case must contain finite numbers, strings, booleans, None and tuples of them"
            raise InvalidInput(sentence(must, f"{short_text(name)} is {short_text(value)}, a {type(value).__name__}"))
    return json.dumps(case, sort_keys=True, separators=(",", ":"), allow_nan=False)


def case_of_key(key: str) -> dict[str, Any]:
    """The case that a key spells; lists come back as tuples."""
    case = parsed_json(key, "a case must be spelled in JSON")
    if not isinstance(case, dict):
        raise InvalidInput(sentence('a case must be a JSON object, like {"width":3}', f"got {short_text(key)}"))
    try:
        return {name: _tuples(value) for name, value in case.items()}
    except RecursionError:  # deeper than our own calls go, but not than the reader of JSON goes
        raise InvalidInput(sentence("a case must be spelled in JSON", "the text is nested too deeply")) from None


def _is_case_value(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, tuple | list):
        return all(map(_is_case_value, value))
    return value is None or isinstance(value, str | int)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
