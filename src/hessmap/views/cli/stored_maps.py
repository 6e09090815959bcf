"""``hessmap map list | show | compare``: the maps of a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessmap.views.cli.options import STORE, AsJson, StorePath, echo_json

Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a stored map; hessmap map list shows them.")]
Html = Annotated[Path | None, typer.Option(help="Write a self-contained page to this file.")]


def list_maps(store: StorePath = STORE, as_json: AsJson = False) -> None:
    """List the stored maps."""
    from hessmap.runs.store import MapSummary, Store, map_summaries

    summaries: tuple[MapSummary, ...] = ()
    if store.exists():
        with Store(store) as opened:
            summaries = map_summaries(opened)
    if as_json:
        echo_json([summary.__dict__ for summary in summaries])
        return
    from rich.console import Console

    from hessmap.views.tables.map import stored_maps_view

    Console().print(stored_maps_view(summaries, store))


def show(name: Name, store: StorePath = STORE, html: Html = None, as_json: AsJson = False) -> None:
    """Show a stored map: ranks, layers, verdicts, and the command that made it."""
    from hessmap.runs.store import Store, load_map

    with Store(store) as opened:
        stored = load_map(opened, name)
    if html is not None:
        from hessmap.views.map_page import map_page
        from hessmap.views.page import write_page

        _say_written(write_page(map_page(stored), html))
    if as_json:
        typer.echo(stored.record.to_json())
        return
    from rich.console import Console
    from rich.text import Text

    from hessmap.views.tables import map_view

    command = f": {stored.command}" if stored.command else ""
    Console().print(Text.assemble((stored.name, "bold"), command), map_view(stored.record), sep="\n")


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The name of the map to start from.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The name of the map to hold against it.")],
    store: StorePath = STORE,
    html: Html = None,
    figure: Annotated[Path | None, typer.Option(help="Write the bars to this .png, .svg or .pdf file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say what changed from one map to another, layer by layer: two checkpoints of a model, for example.

    Where architecture, data or loss differ, it is said what cannot be compared.
    """
    from hessmap.maps.comparison import compare_maps
    from hessmap.runs.store import Store, load_map

    with Store(store) as opened:
        before, after = load_map(opened, old), load_map(opened, new)
    comparison = compare_maps(before.record, after.record, old, new)
    if html is not None:
        from hessmap.views.map_page import comparison_page
        from hessmap.views.page import write_page

        _say_written(write_page(comparison_page(comparison, before, after), html))
    if figure is not None:
        from hessmap.views.plots import comparison_figure, write_figure

        _say_written(write_figure(comparison_figure(comparison), figure, salt="comparison"))
    if as_json:
        typer.echo(comparison.to_json(indent=2))
        return
    from rich.console import Console

    from hessmap.views.tables import comparison_view

    Console().print(comparison_view(comparison))


def _say_written(path: Path) -> None:
    typer.echo(f"Written: {path}", err=True)
