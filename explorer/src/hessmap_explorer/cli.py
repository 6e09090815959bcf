"""``hessmap serve``: everything that hessmap knows, in a browser on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hessmap.cli.options import STORE, StorePath
from hessmap.errors import require

EXAMPLES = """
[bold]Examples[/bold]

  hessmap serve                                  [dim]# the embedded example[/dim]\n
  hessmap serve my_models:net --data my_data:train\n
  hessmap serve --port 0 --store runs.sqlite     [dim]# any free port[/dim]

The page is for this machine alone: it listens on 127.0.0.1, and the link that it prints contains a secret token.
"""


def serve(
    model: Annotated[
        str | None,
        typer.Argument(
            metavar="PACKAGE.MODULE:ATTRIBUTE",
            help="A model of your own, to be mapped from the page. Without it, a small network is trained on digits.",
        ),
    ] = None,
    data: Annotated[str, typer.Option(help="As for hessmap map: a name, or PACKAGE.MODULE:ATTRIBUTE.")] = "digits",
    loss: Annotated[str, typer.Option(help="cross_entropy, squared or log_cosh.")] = "cross_entropy",
    initial: Annotated[str | None, typer.Option(help="The model before its training, as for hessmap certify.")] = None,
    store: StorePath = STORE,
    results: Annotated[
        Path | None, typer.Option("--results", help="Results of studies to show. Default: the stored ones.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 8642,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page.")] = False,
) -> None:
    """Show maps, trainings, studies and predictions in a browser.

    Ctrl-C ends it. Maps and studies that are started from the page are
    hessmap commands in processes of their own; what they store stays.
    """
    from hessmap_explorer.server import bound_socket
    from hessmap_explorer.server import serve as serve_explorer
    from hessmap_explorer.settings import Explorer

    for name, reference in (("a model", model), ("--initial", initial)):
        must = f"{name} of your own is named as package.module:attribute"
        require(reference is None or ":" in reference, must, f"got {reference!r}")
    require(initial is None or model is not None, "--initial goes with a model of your own", "there is no model")
    listening = bound_socket(port)
    explorer = Explorer(
        port=listening.getsockname()[1],
        store=store,
        results=results,
        model=model,
        initial=initial,
        data=data,
        loss=loss,
    )

    def announce() -> None:
        typer.echo(f"hessmap explorer: {explorer.link}")
        typer.echo("Open the link in a browser of this machine. Ctrl-C ends it.", err=True)
        if browser:
            typer.launch(explorer.link)

    serve_explorer(explorer, listening, announce)


def add_commands(app: typer.Typer) -> None:
    """Add ``hessmap serve`` to the program."""
    app.command("serve", epilog=EXAMPLES)(serve)
