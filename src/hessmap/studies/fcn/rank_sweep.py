"""What the studies of rank against samples, width and depth share: their data, losses and initialisations, their view.

Images are scaled down by area means to the input dimension of the network. The first 300 samples are standardised
pixel by pixel, and smaller sample sizes are the first of these: rare pixels then weigh as much as common ones, and
the smallest kept eigenvalues stay clear of the threshold (on raw digits they come down to 1e-11 of the norm).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS
from hessmap.studies import Case, Column, Finding, Lines, Row, Series, View
from hessmap.studies.fcn.rank_record import SYMBOLS, rank_record

if TYPE_CHECKING:
    from hessmap.curvature import Problem
    from hessmap.networks import FullyConnected

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
LOSSES = ("squared", "cross_entropy", "log_cosh")
INITS = ("gaussian", "uniform", "orthogonal")
NUM_SAMPLES = 300
_PAPERS_PAIRS = (*((loss, "gaussian") for loss in LOSSES), ("squared", "uniform"), ("squared", "orthogonal"))


def settings(data: str) -> tuple[dict[str, Any], ...]:
    """All pairs of loss and initialisation on the digits, the paper's on the larger networks of the other sets."""
    pairs = product(LOSSES, INITS) if data == "digits" else _PAPERS_PAIRS
    return tuple({"loss": loss, "init": init, "seed": 0} for loss, init in pairs)


def measure(case: Case) -> dict[str, Any]:
    return rank_record(*network_and_problem(case))


def network_and_problem(case: Case) -> tuple[FullyConnected, Problem]:
    """The network of a case with its weights, and its data: the first ``num_samples`` of a standardised pool."""
    from hessmap.curvature import Problem
    from hessmap.datasets import by_name
    from hessmap.networks import FullyConnected

    network = FullyConnected(case["widths"], bias=case.get("bias", False))
    side, classes = isqrt(network.input_dim), range(network.output_dim)
    pool = by_name(case["data"], num_samples=NUM_SAMPLES, side=side, classes=classes, standardise=True)
    count = case.get("num_samples", NUM_SAMPLES)
    model = network.build(seed=case["seed"], init=case["init"])
    return network, Problem(model, case["loss"], pool.inputs[:count], pool.targets[:count])


def seconds(case: Case) -> float:
    """Three dense spectra, cubic in the number of parameters."""
    num_parameters: int = sum(before * after for before, after in pairwise(case["widths"]))
    return 0.15 + 0.4 * float(num_parameters / 1000) ** 3


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
    kinds = {"rank": ("predicted", "measured"), "rank / parameters": ("predicted_fraction", "measured_fraction")}
    figures = tuple(
        Lines(
            title=f"{label}, {loss.replace('_', '-')}, {data.replace('_', '-')}",
            where={"data": data, "loss": loss},
            x=x,
            series=tuple(Series(SYMBOLS[part], line=f"{line}.{part}", points=f"{points}.{part}") for part in PARTS),
            x_label=x_label,
            y_label=label,
            y_limits=(0.0, 1.03) if line == "predicted_fraction" else None,
        )
        for data, (label, (line, points)), loss in product(DATA, kinds.items(), LOSSES)
    )
    fields = (x, "data", "loss")
    ranks = tuple(
        Column(f"{kind}.{part}", label)
        for part in PARTS
        for kind, label in (("predicted", SYMBOLS[part].strip("$")), ("measured", "measured"))
    )
    parameters, fraction = Column("num_parameters", "p"), Column("measured_fraction.loss", "H_L / p", ".3f")
    return View(figures, (*fields, parameters, *ranks, fraction), group_by=fields)
