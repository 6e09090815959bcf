"""The base of every result: frozen, comparable, readable, plotted, tabulated, and JSON both ways."""

from __future__ import annotations

import dataclasses
import html
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from hessmap.errors import HessmapError, InvalidInput, sentence, short_text, unknown_name
from hessmap.records.files import atomic_write
from hessmap.records.strict_json import parsed_json, plain, require_field_types, restored_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write an HTML table with one row of column heads.

    Args:
        heads: The column heads.
        rows: The cells of every row; they are escaped.

    Returns:
        The HTML.
    """
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_facts(caption: str, facts: Iterable[tuple[str, str]]) -> str:
    """Write an HTML table of names and values with a caption.

    Args:
        caption: The caption.
        facts: Pairs of name and value; they are escaped.

    Returns:
        The HTML.
    """
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"


_PICTURES: dict[str, dict[str, Callable[..., Figure]]] = {}


def register_pictures(kind: type | str, **pictures: Callable[..., Figure]) -> None:
    """Register the functions that draw the records of a class.

    Args:
        kind: The class, or its address "package.module.Class", so that a heavy module is not imported for other
            pictures.
        **pictures: Functions of a record by the name of the picture; the first is the default.
    """
    _PICTURES[kind if isinstance(kind, str) else _address(kind)] = pictures


def _address(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def plot(record: object, which: str | None = None, **options: object) -> Figure:
    """Draw a record.

    Args:
        record: The record.
        which: Name of the picture. Default: the first that is registered for the class of the record.
        **options: Arguments of the function that draws it.

    Returns:
        The matplotlib figure.

    Raises:
        InvalidInput: If the record has no picture, or none of that name.

    Example:
        >>> import numpy as np, hessmap as hm
        >>> plot(hm.density_estimate(np.diag([3.0, 2.0, 1.0]), num_probes=2)).axes[0].get_ylabel()
        'density'
    """
    import_module("hessmap.views.plots")  # registers all pictures: the one way up, by name
    pictures = next((_PICTURES[_address(kind)] for kind in type(record).__mro__ if _address(kind) in _PICTURES), None)
    if pictures is None:
        kinds = ", ".join(sorted(kind.rpartition(".")[2] for kind in _PICTURES))
        must, got = "a record must have a picture to be drawn", f"a {type(record).__name__} has none"
        raise InvalidInput(sentence(must, got, f"These have one: {kinds}"))
    if which is not None and which not in pictures:
        raise unknown_name(f"picture of a {type(record).__name__}", which, pictures)
    return pictures[which or next(iter(pictures))](record, **options)


_RECORDS: dict[str, type[Record]] = {}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Record:
    """A frozen result. Subclasses are ``@dataclass(frozen=True, eq=False, repr=False)``.

    Equality compares every field marked ``compare`` (the default), arrays element by element; provenance fields
    are declared with ``field(compare=False)`` because two equal results may be found at different times.
    """

    summary_fields: ClassVar[tuple[str, ...]] = ()
    frame_properties: ClassVar[tuple[str, ...]] = ()  # that are columns of a table, beside the fields

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _RECORDS[cls.__name__] = cls

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            _equal(getattr(self, field.name), getattr(other, field.name))
            for field in dataclasses.fields(self)
            if field.compare
        )

    def __hash__(self) -> int:
        return hash(_key(plain(type(self).__name__, self, compared_fields)))

    def to_dict(self) -> dict[str, Any]:
        """Dictionaries, lists, numbers and strings of strict JSON."""
        made: dict[str, Any] = plain(type(self).__name__, self, all_fields)
        return made

    def to_json(self, indent: int | None = None) -> str:
        """The record as strict JSON, of which ``from_json`` makes an equal record.

        Args:
            indent: Spaces per level. Default: everything in one line.

        Returns:
            The text.
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record to a JSON file, completely or not at all; ``hessmap.load`` reads it.

        Args:
            path: File to write. Missing folders are created; an existing file is replaced.

        Raises:
            OSError: If the file cannot be written.
        """
        text = self.to_json()
        with atomic_write(path) as file:
            file.write(text.encode())

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        name = data.get("record") if isinstance(data, dict) else None
        if not isinstance(name, str) or name not in _RECORDS:
            raise unknown_name("record", name, sorted(_RECORDS))
        try:
            record = restored_value(data, _record_of)
        except HessmapError:
            raise
        except Exception as error:  # of the fields' own checks, which expect the values of a record
            got = f"{type(error).__name__}: {error}"
            raise InvalidInput(sentence(f"the JSON must contain the fields of a {name}", got)) from error
        if not isinstance(record, cls):
            raise InvalidInput(sentence(f"the JSON must contain a {cls.__name__}", f"it contains a {name}"))
        return record

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.from_dict(parsed_json(text, "a record is read from JSON"))

    def plot(self, which: str | None = None, **options: Any) -> Figure:
        """The picture of this record, as a matplotlib figure; ``which`` names one where there are several."""
        return plot(self, which, **options)

    def to_frame(self) -> Any:
        """The record as a ``pandas.DataFrame``: see ``hessmap.records.record``."""
        return frame(self)

    def table_rows(self) -> tuple[Record, ...] | None:
        """The records that are the rows of its table: those of the first tuple of them; None where there is none."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple) and value and all(isinstance(item, Record) for item in value):
                return value
        return None

    def rows(self) -> list[tuple[str, str]]:
        """Name and value, as the two readable forms show them."""
        names = self.summary_fields or tuple(field.name for field in dataclasses.fields(self) if field.compare)
        return [(name.replace("_", " "), _readable(getattr(self, name))) for name in names]

    @property
    def brief(self) -> str:
        """The record in a few words, as the ``repr`` of another record shows it."""
        return f"{type(self).__name__}(..)"

    def __repr__(self) -> str:
        """At most two lines: numbers with four digits, long values by their size; fields that do not fit are cut."""
        names = self.summary_fields or tuple(field.name for field in dataclasses.fields(self) if field.compare)
        values = {name: getattr(self, name) for name in names}
        return _two_lines(
            type(self).__name__, [f"{name}={_brief(value)}" for name, value in values.items() if value is not None]
        )

    def _repr_html_(self) -> str:
        return html_facts(type(self).__name__, self.rows())


