"""A rank prediction as a table."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from hessmap.records import HESSIAN_SYMBOLS, PARTS, Part, RankPrediction, RankValue
from hessmap.views.tables.contents import HESSIAN_NAMES, FittingTable, Table

_IN_THE_TITLE = {"widths", "bias", "activation", "loss"}


def prediction_view(prediction: RankPrediction, title: str = "") -> RenderableType:
    """The three ranks with their kind of truth, then their sources, the integers behind them, the assumptions."""
    ranks: dict[Part, RankValue] = {part: getattr(prediction, part) for part in PARTS}
    head = [Text(title, style="italic")] if title else []
    return Group(
        *head,
        FittingTable(rank_table(prediction)),
        *_section("Sources", (f"{HESSIAN_SYMBOLS[part]}: {_source(rank)}" for part, rank in ranks.items())),
        *_section("Made from", _integers(prediction)),
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
            rank.truth,
        )
        for part, rank in ((part, getattr(prediction, part)) for part in PARTS)
    )
    is_number, is_key = (False, True, True, True, False), (True, False, False, False, False)
    return Table(("Hessian", "rank", "of", "share", "kind of truth"), lines, is_number, is_key)


def _source(rank: RankValue) -> str:
    """The reference, and the evidence for what is not proved."""
    if rank.num_cases is None:
        return rank.reference
    return f"{rank.reference} (not proved; no counterexample in {rank.num_cases:,} networks)"


def _integers(prediction: RankPrediction) -> list[str]:
    named = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in prediction.inputs.items()
        if value is not None and name not in _IN_THE_TITLE
    ]
    return [", ".join(named)] if named else []


def _section(head: str, lines: Iterable[str]) -> list[RenderableType]:
    shown = [Padding(Text(line), (0, 0, 0, 2)) for line in lines]
    return [Text(head, style="bold"), *shown] if shown else []
