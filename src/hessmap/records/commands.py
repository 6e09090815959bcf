"""Commands that are shown to be copied into a shell."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def command_line(*words: str, values: Sequence[str] = ()) -> str:
    """Spell a ``hessmap`` command for a shell.

    Every command that a page or a table shows is built here: a name or a file that came with a store may contain any
    character, and must neither end the command nor be read as an option.

    Args:
        words: The subcommands and options, each a single word of the command.
        values: Positional arguments. They follow ``--`` if one of them begins with a dash.

    Returns:
        The command with every word quoted where the shell needs it.

    Example:
        >>> command_line("map", "compare", values=("run1", "a; rm x"))
        "hessmap map compare run1 'a; rm x'"
        >>> command_line("map", "show", values=("--help",))
        'hessmap map show -- --help'
    """
    separator = ["--"] if any(value.startswith("-") for value in values) else []
    return shlex.join(["hessmap", *words, *separator, *values])
