"""The commands under one roof: errors are one sentence and exit code 2, ``--debug`` shows the traceback."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from hessmap.errors import HessmapError
from hessmap.views.cli import certify, data, function, predict
from hessmap.views.cli.map import map_app
from hessmap.views.cli.study import study_app
from hessmap.views.cli.threads import leave_busy_cores_alone
from hessmap.views.cli.track import track_app

_EXAMPLES = """
[bold]Examples[/bold]

  hessmap map                                 [dim]# a small network on digits[/dim]\n
  hessmap map my_models:net --data my_data:train\n
  hessmap map compare run1 run3               [dim]# what changed, layer by layer[/dim]\n
  hessmap track show run1 --figure run1.png   [dim]# curvature along a training[/dim]\n
  hessmap predict 64-30-20-10 --input-rank 61 [dim]# from integers alone[/dim]\n
  hessmap certify                             [dim]# a bound on the error on unseen data[/dim]\n
  hessmap function                            [dim]# how many dimensions its function has[/dim]\n
  hessmap study list                          [dim]# the papers' questions[/dim]\n
  hessmap data                                [dim]# what is here, how to get more[/dim]

Every command has --help with examples of its own, and --json for programs.
"""


class Roof(TyperGroup):
    """A group that turns a HessmapError of any command into one sentence and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HessmapError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"hessmap: {error}", err=True)
            raise typer.Exit(2) from error


app = typer.Typer(
    name="hessmap",
    cls=Roof,
    help="Map the curvature of a neural network: [bold]predict[/bold] the ranks of its Hessians from the "
    "architecture, [bold]measure[/bold] them on a model and data, explain them layer by layer.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(map_app)
app.add_typer(track_app)
app.command("predict", epilog=predict.EXAMPLES)(predict.predict)
app.command("certify", epilog=certify.EXAMPLES)(certify.certify)
app.command("function", epilog=function.EXAMPLES)(function.function)
app.command("data", epilog=data.EXAMPLES)(data.data)
app.add_typer(study_app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hessmap {version('hessmap')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version and leave."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the whole traceback of an error."),
) -> None:
    pass


def main() -> None:
    """The ``hessmap`` program."""
    leave_busy_cores_alone()
    app()
