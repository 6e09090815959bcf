"""What the studies of rank against channels, filter, patch and samples share: settings, figures, columns and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from operator import eq, le
from typing import Any

from hessmap.results import PARTS
from hessmap.studies import Column, Finding, Lines, Mark, Row, Series
from hessmap.studies.rank_comparison import SYMBOLS

EMBEDDED = ("digits", "gaussian")
DATA = ("digits", "mnist", "fashion_mnist", "cifar10", "gaussian")
ACTIVATIONS = {"identity": "linear", "relu": "ReLU"}
LOSSES = {"squared": "squared", "cross_entropy": "cross-entropy"}

# Lines are our ranks or bounds, dashes the paper's bounds (of the linear network, under ReLU), circles measurements.
SERIES = {
    "identity": tuple(
        Series(SYMBOLS[part], line=f"predicted.{part}", dashed=f"printed.{part}", points=f"measured.{part}")
        for part in PARTS
    ),
    "relu": tuple(Series(SYMBOLS[part], dashed=f"printed.{part}", points=f"measured.{part}") for part in PARTS),
}
COLUMNS: tuple[Column | str, ...] = (
    "data",
    "network",
    "loss",
    Column("num_parameters", "p"),
    *(
        Column(f"{kind}.{part}", label)
        for part in PARTS
        for kind, label in (("predicted", SYMBOLS[part].strip("$")), ("measured", "meas."))
    ),
    Column("printed.loss", "printed"),
)


def settings(data: str) -> tuple[dict[str, str], ...]:
    """Linear and ReLU, squared loss and cross-entropy; Gaussian data have no labels, and squared loss alone."""
    losses = ("squared",) if data == "gaussian" else tuple(LOSSES)
    return tuple({"activation": activation, "loss": loss} for activation, loss in product(ACTIVATIONS, losses))


def words_of(activation: str) -> str:
    """What stands behind the sizes of a network in its text."""
    return "" if activation == "identity" else f" {activation}"


def sweep_figures(
    x: str,
    x_label: str,
    series: Mapping[str, tuple[Series, ...]],
    facet: str = "",
    marks: tuple[Mark, ...] = (),
    **options: Any,
) -> Iterator[Lines]:
    """The ranks over ``x``, a figure for each data set and setting; ``series`` has those of each activation."""
    for data in DATA:
        for setting in settings(data):
            activation, loss = setting["activation"], setting["loss"]
            yield Lines(
                title=f"{ACTIVATIONS[activation]}, {LOSSES[loss]}, {data.replace('_', '-')}",
                where={"data": data, **setting},
                facet=facet,
                x=x,
                series=series[activation],
                x_label=x_label,
                y_label="rank",
                marks=marks,
                **options,
            )


def of_activation(rows: Sequence[Row], activation: str) -> list[Row]:
    return [row for row in rows if row["activation"] == activation]


def equality(claim: str, rows: Sequence[Row], measured: str, printed: str, fails: bool = False) -> Iterator[Finding]:
    """Whether a measured rank is the printed one in every row, or with ``fails`` that it is not."""
    if rows:
        num_equal = sum(row.number(measured) == row.number(printed) for row in rows)
        yield Finding(claim, (num_equal < len(rows)) == fails, f"right in {num_equal} of {len(rows)} cases")


def bounds_hold(rows: Sequence[Row]) -> Iterator[Finding]:
    """Linear networks are within the paper's bounds; how many ranks reach them."""
    linear = of_activation(rows, "identity")
    if linear:
        pairs = [(row.number(f"measured.{part}"), row[f"printed.{part}"]) for row in linear for part in PARTS]
        num_within, num_reached = (sum(relation(*pair) for pair in pairs) for relation in (le, eq))
        detail = f"{num_within} of {len(pairs)} ranks are within them, {num_reached} reach them"
        yield Finding("Linear: the paper's bounds hold", num_within == len(pairs), detail)


def linear_bounds_under_relu(rows: Sequence[Row]) -> Iterator[Finding]:
    """ReLU networks are not within them; ``error_at_printed`` says how much of the Hessian is beyond."""
    relu = of_activation(rows, "relu")
    if relu:
        beyond = {
            part: [row for row in relu if row.number(f"measured.{part}") > row[f"printed.{part}"]] for part in PARTS
        }
        counts = ", ".join(f"{SYMBOLS[part].strip('$')} in {len(found)}" for part, found in beyond.items())
        missed = max((row["error_at_printed.loss"] for row in beyond["loss"]), default=0.0)
        detail = f"{counts} of {len(relu)} cases; at most {100 * missed:.2g} % of H_L (Frobenius) is beyond"
        yield Finding("ReLU: ranks are above the bounds of linear networks", any(beyond.values()), detail)
