"""The content of the data sets that studies name: a changed file means changed cases."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hessmap.results import data_hash


def hash_of_data(name: str) -> str:
    """A hash of the files of a data set, of its samples where it has no files, or "" for no data."""
    if not name:
        return ""
    from hessmap.datasets import available, by_name

    here = {status.name: status for status in available() if status.is_present}
    if name in here and here[name].files:
        return _hash_of_files(here[name].files)
    samples = by_name(name)  # a data set that is not here says so, and how to get it
    return data_hash(samples.inputs.numpy(), samples.targets.numpy())


def _hash_of_files(paths: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths, key=lambda path: Path(path).name):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]
