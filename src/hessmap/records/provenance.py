"""Where a result comes from: enough to make it again."""

from __future__ import annotations

import hashlib
import platform
import sys
import time
from dataclasses import dataclass
from functools import cache
from importlib import metadata

import numpy as np
from numpy.typing import NDArray

from hessmap.records.record import Record

_PACKAGES = ("hessmap", "torch", "numpy", "scipy", "python-flint")


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
