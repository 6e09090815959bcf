"""Options that several commands share, where they print to, and whether a file can be written at all."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from hessmap.errors import InvalidInput, require, sentence

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
StorePath = Annotated[Path, typer.Option("--store", envvar="HESSMAP_STORE", help="The SQLite file with the records.")]
Html = Annotated[Path | None, typer.Option(help="Write a self-contained page to this file.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of weights and batches.")]
Samples = Annotated[int | None, typer.Option(min=1, help="Number of samples of a listed data set.")]
Side = Annotated[int | None, typer.Option(min=1, help="Scale listed images down to side x side pixels.")]
FIGURES = (".png", ".svg", ".pdf")
STORE = Path("hessmap-runs/hessmap.sqlite")  # records.store.DEFAULT_STORE, which --help does not load


def console(stderr: bool = False) -> Console:
    """Where people read; what stands in brackets is text, not markup."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            """Raise the error again, which the program turns into a quiet exit."""
            raise

    stream = sys.stderr if stderr else sys.stdout
    file = stream if stream.isatty() else cast("IO[str]", WithoutPadding(stream))
    return PipeConsole(file=file, markup=False, highlight=False)


class WithoutPadding:
    """A stream that leaves out the spaces at the ends of lines, which tables are padded with."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r" +$", "", text, flags=re.MULTILINE))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def echo_json(content: Any) -> None:
    """Print what ``--json`` asks for."""
    typer.echo(json.dumps(content, indent=2))


def write_text(path: Path, text: str) -> Path:
    """Write a file, with the folder it lies in."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(sentence("the file must be writable", f"{path} is not ({error.strerror})")) from error
    return path


def echo_written(path: Path) -> None:
    """Say where a file is, beside what is printed for programs."""
    typer.echo(f"Written: {path}", err=True)


def require_writable(path: Path | None, suffixes: tuple[str, ...] = (), *, replaces: bool = False) -> None:
    """Refuse a file that cannot be written, before any work is done for it.

    It is tried and not only asked: permissions do not say what root, a full or a read-only file system can do. Nothing
    is changed and nothing is left behind.

    Args:
        path: The file; None is no file.
        suffixes: Endings that the file may have, if not any.
        replaces: The file is written under another name in the same folder first, as stores and certificates are.

    Raises:
        InvalidInput: If it is a folder or protected, or lies where no file can be made.
    """
    if path is None:
        return
    must = f"a figure file must end in {', '.join(suffixes)}"
    require(not suffixes or path.suffix in suffixes, must, f"got {path.name!r}")
    try:
        file = path.resolve()
        if file.exists():
            _try_to_open(file)
        if replaces or not file.exists():
            _try_to_make(file)
    except (OSError, RuntimeError, ValueError) as error:  # of a loop of links, and of a path with a null character
        reason = getattr(error, "strerror", None) or str(error)
        got = f"{path} is not ({reason[0].lower()}{reason[1:]})"
        raise InvalidInput(sentence("the file must be writable", got, "Name another one")) from error


def _try_to_open(file: Path) -> None:
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not file.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    _require_write_permission(file)
    with file.open("ab"):
        pass


def _try_to_make(file: Path) -> None:
    made: list[Path] = []
    try:
        missing = [folder for folder in file.parents if not folder.exists()]
        _require_write_permission(file.parents[len(missing)])
        for folder in reversed(missing):
            folder.mkdir()
            made.append(folder)
        trial = file.with_name(f".{file.name}.{os.getpid()}")
        trial.open("xb").close()
        trial.unlink()
    finally:
        for folder in reversed(made):
            with suppress(OSError):  # another process has put something there
                folder.rmdir()


def _require_write_permission(path: Path) -> None:
    """Raise for read-only targets, also when run as root."""
    if not path.stat().st_mode & 0o222:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
