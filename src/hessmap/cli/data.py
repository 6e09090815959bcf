"""``hessmap data``: which data sets are here, and how to get the others."""

from __future__ import annotations

from typing import Annotated

import typer

from hessmap.cli.options import AsJson, console, echo_json

EXAMPLES = """
[bold]Examples[/bold]

  hessmap data\n
  hessmap data --verify             [dim]# compare files with the published ones[/dim]\n
  HESSMAP_DATA=~/data hessmap data  [dim]# look there first[/dim]
"""


def data(
    verify: Annotated[bool, typer.Option("--verify", help="Hash the content of every file.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets: what is here, and how to get the rest."""
    from hessmap.datasets import available, data_folders

    statuses = available(verify=verify)
    folders = [str(folder) for folder in data_folders()]
    if as_json:
        echo_json({"folders": folders, "data_sets": [status.to_dict() for status in statuses]})
        return
    from hessmap.views.tables import data_view

    console().print(data_view(statuses, folders))
