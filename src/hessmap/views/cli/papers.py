"""``hessmap papers``: what the papers claim, item by item, and how far each was verified."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hessmap.views.cli.options import AsJson, Html, console, echo_json, echo_written, require_writable, write_text

if TYPE_CHECKING:
    from hessmap.papers import Item, Paper

EXAMPLES = """
[bold]Examples[/bold]

  hessmap papers                      [dim]# how many items have which status[/dim]\n
  hessmap papers 2                    [dim]# every item of paper 2[/dim]\n
  hessmap papers 2 --missing          [dim]# not tried, or only smaller[/dim]\n
  hessmap papers 2 "Table 8"          [dim]# everything about an item[/dim]\n
  hessmap papers --status corrected\n
  hessmap papers --html papers.html   [dim]# a page with filters[/dim]
"""


def papers(
    number: Annotated[int | None, typer.Argument(min=0, max=4, help="One paper, by its number.")] = None,
    item: Annotated[str | None, typer.Argument(help='One item of it, as "Theorem 3" or "Table 8".')] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only items with something left to run.")] = False,
    status: Annotated[str | None, typer.Option(help="Only items of this status.")] = None,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Say what the papers claim, item by item, and how far each claim was verified."""
    from dataclasses import replace

    from hessmap.errors import unknown_name
    from hessmap.papers import STATUSES
    from hessmap.papers import papers as registered

    require_writable(html)
    if status is not None and status not in STATUSES:
        raise unknown_name("status", status, STATUSES)
    chosen = [paper for paper in registered() if number in (None, paper.number)]
    if item is not None:
        chosen = [replace(paper, items=_items_named(paper.items, item)) for paper in chosen]
    is_filtered = missing or status is not None
    if is_filtered:
        chosen = [
            replace(paper, items=tuple(one for one in paper.items if _is_kept(one, missing, status)))
            for paper in chosen
        ]
    if html is not None:
        from hessmap.views.papers.page import papers_page

        echo_written(write_text(html, papers_page(chosen)))
    if as_json:
        echo_json([paper.to_dict() for paper in chosen])
    elif html is None:
        _print(chosen, has_items=number is not None or is_filtered, is_one=item is not None)


def _items_named(items: Sequence[Item], name: str) -> tuple[Item, ...]:
    from hessmap.errors import unknown_name

    found = tuple(item for item in items if item.item.lower() == name.lower())
    if not found:
        raise unknown_name("item of this paper", name, [item.item for item in items])
    return found


def _is_kept(item: Item, missing: bool, status: str | None) -> bool:
    return (not missing or item.is_missing) and status in (None, item.status)


def _print(chosen: Sequence[Paper], has_items: bool, is_one: bool) -> None:
    from hessmap.views.papers.text import item_view, items_view, overview

    if is_one:
        console().print(item_view(chosen[0].items[0]))
    elif has_items:
        for paper in chosen:
            console().print(items_view(paper, paper.items))
    else:
        console().print(overview(chosen))
