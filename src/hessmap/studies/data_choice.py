"""The content of the data sets that studies name."""

from __future__ import annotations

import functools

from hessmap.results import data_hash


@functools.lru_cache(maxsize=16)
def hash_of_data(name: str) -> str:
    """A hash of the samples of a data set of `hessmap.datasets`, or "" for no data."""
    if not name:
        return ""
    from hessmap import datasets

    data = getattr(datasets, name)()
    return data_hash(data.inputs.numpy(), data.targets.numpy())
