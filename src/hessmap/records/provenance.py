"""Where a result comes from: enough to make it again; the training run and the data sets behind it."""

from __future__ import annotations

import hashlib
import platform
import sys
import time
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hessmap.records.record import Record

_PACKAGES = ("hessmap", "torch", "numpy", "scipy", "python-flint")
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Provenance(Record):
    """Versions, number format, seed, data and time of a measurement.

    Attributes:
        versions: Version by package.
        dtype: Number format. Defaults to "float64".
        seed: Seed. Default: None.
        data_hash: Hash of the data. Default: None.
        created: Time (UTC). Default: empty.
        notes: Notes. Default: none.
    """

    versions: dict[str, str]
    dtype: str = "float64"
    seed: int | None = None
    data_hash: str | None = None
    created: str = ""
    notes: tuple[str, ...] = ()


def provenance(
    dtype: str = "float64", seed: int | None = None, data_hash: str | None = None, notes: tuple[str, ...] = ()
) -> Provenance:
    """Make the provenance of a result that is computed now, with the versions of the installed packages.

    Args:
        dtype: Number format. Defaults to "float64".
        seed: Seed. Default: None.
        data_hash: Hash of the data. Default: None.
        notes: Notes. Default: none.

    Returns:
        The provenance.
    """
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Provenance(dict(_versions()), dtype, seed, data_hash, created, notes)


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Read once a process: the files behind it cost milliseconds."""
    versions = [("python", platform.python_version()), ("platform", sys.platform)]
    for name in _PACKAGES:
        try:
            versions.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            versions.append((name, "not installed"))
    return tuple(versions)


def data_hash(*arrays: NDArray[np.generic]) -> str:
    """Hash the contents, shapes and number formats of arrays.

    Args:
        *arrays: The arrays, in order.

    Returns:
        16 hexadecimal digits.

    Example:
        >>> data_hash(np.arange(3)) == data_hash(np.arange(3))
        True
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}{array.dtype.str}".encode())
        values = np.ascontiguousarray(array).reshape(-1)
        is_of_numbers = values.dtype.kind in "biufc"
        digest.update(values.view(np.uint8).data if is_of_numbers else values.tobytes())  # not a copy of a gigabyte
    return digest.hexdigest()[:16]


@dataclass(frozen=True, eq=False, repr=False)
class TrainingRun(Record):
    """The course of a training: one entry per recorded moment, the first before any step.

    Attributes:
        moments: Epoch of each entry (iteration, for a method without epochs).
        loss: Mean over all training samples, without any penalty.
        accuracy: Share of correctly classified training samples; empty unless the targets are labels.
        gradient_norm: Euclidean norm of the gradient of what was minimised, including the penalty.
        converged: Whether the goal of the training was reached; None if it had no goal besides its length.
        ending: Why it stopped, in words.
        settings: Loss, optimiser, batch size, learning rate and other arguments.
        seconds: Seconds that it took. Defaults to 0.
        provenance: Versions, number format, seed and data. Default: None.
    """

    moments: NDArray[np.int64]
    loss: Floats
    accuracy: Floats
    gradient_norm: Floats
    converged: bool | None
    ending: str
    settings: dict[str, object]
    seconds: float = field(default=0.0, compare=False)
    provenance: Provenance | None = field(default=None, compare=False)
    summary_fields: ClassVar[tuple[str, ...]] = (
        "num_moments",
        "final_loss",
        "final_accuracy",
        "final_gradient_norm",
        "converged",
        "ending",
    )

    @property
    def num_moments(self) -> int:
        return int(self.moments[-1])

    @property
    def final_loss(self) -> float:
        return float(self.loss[-1])

    @property
    def final_accuracy(self) -> float | None:
        return float(self.accuracy[-1]) if self.accuracy.size else None

    @property
    def final_gradient_norm(self) -> float:
        return float(self.gradient_norm[-1])


@dataclass(frozen=True, eq=False, repr=False)
class DataSetStatus(Record):
    """A data set: its size, and whether and where its files are on this machine.

    Attributes:
        name: Name of the data set.
        is_present: Whether all its files were found.
        folder: Folder of the files, or the one where they are expected; "embedded" for data that comes with hessmap.
        num_train: Number of training samples.
        num_test: Number of test samples.
        image_shape: (channels, height, width).
        num_classes: Number of classes.
        files: Paths of the files that were found. Default: none.
        missing: Names of the files that were not found. Default: none.
        num_bytes: Total size of the files that were found. Defaults to 0.
        source: Where the files can be downloaded, as a sentence. Default: empty.
        is_original: Whether the unpacked content is that of the published files. Default: None, not verified.
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
