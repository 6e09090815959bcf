"""Which data sets a machine has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hessmap.records.record import Record


@dataclass(frozen=True, eq=False, repr=False)
class DataSetStatus(Record):
    """One data set: what it holds, whether all its files were found, where, and where they can be had.

    ``image_shape`` is (channels, height, width); ``folder`` is where the files are, or where they are wanted.
    ``is_original`` tells whether the unpacked content is that of the published files; None if not verified.
    """

    name: str
    is_present: bool
    folder: str
    num_train: int
    num_test: int
    image_shape: tuple[int, ...]
    num_classes: int
    files: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    num_bytes: int = 0
    source: str = ""
    is_original: bool | None = None
    summary_fields: ClassVar[tuple[str, ...]] = (
        "name",
        "is_present",
        "folder",
        "num_train",
        "num_test",
        "image_shape",
        "num_bytes",
        "missing",
    )
