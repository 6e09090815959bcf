"""``hessmap map``: train a small network or take the user's own, map its curvature, and keep the map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessmap.views.cli.default_command import DEFAULT, DefaultCommand, MapGroup, typed_command
from hessmap.views.cli.options import STORE, StorePath
from hessmap.views.cli.stored_maps import compare, list_maps, show

EXAMPLES = """
[bold]Stored maps[/bold]

Every map is stored under its name. A model has a colon in its name; the words list, show and compare have none:

  hessmap map list                              [dim]# what is stored[/dim]\n
  hessmap map show run3 --html run3.html        [dim]# a map again, or its page[/dim]\n
  hessmap map compare run1 run3                 [dim]# what changed, layer by layer[/dim]

[bold]Examples[/bold]

  hessmap map                                   [dim]# 64-30-20-10 relu on digits[/dim]\n
  hessmap map --name run3 --seed 3              [dim]# stored as run3[/dim]\n
  hessmap map --loss squared --certify          [dim]# exact ranks as well[/dim]\n
  hessmap map --widths 64-16-16-10 --activation tanh --epochs 20\n
  hessmap map --data mnist --side 8 --samples 2000\n
  hessmap map my_models:net --data my_data:train [dim]# your own, from this folder[/dim]\n
  hessmap map --json > map.json
"""


def map_curvature(
    context: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A model of your own: an nn.Module, or a callable without arguments that returns one. "
            "It is taken as it is. Without it, a fully connected network is trained.",
        ),
    ] = None,
    data: Annotated[
        str,
        typer.Option(
            help="A data set that 'hessmap data' lists, or one of your own as PACKAGE.MODULE:ATTRIBUTE: "
            "(inputs, targets), a loader, or a function that returns one."
        ),
    ] = "digits",
    samples: Annotated[int | None, typer.Option(help="Use that many samples of a listed data set.")] = None,
    side: Annotated[int | None, typer.Option(help="Scale listed images down to side x side pixels.")] = None,
    loss: Annotated[str, typer.Option(help="cross_entropy, squared or log_cosh.")] = "cross_entropy",
    widths: Annotated[
        str | None, typer.Option(help="Widths of the trained network; unless given, two hidden layers, 30-20.")
    ] = None,
    activation: Annotated[str, typer.Option(help="Activation of the trained network.")] = "relu",
    bias: Annotated[bool, typer.Option("--bias", help="The trained network has biases.")] = False,
    epochs: Annotated[int, typer.Option(help="Passes over the data in training.")] = 40,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.")] = 0,
    twin: Annotated[
        bool, typer.Option("--twin/--no-twin", help="Also map the network without its activations.")
    ] = True,
    certify: Annotated[
        bool | None,
        typer.Option(
            "--certify/--no-certify",
            help="Find the ranks in exact arithmetic too; unless given, where the measured ones are not clear "
            "and it takes seconds. Needs the squared loss and a piecewise linear network.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the map in the store; unless given, the time.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a stored map of that name.")] = False,
    store: StorePath = STORE,
    output: Annotated[
        Path | None, typer.Option(help="Folder for figures and record; unless given, hessmap-runs/map-NAME.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")] = False,
) -> None:
    """Map the curvature of a network: ranks, spectra, layers, verdicts.

    Forms the three Hessians of the network on the data exactly, and holds
    their ranks against the formulas. The linear twin (the same weights
    without activations) is where the formulas are theorems. Figures and
    the record are written into a folder that is named at the end, and the
    record into the store. A network whose Hessians do not fit the memory
    gets estimates of its spectrum and its layers instead of ranks.
    """
    from rich.console import Console

    from hessmap.errors import require
    from hessmap.results import CurvatureEstimates
    from hessmap.runs.store import Store, add_map
    from hessmap.views.cli.references import referenced_model
    from hessmap.views.cli.run_folder import new_folder, new_name, write_map, write_record
    from hessmap.views.cli.subject import chosen_data, chosen_network, trained_model
    from hessmap.views.progress import TerminalProgress
    from hessmap.views.tables import map_view
    from hessmap.views.tables.map_estimates import map_estimates_view

    require(
        model is None or widths is None,
        "a model of your own has its own widths",
        f"--widths {widths} was given with {model}",
        "Leave one of the two out",
    )
    stored_as = new_name(store, name, replace)
    folder = new_folder(output, stored_as)
    aside = Console(stderr=True)
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.maps.curvature_map import curvature_map

        mapped_on = chosen_data(data, samples, side)
        if model is not None:
            mapped = referenced_model(model)
        else:
            network = chosen_network(mapped_on, widths, activation, bias)
            mapped = trained_model(network, mapped_on, loss, epochs, seed, shown)
        title, steps = name or "", shown.start
        found = curvature_map(mapped, mapped_on, loss, twin=twin, certify=certify, title=title, progress=steps)
        shown.start("writing the record and the figures")
        if isinstance(found, CurvatureEstimates):
            paths = [write_record(found, folder)]
        else:
            paths = write_map(found, folder)
            with Store(store, create=True) as opened:
                add_map(opened, stored_as, found, typed_command(context), replace)
    if as_json:
        typer.echo(found.to_json())
    else:
        Console().print(map_estimates_view(found) if isinstance(found, CurvatureEstimates) else map_view(found))
    aside.print(f"Written to {folder}: {', '.join(path.name for path in paths)}", highlight=False)
    if not isinstance(found, CurvatureEstimates):  # a store holds maps with ranks, which can be compared
        aside.print(f"Stored as {stored_as} in {store}: hessmap map show {stored_as}", highlight=False)


map_app = typer.Typer(
    name="map",
    cls=MapGroup,
    help="Map the curvature of a network; list, show and compare stored maps.",
    rich_markup_mode="rich",
)
map_app.command(DEFAULT, cls=DefaultCommand, epilog=EXAMPLES)(map_curvature)
map_app.command("list")(list_maps)
map_app.command("show")(show)
map_app.command("compare")(compare)
