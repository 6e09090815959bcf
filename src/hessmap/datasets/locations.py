"""Where data files are looked for, and how one is found and unpacked."""

from __future__ import annotations

import gzip
import lzma
import os
import zlib
from pathlib import Path

from hessmap.errors import DataFileError, sentence

ENVIRONMENT_VARIABLE = "HESSMAP_DATA"
SYSTEM_FOLDER = Path("/usr/share/datasets")  # where Debian's dataset-* packages install
PACKINGS = ("", ".gz", ".xz")

_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"


def data_folders() -> tuple[Path, ...]:
    """The folders that may hold data sets, in the order they are searched.

    ``HESSMAP_DATA`` if it is set, then the user's cache folder, then the folder of Debian's data packages.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    given = os.environ.get(ENVIRONMENT_VARIABLE)
    own = (Path(given).expanduser(),) if given else ()
    return (*own, Path(cache) / "hessmap" / "data", SYSTEM_FOLDER)


def found_file(folder: str, stem: str) -> Path | None:
    """The first existing ``<data folder>/<folder>/<stem>``, plain or packed, or None."""
    for parent in data_folders():
        for packing in PACKINGS:
            path = parent / folder / f"{stem}{packing}"
            if path.is_file():
                return path
    return None


def unpacked(path: Path) -> bytes:
    """The content of a plain, gzip or xz file; the first bytes decide, not the name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "misnamed.xz"
    ...     _ = path.write_bytes(gzip.compress(b"pixels"))
    ...     unpacked(path)
    b'pixels'
    """
    try:
        content = path.read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
        elif content.startswith(_XZ_MAGIC):
            content = lzma.decompress(content)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise DataFileError(
            sentence("a packed data file must unpack to its end", f"{path} does not ({error})", "Fetch it again")
        ) from error
    except OSError as error:
        raise DataFileError(sentence("a data file must be readable", f"{path} is not ({error})")) from error
    if not content:
        raise DataFileError(sentence("a data file must hold data", f"{path} is empty", "Fetch it again"))
    return content
