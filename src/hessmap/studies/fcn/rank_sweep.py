"""What the studies of rank against samples, width and depth share: data, losses, initialisations, doubts and view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from hessmap.results import PARTS
from hessmap.studies import Column, Finding, Lines, Row, Series, View
from hessmap.studies.fcn.rank_record import SYMBOLS

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
LOSSES = ("squared", "cross_entropy", "log_cosh")
INITS = ("gaussian", "uniform", "orthogonal")
RANKS = tuple(Series(SYMBOLS[part], line=f"predicted.{part}", points=f"measured.{part}") for part in PARTS)
FRACTIONS = tuple(
    Series(SYMBOLS[part], line=f"predicted_fraction.{part}", points=f"measured_fraction.{part}") for part in PARTS
)


def settings(data: str) -> Iterator[dict[str, Any]]:
    """Every pair of loss and initialisation on the digits; on the larger networks of the other sets the paper's pairs.

    These are all losses with Gaussian weights, and on CIFAR-10 the squared loss with uniform and orthogonal ones.
    """
    for loss, init in product(LOSSES, INITS):
        if data == "digits" or init == "gaussian" or (data == "cifar10" and loss == "squared"):
            yield {"loss": loss, "init": init, "seed": 0}


def doubts(rows: Sequence[Row]) -> Iterator[Finding]:
    """How many of the cases a threshold cannot decide, and whether the predictions stand on firm ranks of the data."""
    is_undecidable = [not all(row[f"measured.{part}.decidable"] for part in PARTS) for row in rows]
    smallest = min(row[f"measured.{part}.gap"] for row in rows for part in PARTS)
    detail = f"{sum(is_undecidable)} of {len(rows)}; the smallest gap is {smallest:.1e}"
    yield Finding("At most 2 % of the cases are undecidable", sum(is_undecidable) <= 0.02 * len(rows), detail)
    num_firm = sum(row["data_ranks.are_decidable"] for row in rows)
    detail = f"in {num_firm} of {len(rows)} cases"
    yield Finding("The ranks of the data are decidable", num_firm == len(rows), detail)


def curves_of(rows: Sequence[Row], x: str) -> Iterator[list[Row]]:
    """The rows of one data set, loss and initialisation at a time, ordered by ``x``."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["loss"], row["init"]), []).append(row)
    for group in groups.values():
        yield sorted(group, key=lambda row: row.number(x))


def sweep_view(x: str, x_label: str) -> View:
    """For each data set: the ranks over ``x`` for each loss, then the same as fractions of the parameters."""
    kinds = (("rank", RANKS, None), ("rank / parameters", FRACTIONS, (0.0, 1.03)))
    figures = tuple(
        Lines(
            title=f"{kind}, {loss.replace('_', '-')}, {data.replace('_', '-')}",
            where={"data": data, "loss": loss},
            x=x,
            series=series,
            x_label=x_label,
            y_label=kind,
            y_limits=limits,
        )
        for data, (kind, series, limits), loss in product(DATA, kinds, LOSSES)
    )
    fields = (x, "data", "loss")
    ranks = tuple(
        Column(f"{kind}.{part}", label)
        for part in PARTS
        for kind, label in (("predicted", SYMBOLS[part].strip("$")), ("measured", "measured"))
    )
    parameters, fraction = Column("num_parameters", "p"), Column("measured_fraction.loss", "H_L / p", ".3f")
    return View(figures, (*fields, parameters, *ranks, fraction), group_by=fields)
