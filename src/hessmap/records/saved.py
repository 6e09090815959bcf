"""Results in files: JSON for a record, an archive where there are large arrays, and one function that reads both.

An archive is a zip file in the format of ``numpy.savez``: a member ``NAME.npy`` per array, and ``record.json``, whose
key "record" names the kind. Packages above this one register how their kinds are read.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from hessmap.errors import DataFileError, InvalidInput, require, sentence
from hessmap.records.files import atomic_write
from hessmap.records.record import Record, is_record_name
from hessmap.records.store import Store, load_map, load_track, map_summaries, track_summaries
from hessmap.records.strict_json import parsed_json

Header = dict[str, Any]
Arrays = dict[str, np.ndarray[Any, Any]]
Reader = Callable[[Header, Arrays], Any]

_HEADER = "record.json"
_ARCHIVE = b"PK"
_STORE = b"SQLite format 3"
_PACKAGES = ("certificates", "layers", "applications", "maps")  # those above this one that may define kinds
_READERS: dict[str, Reader] = {}


def register_reader(kind: str, reader: Reader) -> None:
    """Let ``load`` read the archives of one kind.

    Args:
        kind: The name under which ``save_archive`` wrote them, such as "KroneckerCurvature".
        reader: Called with the header (a dictionary of JSON values) and the arrays by name; returns the object.

    Example:
        >>> register_reader("Interval", lambda header, arrays: (header["low"], arrays["values"].max()))
    """
    _READERS[kind] = reader


def save_archive(
    path: str | os.PathLike[str], kind: str, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]]
) -> None:
    """Write a header and arrays to one file, completely or not at all.

    Args:
        path: File to write. Missing folders are created; an existing file is replaced.
        kind: Name of the kind, for which a reader is registered.
        header: JSON values by name.
        arrays: Arrays by name, of numbers or bools. They are stored uncompressed: weights hardly compress.

    Raises:
        OSError: If the file cannot be written.

    Example:
        >>> import tempfile
        >>> register_reader("Interval", lambda header, arrays: (header["low"], arrays["values"].max()))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_archive(f"{folder}/i.npz", "Interval", {"low": 2.0}, {"values": np.arange(3)})
        ...     print(*load(f"{folder}/i.npz"))
        2.0 2
    """
    text = json.dumps({"record": kind, **header}, allow_nan=False)
    with atomic_write(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_HEADER, text)
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(values), allow_pickle=False)


def load(path: str | os.PathLike[str], name: str | None = None) -> Any:
    """Read a result from a file: any record, certificate or curvature that ``save`` wrote, or an entry of a store.

    Args:
        path: A file written by ``save``, or a store of maps and tracks.
        name: Name of a map or track in the store. Default: ``path`` is not a store.

    Returns:
        The object that was saved, equal in every field.

    Raises:
        DataFileError: If the file is missing, damaged, or was not written by hessmap.
        InvalidInput: If ``path`` is a store and ``name`` is missing or not in it.

    Example:
        >>> import tempfile, hessmap as hm
        >>> found = hm.numerical_rank(np.diag([3.0, 1.0, 0.0]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     found.save(f"{folder}/rank.json")
        ...     hm.load(f"{folder}/rank.json") == found
        True
    """
    file = Path(path)
    with _reading(file, "a file to load must be readable"), file.open("rb") as raw:
        start = raw.read(len(_STORE))
    if name is not None or start == _STORE:
        return _stored(file, name)
    with _reading(file, "a file to load must contain a result of hessmap"):
        if start.startswith(_ARCHIVE):
            header, arrays = _archive(file)
            kind = header["record"]
            if kind not in _READERS:
                _import_packages()
            require(kind in _READERS, "the kind of an archive must be known", f"no reader is registered for {kind!r}")
            return _READERS[kind](header, arrays)
        content = parsed_json(file.read_bytes(), "the content must be JSON")
        found = content.get("record") if isinstance(content, dict) else None
        if not isinstance(found, str):
            raise InvalidInput(sentence('the content must be a JSON object with the key "record"', "it is not"))
        if not is_record_name(found):
            _import_packages()
        return Record.from_dict(content)


def _archive(path: Path) -> tuple[Header, Arrays]:
    with zipfile.ZipFile(path) as archive:
        require(_HEADER in archive.namelist(), f"the archive must contain {_HEADER}", "it does not")
        header = parsed_json(archive.read(_HEADER), f"{_HEADER} must be JSON")
        is_header = isinstance(header, dict) and isinstance(header.get("record"), str)
        require(is_header, f'{_HEADER} must be a JSON object with the key "record"', "it is not")
        arrays: Arrays = {}
        for name in archive.namelist():
            if name != _HEADER:
                with archive.open(name) as member:
                    arrays[name.removesuffix(".npy")] = np.lib.format.read_array(member, allow_pickle=False)
    return header, arrays


def _stored(path: Path, name: str | None) -> Any:
    with Store(path) as store:
        maps, tracks = [[one.name for one in found] for found in (map_summaries(store), track_summaries(store))]
        if name is None:
            names = ", ".join([*maps, *tracks]) or "nothing"
            must = "an entry of a store is loaded by its name"
            raise InvalidInput(sentence(must, f"{path} contains {names}", "Pass name="))
        return load_track(store, name) if name in tracks and name not in maps else load_map(store, name).record


def _import_packages() -> None:
    for package in _PACKAGES:
        import_module(f"hessmap.{package}")


@contextmanager
def _reading(path: str | os.PathLike[str], must: str) -> Iterator[None]:
    """Turn every error into a DataFileError of one line: a foreign file breaks zip, numpy and JSON in many ways."""
    try:
        yield
    except Exception as error:
        cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataFileError(sentence(must, f"{path}: {' '.join(cause.split()).rstrip('.')}")) from error
