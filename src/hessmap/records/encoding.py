"""Records as JSON text, and back: strict JSON, so that every SQLite and JSON client can read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hessmap.errors import InvalidInput, sentence, short_text
from hessmap.records.record import compared_fields, typed_fields
from hessmap.records.strict_json import plain, restored_value


def encode(record: Mapping[str, Any]) -> str:
    """A record as strict JSON: arrays keep shape and number format, inf and nan are spelled ``{"float": "inf"}``.

    Of Records inside it only the fields that are compared are kept: the store has a provenance of its own.
    """
    return json.dumps(plain("record", record, compared_fields), separators=(",", ":"), allow_nan=False)


def decode(text: str) -> dict[str, Any]:
    """What ``encode`` wrote: arrays are arrays, inf is inf, Records are dictionaries with the key ``"record"``.

    >>> decode(encode({"gap": float("inf"), "width": (2, 3)}))
    {'gap': inf, 'width': (2, 3)}
    """
    return decoded_record(json.loads(text))


def decoded_record(content: Any) -> dict[str, Any]:
    """The same of JSON that was read already; the fields of Records inside it must be of their types."""
    decoded: dict[str, Any] = restored_value(content, typed_fields)
    if not isinstance(decoded, dict):
        raise InvalidInput(sentence("a record must be a JSON object", f"got {short_text(decoded)}"))
    return decoded
