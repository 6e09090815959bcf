"""Options that several commands share, where they print to, and whether a file can be written at all."""

from __future__ import annotations

import json
import os
import re
import sys
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
Samples = Annotated[int | None, typer.Option(min=1, help="Use that many samples of a listed data set.")]
Side = Annotated[int | None, typer.Option(min=1, help="Scale listed images down to side x side pixels.")]
FIGURES = (".png", ".svg", ".pdf")
STORE = Path("hessmap-runs/hessmap.sqlite")  # runs.store.DEFAULT_STORE, without loading the room for --help


def console(stderr: bool = False) -> Console:
    """Where people read; what stands in brackets is text, not markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    file = stream if stream.isatty() else cast("IO[str]", WithoutPadding(stream))
    return Console(file=file, markup=False, highlight=False)


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


def require_writable(path: Path | None, suffixes: tuple[str, ...] = ()) -> None:
    """Say before the work, and not after it, that a file cannot be written; None is no file."""
    if path is None:
        return
    must = f"a figure file must end in {', '.join(suffixes)}"
    require(not suffixes or path.suffix in suffixes, must, f"got {path.name!r}")
    require(not path.is_dir(), "a file must be named", f"{path} is a folder")
    require(can_be_written(path), "a file must lie where a file can be written", f"{path} does not")


def can_be_written(path: Path) -> bool:
    """Whether a file or folder can be made at a path, or written to where there is one."""
    place = next(place for place in (path.absolute(), *path.absolute().parents) if place.exists())
    return os.access(place, os.W_OK) and (place == path.absolute() or place.is_dir())
