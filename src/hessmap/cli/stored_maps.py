"""``hessmap map list | show | compare``: the maps of a store, and the place of a new one."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hessmap.cli.options import (
    FIGURES,
    STORE,
    AsJson,
    Html,
    StorePath,
    console,
    echo_json,
    echo_written,
    require_writable,
    write_text,
)
from hessmap.errors import require

if TYPE_CHECKING:
    from hessmap.records import CurvatureMap

_FIGURES_OF_MAP = ("density", "layers", "spectrum")
_MAP_FILES = ("map.json", *(f"{name}{suffix}" for name in _FIGURES_OF_MAP for suffix in (".png", ".svg")))
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a stored map; hessmap map list shows them.")]


def list_maps(store: StorePath = STORE, as_json: AsJson = False) -> None:
    """List the stored maps."""
    from hessmap.records import MapSummary, Store, map_summaries

    summaries: tuple[MapSummary, ...] = ()
    if store.exists():
        with Store(store) as opened:
            summaries = map_summaries(opened)
    if as_json:
        echo_json([summary.to_dict() for summary in summaries])
        return
    from hessmap.views.tables.map import stored_maps_view

    console().print(stored_maps_view(summaries, store))


def show(name: Name, store: StorePath = STORE, html: Html = None, as_json: AsJson = False) -> None:
    """Show a stored map: ranks, layers, verdicts, and the command that made it."""
    from hessmap.records import Store, load_map

    require_writable(html)
    with Store(store) as opened:
        stored = load_map(opened, name)
    if html is not None:
        from hessmap.views.map_page import map_page

        echo_written(write_text(html, map_page(stored)))
    if as_json:
        typer.echo(stored.record.to_json())
        return
    from rich.text import Text

    from hessmap.views.tables import map_view

    command = f": {stored.command}" if stored.command else ""
    console().print(Text.assemble((stored.name, "bold"), command), map_view(stored.record), sep="\n")


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
    require_writable(html)
    require_writable(figure, FIGURES)
    from hessmap.maps.comparison import compare_maps
    from hessmap.records import Store, load_map

    with Store(store) as opened:
        before, after = load_map(opened, old), load_map(opened, new)
    comparison = compare_maps(before.record, after.record, old, new)
    if html is not None:
        from hessmap.views.map_page import comparison_page

        echo_written(write_text(html, comparison_page(comparison, before, after)))
    if figure is not None:
        from hessmap.views.plots import comparison_figure, write_figure

        echo_written(write_figure(comparison_figure(comparison), figure, salt="comparison"))
    if as_json:
        typer.echo(comparison.to_json(indent=2))
        return
    from hessmap.views.tables import comparison_view

    console().print(comparison_view(comparison))


def new_name(store: Path, name: str | None, replace: bool) -> str:
    """The name to store a map under: the given one, which must be free unless it is replaced, or the time.

    It is asked for before any work is done, so that a wrong name or store costs nothing.
    """
    require(
        name is None or re.fullmatch(r"[\w.-]+", name) is not None,
        "a name of a run must be made of letters, digits, '.', '-' and '_'",
        f"got {name!r}",
        "Use --output for a path",
    )
    from hessmap.records import Store, free_name, require_free_map

    wanted = time.strftime("%Y%m%d-%H%M%S") if name is None else name
    require_writable(store, replaces=True)
    if not store.exists():
        return wanted
    with Store(store) as opened:
        opened.require_sound()
        if name is None:
            return free_name(opened, "map", wanted)
        if not replace:
            require_free_map(opened, name)
    return wanted


def new_folder(output: Path | None, name: str) -> Path:
    """The folder of a map, in which its files can be written; it is made when they are."""
    folder = output or Path("hessmap-runs") / f"map-{name}"
    for file in _MAP_FILES:
        require_writable(folder / file)
    return folder


def write_map(found: CurvatureMap, folder: Path) -> list[Path]:
    """The record and the figures; the paths that were written."""
    from hessmap.views.plots import layers_figure, map_density_figure, save_figure, spectrum_figure

    written = [write_text(folder / "map.json", found.to_json())]
    written += save_figure(map_density_figure(found), folder, "density")
    written += save_figure(layers_figure(found), folder, "layers")
    if found.network.is_dense:
        written += save_figure(spectrum_figure(found), folder, "spectrum")
    return written
