"""The maps of a store as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from hessmap.runs.store import MapSummary
from hessmap.views.tables.contents import Table, terminal_table
from hessmap.views.tables.words import moment, number


def stored_maps_view(summaries: Sequence[MapSummary], store: Path) -> RenderableType:
    """A row per map, oldest first; a sentence where there is none."""
    if not summaries:
        return Text(f"No map is stored in {store}; hessmap map makes one.")
    lines = tuple(
        (
            summary.name,
            moment(summary.created).removesuffix(" UTC"),
            summary.network,
            summary.loss,
            f"{summary.num_parameters:,}",
            f"{summary.num_samples:,}",
            "–" if summary.risk is None else number(summary.risk),
        )
        for summary in summaries
    )
    labels = ("map", "made (UTC)", "network", "loss", "parameters", "samples", "risk")
    return terminal_table(Table(labels, lines, (False, False, False, False, True, True, True)))
