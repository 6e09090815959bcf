"""The program: its commands, those of other packages, errors in one sentence, threads that leave busy cores alone."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command_name

from hessmap.cli import applications, certify, function, predict
from hessmap.cli.function import learning_app
from hessmap.cli.map import EXAMPLES as MAP_EXAMPLES
from hessmap.cli.map import map_curvature
from hessmap.cli.options import AsJson, console, echo_json
from hessmap.cli.store import maps_app, tracks_app
from hessmap.errors import (
    EXIT_OF_CLOSED_PIPE,
    EXIT_OF_INTERRUPTION,
    HessmapError,
    MissingExtra,
    is_interruption,
    require,
    sentence,
)

GROUP = "hessmap.commands"


class Package(NamedTuple):
    """A package of this project beside the library: its name, its folder in a clone and what its command is for."""

    name: str
    folder: str
    purpose: str

    @property
    def remedy(self) -> str:
        return f"Install it with: pip install ./{self.folder} (in a clone), or from its wheel"


# The commands of this project that another package adds.
PACKAGE_OF = {
    "study": Package("hessmap-research", "research", "Run and show the studies of the five papers."),
    "papers": Package("hessmap-research", "research", "Show what the papers claim, item by item, and its status."),
    "serve": Package("hessmap-explorer", "explorer", "Show maps, trainings and predictions in a browser."),
}


def add_commands_of_packages(app: typer.Typer) -> None:
    """Add the commands of all installed packages, and for each one that is missing a command that names its package."""
    entries = sorted(set(entry_points(group=GROUP)), key=lambda entry: (entry.name, entry.value))
    for entry in entries:
        _add_commands_of(entry, app)
    for name, package in PACKAGE_OF.items():
        text = sentence(f"hessmap {name} needs {package.name}", "it is not installed", package.remedy)
        _add_unavailable(app, name, f"{package.purpose} Needs {package.name}.", MissingExtra(text))


def _add_commands_of(entry: EntryPoint, app: typer.Typer) -> None:
    """Add all commands of an entry point, or none of them where any step of it fails."""
    added = typer.Typer()
    try:
        entry.load()(added)
        taken = sorted(_names_in(added) & _names_in(app))
        require(not taken, "a package must not replace a command", f"{', '.join(taken)} exists")
    except (Exception, SystemExit) as error:  # whatever a foreign package raises, the other commands work
        if is_interruption(error):
            raise
        known = PACKAGE_OF.get(entry.name)
        package = known.name if known else entry.dist.name if entry.dist else entry.value
        got = f"{entry.value} cannot be loaded ({type(error).__name__}: {error})"
        remedy = known.remedy if known else f"Repair or uninstall {package}"
        unavailable = MissingExtra(sentence(f"hessmap {entry.name} needs {package}", got, remedy))
        unavailable.__cause__ = error  # for --debug
        _add_unavailable(app, entry.name, f"Not available: {package} cannot be loaded.", unavailable)
    else:
        app.registered_commands += added.registered_commands
        app.registered_groups += added.registered_groups


def _add_unavailable(app: typer.Typer, name: str, purpose: str, error: MissingExtra) -> None:
    """Add a command that raises the error, whatever words follow it; nothing where the program has the command."""
    if name in _names_in(app):
        return

    @app.command(name, help=purpose, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def unavailable() -> None:
        raise error


def _names_in(app: typer.Typer) -> set[str]:
    """The commands and groups that a program has so far."""
    commands = {one.name or get_command_name(getattr(one.callback, "__name__", "")) for one in app.registered_commands}
    groups = {str(one.name or (one.typer_instance and one.typer_instance.info.name)) for one in app.registered_groups}
    return commands | groups


_EXAMPLES = """
[bold]Examples[/bold]

  hessmap map                                 [dim]# a small network on digits[/dim]\n
  hessmap map my_models:net --data my_data:train\n
  hessmap maps compare run1 run3              [dim]# what changed, layer by layer[/dim]\n
  hessmap tracks show run1 --figure run1.png  [dim]# curvature along a training[/dim]\n
  hessmap step my:training                    [dim]# is the next step stable?[/dim]\n
  hessmap predict 64-30-20-10 --input-rank 61 [dim]# ranks from integers alone[/dim]\n
  hessmap serve                               [dim]# all of it in a browser[/dim]

