"""``hessmap papers``: what the papers claim, item by item, and how far each was verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from hessmap.cli.options import AsJson, Html, console, echo_json, echo_written, require_writable, write_text

if TYPE_CHECKING:
    from hessmap_research.papers import Item, Paper

EXAMPLES = """
[bold]Examples[/bold]

  hessmap papers                      [dim]# how many items have which status[/dim]\n
  hessmap papers 2                    [dim]# every item of paper 2[/dim]\n
  hessmap papers 2 --missing          [dim]# not tried, or only smaller[/dim]\n
  hessmap papers 2 "Table 8"          [dim]# everything about an item[/dim]\n
  hessmap papers 2 "Table 8" --open   [dim]# on one page, with rows and figures[/dim]\n
  hessmap papers 2 lemma              [dim]# every lemma[/dim]\n
  hessmap papers --status corrected\n
  hessmap papers --html papers.html   [dim]# a page with filters[/dim]
"""


def papers(
    number: Annotated[str | None, typer.Argument(help="One paper, by its number: 0 to 4.")] = None,
    item: Annotated[list[str] | None, typer.Argument(help='Its items of this name: "Theorem 3", S9.4, lemma.')] = None,
    missing: Annotated[bool, typer.Option("--missing", help="Only items with something left to run.")] = False,
    status: Annotated[str | None, typer.Option(help="Only items of this status.")] = None,
    html: Html = None,
    open_page: Annotated[
        bool, typer.Option("--open", help="Show the items of a name on a page in the browser.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the papers' claims, and how far each was verified."""
    from dataclasses import replace

    from hessmap.errors import require_name
    from hessmap_research.papers import STATUSES

    require_writable(html)
    if status is not None:
        require_name("status", status, STATUSES)
    asked = _papers_numbered(number)
    if item:
        asked = [replace(paper, items=paper.items_named(" ".join(item))) for paper in asked]
    if open_page:
        _open_items(asked, is_named=bool(item))
        return
    kept = [replace(paper, items=tuple(_kept(paper.items, missing, status))) for paper in asked]
    if html is not None:
        from hessmap_research.papers.text import papers_page

        echo_written(write_text(html, papers_page(kept, html.parent)))
    if as_json:
        echo_json([paper.to_dict() for paper in kept])
    elif html is None and (number is not None or missing or status is not None):
        for before, after in zip(asked, kept, strict=True):
            if before is not asked[0]:
                console().print()
            _print_items(before, after, missing, status, is_named=bool(item))
    elif html is None:
        from hessmap_research.papers.text import overview

        console().print(overview(kept))


def _open_items(asked: Sequence[Paper], is_named: bool) -> None:
    """Write the page of the named items to a temporary folder and open it."""
    import tempfile
    import webbrowser
    from pathlib import Path

    from hessmap.errors import require
    from hessmap_research.papers.text import item_page

    remedy = 'hessmap papers 2 "Table 8" --open'
    require(is_named, "--open shows the items of a name", "got no name", remedy)
    (paper,) = asked
    path = Path(tempfile.mkdtemp(prefix="hessmap-")) / "item.html"
    echo_written(write_text(path, item_page(paper, paper.items)))
    webbrowser.open(path.as_uri())


def _papers_numbered(number: str | None) -> list[Paper]:
    """All papers, or the one of a number."""
    from hessmap.errors import require
    from hessmap_research.papers import papers as registered

    found = [paper for paper in registered() if number in (None, str(paper.number))]
    remedy = 'hessmap papers names them; an item follows its number, as in: hessmap papers 2 "Table 8"'
    require(bool(found), f"a paper must be a number from 0 to {len(registered()) - 1}", f"got {number!r}", remedy)
    return found


def _kept(items: Sequence[Item], missing: bool, status: str | None) -> Iterator[Item]:
    return (item for item in items if (not missing or item.is_missing) and status in (None, item.status))


def _print_items(before: Paper, after: Paper, missing: bool, status: str | None, is_named: bool) -> None:
    """The items of a paper that are left after the filters; where there are none, a sentence that says so."""
    from hessmap_research.papers.text import items_view, named_items_view, nothing_kept, why_not_kept

    if after.items:
        console().print((named_items_view if is_named else items_view)(after, after.items))
    elif is_named:
        for item in before.items:
            console().print(why_not_kept(item, status))
    else:
        console().print(nothing_kept(after, missing, status))


def add_commands(app: typer.Typer) -> None:
    """Add ``hessmap papers`` to the program."""
    app.command("papers", epilog=EXAMPLES)(papers)
