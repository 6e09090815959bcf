"""Options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")]
StorePath = Annotated[Path, typer.Option("--store", envvar="HESSMAP_STORE", help="The SQLite file with the records.")]
STORE = Path("hessmap-runs/hessmap.sqlite")  # runs.store.DEFAULT_STORE, without loading the room for --help


def echo_json(content: Any) -> None:
    """Print what ``--json`` asks for."""
    typer.echo(json.dumps(content, indent=2))