Every command has --help with examples, and --json for programs.
"""

_ORDER = ("map", "maps", "tracks", "step", "predict", "certify", "function", "plane", "learning", "data", "serve")
_HELP_OPTIONS = ["-h", "--help"]
_PACKAGES = ("hessmap", "hessmap_explorer", "hessmap_research")
_OUTPUT_ERRORS = (errno.EBADF, errno.EIO, errno.ENOSPC)
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Roof(TyperGroup):
    """A group that turns an error of any command into one sentence; ``--debug`` shows the traceback.

    The exit code is 2 for what hessmap refuses, and 1 for unexpected errors: a mistake of hessmap, or an error of
    the user's own model or data; 130 after Ctrl-C, and 141 where the reader of a pipe has gone.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for command in _commands_below(self):
            _hide_types_of_flags(command.get_params(typer.Context(command, help_option_names=_HELP_OPTIONS)))

    def list_commands(self, ctx: Any) -> list[str]:
        """Commands in the order in which a newcomer needs them; those of other packages last."""
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))

    def get_params(self, ctx: Any) -> Any:
        parameters = super().get_params(ctx)
        _hide_types_of_flags(parameters)
        return parameters

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise typer.Exit(EXIT_OF_CLOSED_PIPE) from error
        except (Exception, KeyboardInterrupt) as error:
            if is_interruption(error):
                typer.echo("hessmap: interrupted", err=True)
                raise typer.Exit(EXIT_OF_INTERRUPTION) from error
            is_for_typer = hasattr(error, "exit_code") or isinstance(error, typer.Abort)
            if is_for_typer or ctx.params.get("debug"):
                raise
            is_refusal = isinstance(error, HessmapError)
            typer.echo(f"hessmap: {error if is_refusal else _unforeseen_error_text(error)}", err=True)
            raise typer.Exit(2 if is_refusal else 1) from error


def _commands_below(group: Any) -> Iterator[Any]:
    for command in getattr(group, "commands", {}).values():
        yield command
        yield from _commands_below(command)


def _hide_types_of_flags(parameters: Any) -> None:
    """Help shows no type for options without a value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""


def _unforeseen_error_text(error: BaseException) -> str:
    """What was raised and where, in one line: by code of the user's own that was called, else by hessmap."""
    if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS and error.filename is None:
        return sentence("the output must be writable", str(error.strerror))
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if _is_users(Path(frame.filename))]
    place = (own or frames)[-1]
    must = "your own code must run without errors" if own else "this is a bug in hessmap"
    text = " ".join(str(error).split()) or "no message"
    got = f"{type(error).__name__}: {text} ({Path(place.filename).name}, line {place.lineno})"
    return sentence(must, got, "hessmap --debug with the same arguments shows the traceback")


def _is_users(file: Path) -> bool:
    """Whether a file is in the current folder, and neither installed nor part of a package of this project."""
    loaded = [module for name in _PACKAGES if (module := sys.modules.get(name)) is not None]
    is_ours = any(file.is_relative_to(folder) for module in loaded for folder in module.__path__)
    return file.is_relative_to(Path.cwd()) and not is_ours and "site-packages" not in file.parts


_DATA_EXAMPLES = """
[bold]Examples[/bold]

  hessmap data\n
  hessmap data --verify             [dim]# compare files with the published ones[/dim]\n
  HESSMAP_DATA=~/data hessmap data  [dim]# look there first[/dim]
"""


def data(
    verify: Annotated[bool, typer.Option("--verify", help="Hash the content of every file.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets: those available here, and how to get the others."""
    from hessmap.datasets import available, data_folders

    statuses = available(verify=verify)
    folders = [str(folder) for folder in data_folders()]
    if as_json:
        echo_json({"folders": folders, "data_sets": [status.to_dict() for status in statuses]})
        return
    from hessmap.views.tables import data_view

    console().print(data_view(statuses, folders))


app = typer.Typer(
    name="hessmap",
    cls=Roof,
    help="The curvature (loss Hessian) of neural networks: measured on a model and data, predicted from the "
    "architecture, explained layer by layer.",
    epilog=_EXAMPLES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": _HELP_OPTIONS},
)
app.command("map", epilog=MAP_EXAMPLES)(map_curvature)
app.add_typer(maps_app)
app.add_typer(tracks_app)
app.command("step", epilog=applications.STEP_EXAMPLES)(applications.step)
app.command("predict", epilog=predict.EXAMPLES)(predict.predict)
app.command("certify", epilog=certify.EXAMPLES)(certify.certify)
app.command("function", epilog=function.EXAMPLES)(function.function)
app.command("plane", epilog=applications.PLANE_EXAMPLES)(applications.plane)
app.add_typer(learning_app)
app.command("data", epilog=_DATA_EXAMPLES)(data)
add_commands_of_packages(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hessmap {version('hessmap')}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
    debug: bool = typer.Option(False, "--debug", help="Show the whole traceback of an error."),
) -> None:
    pass


def main() -> None:
    """The ``hessmap`` program."""
    leave_busy_cores_alone()
    app()


def leave_busy_cores_alone() -> None:
    """Limit the threads to the cores that are free, before the libraries that read the limit are loaded.

    Threads of OpenBLAS wait for each other by spinning: on two cores that others keep busy, eigenvalues with two
    threads took ten times as long as with one. A variable that the user sets is left as it is.
    """
    if not hasattr(os, "getloadavg") or any(name in os.environ for name in _THREAD_VARIABLES):
        return
    num_cores = os.cpu_count() or 1
    num_free = max(1, num_cores - round(os.getloadavg()[0]))
    if num_free < num_cores:
        os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(num_free)))
