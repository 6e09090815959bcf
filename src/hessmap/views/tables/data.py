"""The data sets of a machine as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import DataSetStatus
from hessmap.views.tables.contents import new_table


def data_view(statuses: Sequence[DataSetStatus], folders: Sequence[str]) -> RenderableType:
    """A row per data set, then how to get each that is missing, then the folders that were searched."""
    table = new_table()
    table.add_column("data set")
    table.add_column("here")
    for head in ("training", "test", "image", "classes"):
        table.add_column(head, justify="right", overflow="fold")
    table.add_column("folder", overflow="fold")
    for status in statuses:
        table.add_row(
            status.name,
            _presence(status),
            f"{status.num_train:,}",
            f"{status.num_test:,}",
            "×".join(str(size) for size in status.image_shape),
            str(status.num_classes),
            status.folder if status.is_present else "",
        )
    missing = [_how_to_get(status) for status in statuses if not status.is_present]
    searched = Text("Files are looked for in: " + ", ".join(folders), style="dim")
    return Group(Padding(table, (0, 0, 1, 0)), *missing, searched)


def _presence(status: DataSetStatus) -> Text:
    if not status.is_present:
        return Text("no", style="yellow")
    if status.is_original is None:
        return Text("yes", style="green")
    return Text("verified", style="green") if status.is_original else Text("CHANGED", style="bold red")


def _how_to_get(status: DataSetStatus) -> RenderableType:
    text = Text.assemble((status.name, "bold"), f" lacks {len(status.missing)} files: {', '.join(status.missing)}.\n")
    text.append(f"{status.source}.\nPut them into {status.folder}")
    return Padding(text, (0, 0, 1, 0))