def is_record_name(name: str) -> bool:
    """Whether a kind of record of this name is defined."""
    return name in _RECORDS


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return bool(np.array_equal(left, right))
    if isinstance(left, tuple) and isinstance(right, tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    return bool(left == right)


def _key(value: Any) -> Any:
    """Something hashable that is equal for equal values: 1 and 1.0, 0.0 and -0.0, arrays of other number formats."""
    if isinstance(value, dict):
        return tuple((name, _key(item)) for name, item in sorted(value.items()) if name != "dtype")
    return tuple(map(_key, value)) if isinstance(value, list) else value


def all_fields(value: object) -> dict[str, Any] | None:
    """The fields of a record by name, with its own name under ``"record"``; None for anything else."""
    return _fields_by_name(value, dataclasses.fields(value)) if isinstance(value, Record) else None


def compared_fields(value: object) -> dict[str, Any] | None:
    """The same for the fields that make two records equal: without the moment and the machine of its provenance."""
    if not isinstance(value, Record):
        return None
    return _fields_by_name(value, tuple(field for field in dataclasses.fields(value) if field.compare))


def _fields_by_name(record: Record, fields: tuple[dataclasses.Field[Any], ...]) -> dict[str, Any]:
    return {"record": type(record).__name__, **{field.name: getattr(record, field.name) for field in fields}}


def typed_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as they are; where they are those of a record, each must be of its type."""
    _kind_of(fields)
    return fields


def _record_of(fields: dict[str, Any]) -> Any:
    """The record of these fields; the fields as they are where they are those of no record."""
    kind = _kind_of(fields)
    return fields if kind is None else kind(**{name: value for name, value in fields.items() if name != "record"})


def _kind_of(fields: dict[str, Any]) -> type[Record] | None:
    """The record that a dictionary is of, whose fields must be of their types; None where it is of no record."""
    kind = _RECORDS.get(str(fields.get("record")))
    if kind is not None:
        require_field_types(kind, fields)
    return kind


def _readable(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, np.ndarray):
        if value.size == 0:
            return "empty"
        if value.dtype.kind in "fiu" and value.size > 4:
            return f"{value.size} values from {value.max():.4g} down to {value.min():.4g}"
        return np.array2string(value, precision=4)
    return str(value)


_WIDTH = 118  # of a line of a repr
_LONG = 60  # characters of a value, above which its size is shown


def _two_lines(name: str, fields: Sequence[str]) -> str:
    lines = [f"{name}("]
    for place, field in enumerate(fields):
        text = field + (", " if place + 1 < len(fields) else ")")
        if len(lines[-1]) + len(text.rstrip()) <= _WIDTH - (4 if len(lines) == 2 else 0):
            lines[-1] += text
        elif len(lines) == 1:
            lines.append(f"  {text}")
        else:
            lines[-1] += "..)"
            break
    if not fields:
        lines[-1] += ")"
    return "\n".join(line.rstrip() for line in lines)


def _brief(value: Any) -> str:
    """A value in at most a few words."""
    if isinstance(value, Record):
        return value.brief
    if isinstance(value, np.ndarray | float | Fraction):
        return _readable(value)
    if isinstance(value, tuple | list) and value and all(isinstance(item, Record) for item in value):
        return f"{len(value)} {type(value[0]).__name__}"
    if isinstance(value, tuple) and value and all(type(item) is float for item in value):
        value = tuple(float(f"{item:.4g}") for item in value)
    text = repr(value)
    if isinstance(value, tuple | list | dict) and len(text) > _LONG:
        return f"{len(value)} entries"
    return text if len(text) <= _LONG else f"{text[: _LONG - 3]}..{text[-1]}"


def frame(record: Record) -> Any:
    """The record as a ``pandas.DataFrame``.

    Arrays of one length and one dimension are its columns; where there is none, the records that it holds in a tuple
    are its rows; else it has one row. Numbers of records inside have names like "rank.value".
    """
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        must, remedy = "to_frame needs pandas", "Install it (pip install pandas), or use to_dict()"
        raise InvalidInput(sentence(must, "it is not installed", remedy)) from error
    return pandas.DataFrame(columns_of(record))


def columns_of(record: Record) -> dict[str, Any]:
    """The columns of the table by name."""
    rows = record.table_rows()
    if rows is not None:
        numbers = [scalars(row) for row in rows]
        names = dict.fromkeys(name for row in numbers for name in row)
        return {name: [row.get(name) for row in numbers] for name in names}
    arrays = _arrays(record)
    return arrays or {name: [value] for name, value in scalars(record).items()}


def _arrays(record: Record) -> dict[str, Any]:
    """The arrays of the length of the first one."""
    named = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    arrays = {name: value for name, value in named.items() if isinstance(value, np.ndarray) and value.ndim == 1}
    length = max((len(array) for array in arrays.values()), default=0)
    return {name: array for name, array in arrays.items() if len(array) == length} if length > 1 else {}


def scalars(record: Record, prefix: str = "") -> dict[str, Any]:
    """Every number, word and truth value of a record and of those inside of it, without provenance."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.name == "provenance":
            continue
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            found |= scalars(value, f"{prefix}{field.name}.")  # type: ignore[arg-type]
        elif value is None or isinstance(value, str | bool | int | float | np.generic):
            found[f"{prefix}{field.name}"] = value
    found |= {f"{prefix}{name}": getattr(record, name) for name in getattr(record, "frame_properties", ())}
    return found


def encode(record: Mapping[str, Any]) -> str:
    """Write a dictionary of values and records as strict JSON for the store.

    Args:
        record: The values by name. Of records inside only the compared fields are kept: the store has a provenance of
            its own.

    Returns:
        The JSON. Arrays keep shape and number format; inf and nan are spelled ``{"float": "inf"}``.
    """
    return json.dumps(plain("record", record, compared_fields), separators=(",", ":"), allow_nan=False)


def decode(text: str) -> dict[str, Any]:
    """Read the JSON of ``encode``.

    Args:
        text: The JSON.

    Returns:
        The values by name: arrays are arrays, inf is inf, records are dictionaries with the key ``"record"``.

    Example:
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
