"""One run of a study at a time: a lock that the operating system releases however the process ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hessmap.errors import sentence
from hessmap.runs.store.failures import StoreError, store_errors


@contextmanager
def only_run(store: Path, study: str) -> Iterator[None]:
    """Hold the right to run a study into a store; an error names the process that holds it already."""
    path = store.with_name(f"{store.name}.{study.replace('/', '-')}.lock")
    with store_errors(store):
        file = path.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            got = f"process {file.read().strip() or 'unknown'} is running {study} into {store}"
            raise StoreError(sentence("a study must have one run at a time", got, "Wait for it or stop it")) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
