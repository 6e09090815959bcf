"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` once the block has ended without an error.

    Args:
        path: File to write; missing folders are created, an existing file is replaced.

    Yields:
        BinaryIO: The temporary file, in the same folder and open for writing.

    Raises:
        OSError: If the folder or the file cannot be written.

    Notes:
        The content is forced to the disk before the file is renamed, and renaming is one step for the system: after a
        crash the file is the old or the new one. The temporary name is new and random, so that nobody can have put a
        link there. An error or interrupt inside the block leaves ``path`` as it was and no temporary file behind.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with atomic_write(Path(folder) / "new" / "result.bin") as file:
        ...         _ = file.write(b"whole")
        ...     (Path(folder) / "new" / "result.bin").read_bytes()
        b'whole'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
