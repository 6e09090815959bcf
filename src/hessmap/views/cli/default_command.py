"""``hessmap map`` maps, unless its first word is one of the commands about stored maps."""

from __future__ import annotations

import shlex
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from hessmap.errors import InvalidInput, unknown_name

DEFAULT = "measure"
_WORDS = "hessmap.words"


class MapGroup(TyperGroup):
    """Commands of which one may be left out: without the word of a command, a map is made."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        if first in self.commands:
            return super().parse_args(ctx, args)
        if first and not first.startswith("-") and ":" not in first:
            known = [name for name in self.commands if name != DEFAULT]
            refused = unknown_name("a command of hessmap map", first, known)
            raise InvalidInput(f"{refused} A model of your own has a colon: package.module:attribute.")
        return super().parse_args(ctx, [DEFAULT, *args])


class DefaultCommand(TyperCommand):
    """The command that may be left out: it speaks of itself as the group, and keeps the words it was given."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        words = list(args)
        context = super().make_context(parent.info_name, args, parent=parent.parent, **extra)
        context.meta[_WORDS] = words
        return context


def typed_command(context: typer.Context) -> str:
    """The command as one would type it."""
    return shlex.join(["hessmap", "map", *context.meta[_WORDS]])
