"""Commands of other packages: the entry points of the group ``hessmap.commands``.

An entry point is a function that adds commands or groups of commands to a Typer program. It is loaded whenever the
program starts, so its module must be light: what a command needs is imported when it is called. A package that is
missing or cannot be loaded leaves every other command as it is; its own name then prints what to install.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

import typer
from typer.main import get_command_name

from hessmap.errors import MissingExtra, is_interruption, require, sentence

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
