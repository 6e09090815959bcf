"""What the studies of rank against samples, width and depth share: data, losses, initialisations and view."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from hessmap.results import PARTS
from hessmap.studies import Column, Lines, View
from hessmap.studies.rank_comparison import FRACTIONS, RANKS, SYMBOLS

DATA = ("digits", "mnist", "fashion_mnist", "cifar10")
LOSSES = ("squared", "cross_entropy", "log_cosh")
INITS = ("gaussian", "uniform", "orthogonal")


def settings(data: str) -> Iterator[dict[str, Any]]:
    """Every pair of loss and initialisation on the digits; on the larger networks of the other sets the paper's pairs.

    These are all losses with Gaussian weights, and on CIFAR-10 the squared loss with uniform and orthogonal ones.
    """
    for loss, init in product(LOSSES, INITS):
        if data == "digits" or init == "gaussian" or (data == "cifar10" and loss == "squared"):
            yield {"loss": loss, "init": init, "seed": 0}


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
