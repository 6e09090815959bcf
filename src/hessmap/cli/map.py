"""``hessmap map``: train a small network or take the user's own, map its curvature, and store the map."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hessmap.cli.options import STORE, Samples, Seed, Side, StorePath, console
from hessmap.cli.stored_maps import compare, directions, list_maps, show
from hessmap.errors import InvalidInput, unknown_name

_DEFAULT = "measure"

EXAMPLES = """
[bold]Stored maps[/bold]

Every map is stored under its name. A model has a colon in its name; the words below have none:

  hessmap map list                              [dim]# what is stored[/dim]\n
  hessmap map show run3 --html run3.html        [dim]# a map again, or its page[/dim]\n
  hessmap map compare run1 run3                 [dim]# layer by layer[/dim]

[bold]Examples[/bold]

  hessmap map                                   [dim]# 64-30-20-10 relu on digits[/dim]\n
  hessmap map --name run3 --seed 3              [dim]# stored as run3[/dim]\n
  hessmap map --loss squared --certify          [dim]# exact ranks as well[/dim]\n
  hessmap map --widths 64-16-16-10 --activation tanh --epochs 20\n
  hessmap map --data mnist --side 8 --samples 2000\n
  hessmap map my_models:net --data my_data:train  [dim]# your own[/dim]\n
  hessmap map my_models:gpt --data my_data:tokens --seconds 300\n
  hessmap map my:net --data my:batches --objective my:f\n
  hessmap map --json > map.json
"""


def map_curvature(
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
    samples: Samples = None,
    side: Side = None,
    loss: Annotated[
        str,
        typer.Option(
            help="cross_entropy, squared (half the sum of squares), mse (their mean), l1, bce (of logits), log_cosh; "
            "PACKAGE.MODULE:ATTRIBUTE for one of your own; own for the loss that the model computes itself."
        ),
    ] = "cross_entropy",
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE:FUNCTION",
            help="A function (model, batch) that returns the mean loss of a batch or one loss per sample, in place of "
            "--loss; --data names the batches.",
        ),
    ] = None,
    widths: Annotated[
        str | None, typer.Option(help="Widths of the trained network; unless given, two hidden layers, 30-20.")
    ] = None,
    activation: Annotated[str, typer.Option(help="Activation of the trained network.")] = "relu",
    bias: Annotated[bool, typer.Option("--bias", help="The trained network has biases.")] = False,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the data in training.")] = 40,
    seed: Seed = 0,
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
    seconds: Annotated[
        float,
        typer.Option(
            min=1.0, help="How long it may take: Hessians that take longer are not formed, and products are planned."
        ),
    ] = 60.0,
    dense: Annotated[
        bool | None,
        typer.Option(
            "--dense/--estimate",
            help="Form the Hessians in any case, or estimate in any case; unless given, by time and memory.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the map in the store; unless given, the time.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a stored map of that name.")] = False,
    store: StorePath = STORE,
    output: Annotated[
        Path | None, typer.Option(help="Folder for figures and record; unless given, hessmap-runs/map-NAME.")
    ] = None,
    files: Annotated[
        bool, typer.Option("--files/--no-files", help="Write the folder; the store has the record in any case.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on stdout, nothing else.")] = False,
) -> None:
    """Map the curvature of a network: its sharpness, layers, spectra, ranks.

    The whole network comes first: largest eigenvalue, largest stable step,
    trace, negative share, effective dimension; then a row per layer. Where
    the three Hessians fit the memory and the time, they are formed exactly,
    and their ranks are compared with the formulas. The linear twin (the same
    weights without activations) is where the formulas are theorems. Larger
    networks get estimates with their errors instead, within --seconds.
    Figures and the record are written into a folder that is named at the
    end, and the record into the store.
    """
    from hessmap.cli.stored_maps import new_folder, new_name, write_map
    from hessmap.cli.subject import mapped_problem, mapped_subject
    from hessmap.errors import require
    from hessmap.records import MapOptions, Store, add_map
    from hessmap.views.progress import TerminalProgress
    from hessmap.views.tables import map_view

    require(
        model is None or widths is None,
        "a model of your own has its own widths",
        f"--widths {widths} was given with {model}",
        "Leave one of the two out",
    )
    options = MapOptions(
        model=model,
        data=data,
        samples=samples,
        side=side,
        loss=loss,
        widths=widths,
        activation=activation,
        bias=bias,
        epochs=epochs,
        seed=seed,
        twin=twin,
        certify=certify,
        seconds=seconds,
        dense=dense,
        name=name,
        objective=objective,
    )
    stored_as = new_name(store, name, replace)
    folder = new_folder(output, stored_as) if files else None
    with TerminalProgress(keeps_steps=True) as shown:
        shown.start(f"loading torch and the data ({data})")
        from hessmap.maps.curvature_map import curvature_map

        mapped, mapped_on = mapped_subject(options, shown)
        found = curvature_map(
            mapped_problem(options, mapped, mapped_on),
            seconds=seconds,
            dense=dense,
            twin=twin,
            certify=certify,
            title=name or "",
            progress=shown.start,
        )
        shown.start("writing the record" if folder is None else "writing the record and the figures")
        with Store(store, create=True) as opened:
            add_map(opened, stored_as, found, options, replace)
        paths = [] if folder is None else write_map(found, folder)
    if as_json:
        typer.echo(found.to_json())
    else:
        console().print(map_view(found))
    aside = console(stderr=True)
    if paths:
        aside.print(f"Written to {folder}: {', '.join(path.name for path in paths)}")
    aside.print(f"Stored as {stored_as} in {store}: hessmap map show {stored_as}")


class MapGroup(TyperGroup):
    """Commands of which one may be left out: unless the first word is one about stored maps, a map is made."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if first in self.commands:
            return super().parse_args(ctx, args)
        if first and not first.startswith("-") and ":" not in first:
            known = [name for name in self.commands if name != _DEFAULT]
            refused = unknown_name("a command of hessmap map", first, known)
            raise InvalidInput(f"{refused} A model of your own has a colon: package.module:attribute.")
        return super().parse_args(ctx, [_DEFAULT, *args])


class DefaultCommand(TyperCommand):
    """The command that may be left out: it speaks of itself as the group."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return super().make_context(parent.info_name, args, parent=parent.parent, **extra)


map_app = typer.Typer(
    name="map",
    cls=MapGroup,
    help="Map the curvature of a network; list, show and compare stored maps.",
    rich_markup_mode="rich",
)
map_app.command(_DEFAULT, cls=DefaultCommand, epilog=EXAMPLES)(map_curvature)
map_app.command("list")(list_maps)
map_app.command("show")(show)
map_app.command("compare")(compare)
map_app.command("directions")(directions)
