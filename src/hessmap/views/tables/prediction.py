"""Predicted ranks and the data sets of this machine as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import HESSIAN_SYMBOLS, PARTS, DataSetStatus, Part, RankPrediction, RankValue
from hessmap.views.tables.contents import HESSIAN_NAMES, FittingTable, Table, new_table

_IN_THE_TITLE = {"widths", "bias", "activation", "loss"}


def prediction_view(prediction: RankPrediction, title: str = "") -> RenderableType:
    """Show three predicted ranks with their kind, then references, the integers behind them, and assumptions.

    Args:
        prediction: The prediction.
        title: Heading. Default: none.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
    ranks: dict[Part, RankValue] = {part: getattr(prediction, part) for part in PARTS}
    head = [Text(title, style="italic")] if title else []
    return Group(
        *head,
        FittingTable(rank_table(prediction)),
        *_section("Sources", (f"{HESSIAN_SYMBOLS[part]}: {_source(rank)}" for part, rank in ranks.items())),
        *_section("Computed from", _integers(prediction)),
        *_section("Assumed", prediction.assumptions),
    )


def rank_table(prediction: RankPrediction) -> Table:
    """A line for each Hessian; numbers keep all their digits on any terminal."""
    lines = tuple(
        (
            HESSIAN_NAMES[part],
            f"{rank.value:,}",
            f"{prediction.num_parameters:,}",
            f"{rank.value / prediction.num_parameters:.1%}",
            rank.kind_text,
        )
        for part, rank in ((part, getattr(prediction, part)) for part in PARTS)
    )
    is_number, is_key = (False, True, True, True, False), (True, False, False, False, False)
    return Table(("Hessian", "rank", "of", "share", "kind"), lines, is_number, is_key)


def _source(rank: RankValue) -> str:
    """The reference, and the evidence for what is not proved."""
    if rank.num_cases is None:
        return rank.reference
    return f"{rank.reference} (not proved; no counterexample in {rank.num_cases:,} networks)"


def _integers(prediction: RankPrediction) -> list[str]:
    """The inputs by name: numbers with their value, flags only where they are set."""
    named = [
        name.replace("_", " ") + ("" if value is True else f" {value}")
        for name, value in prediction.inputs.items()
        if value is not None and value is not False and name not in _IN_THE_TITLE
    ]
    return [", ".join(named)] if named else []


def _section(head: str, lines: Iterable[str]) -> list[RenderableType]:
    shown = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    return [Text(head, style="bold"), *shown] if shown else []


def data_view(statuses: Sequence[DataSetStatus], folders: Sequence[str]) -> RenderableType:
    """Show a row per data set, how to get those that are missing, and the folders that were searched.

    Args:
        statuses: The data sets.
        folders: The folders.

    Returns:
        RenderableType: Text and tables for a rich console.
    """
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
