"""Tables for the readable form of objects in a notebook."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with one row of heads."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_facts(caption: str, facts: Iterable[tuple[str, str]]) -> str:
    """A table of names and values below a caption."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
        for name, value in facts
    )
    return f"<table><caption>{html.escape(caption)}</caption>{rows}</table>"
