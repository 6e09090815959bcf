"""Commands of other packages: the entry points of the group ``hessmap.commands``.

An entry point is a function that adds its commands to the program. It is loaded whenever the program starts, so its
module must be light: what a command needs is imported when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

import typer

from hessmap.errors import MissingExtra, sentence

GROUP = "hessmap.commands"
# Commands of this project that a package beside the library adds: the package, its folder in a clone, what it does.
_PACKAGE_OF = {
    "study": ("hessmap-research", "research", "Run and show the studies of the five papers."),
    "papers": ("hessmap-research", "research", "Show what the papers claim, item by item, and its status."),
    "serve": ("hessmap-explorer", "explorer", "Show maps, trainings and predictions in a browser."),
}


def add_commands_of_packages(app: typer.Typer) -> None:
    """Add the commands of all installed packages, and for those that are missing one that names the package."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    for entry in found.values():
        _add_commands_of(entry, app)
    for name, (package, folder, purpose) in _PACKAGE_OF.items():
        if name not in found:
            got = "it is not installed"
            remedy = f"Install it with: pip install ./{folder} (in a clone), or from its wheel"
            _add_unavailable(
                app, name, f"{purpose} Needs {package}.", sentence(f"hessmap {name} needs {package}", got, remedy)
            )


def _add_commands_of(entry: EntryPoint, app: typer.Typer) -> None:
    try:
        add_commands: Callable[[typer.Typer], None] = entry.load()
    except Exception as error:  # whatever a foreign package raises, the other commands work
        text = sentence(
            f"hessmap {entry.name} must be importable", f"{entry.value} is not ({error})", "Install it again"
        )
        _add_unavailable(app, entry.name, f"Not available: {entry.value} cannot be imported.", text)
    else:
        add_commands(app)


def _add_unavailable(app: typer.Typer, name: str, purpose: str, text: str) -> None:
    @app.command(name, help=purpose, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def unavailable() -> None:
        raise MissingExtra(text)
