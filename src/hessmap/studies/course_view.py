"""How a network along its training is judged and drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hessmap.results import PARTS
from hessmap.studies import Finding, Lines, Row, Series
from hessmap.studies.rank_comparison import SYMBOLS


def collapse(name: str, row: Row, full_ranks: Sequence[int]) -> Iterator[Finding]:
    """The weights keep their ranks ``full_ranks``, and H_f vanishes at the end, so that H_L has the rank of H_o."""
    weights = [row.array(f"weight_ranks.layer_{number}") for number in range(1, len(full_ranks) + 1)]
    lost = sum(int((ranks < rank).sum()) for ranks, rank in zip(weights, full_ranks, strict=True))
    detail = f"{lost} of {sum(ranks.size for ranks in weights)} measured ranks are below it"
    yield Finding(f"{name}: the weights keep their full rank along training", lost == 0, detail)
    outer, functional = row.array("ranks.outer_product"), row.array("ranks.functional")
    detail = f"H_o {outer[0]:.0f} to {outer[-1]:.0f}, H_f {functional[0]:.0f} to {functional[-1]:.0f}"
    claim = f"{name}: at the end the rank of H_L is that of H_o, and that of H_f is 0"
    collapses = row.array("ranks.loss")[-1] == outer[-1] and functional[-1] == 0
    yield Finding(claim, bool(collapses), detail)


def loss_vanishes(name: str, row: Row) -> Finding:
    detail = f"{row['final_risk']:.1e}, with a gradient norm of {row['gradient_norm']:.1e}"
    return Finding(f"{name}: the loss falls to 1e-30", row["final_risk"] <= 1e-30, detail)


def starts_as_predicted(name: str, row: Row, predicted: str, source: str = "the formulas") -> Finding:
    pairs = [(row.number(f"initial.{part}"), row.number(f"{predicted}.{part}")) for part in PARTS]
    detail = ", ".join(f"{measured:.0f} of {wanted:.0f}" for measured, wanted in pairs)
    holds = all(measured == wanted for measured, wanted in pairs)
    return Finding(f"{name}: at the start the ranks are those of {source}", holds, detail)


def course_figures(
    name: str, where: Mapping[str, Any], num_layers: int, rank_limits: tuple[float, float]
) -> tuple[Lines, ...]:
    """Ranks of the weights, ranks of the Hessians, and the sizes of loss, gradient and H_f, over the training."""
    common: dict[str, Any] = {"where": where, "facet": "data", "x": "moments", "x_label": "epochs, then evaluations"}
    layers = range(1, num_layers + 1)
    weights = tuple(Series(f"$W^{number}$", line=f"weight_ranks.layer_{number}") for number in layers)
    sizes = {"loss": "risk", r"$\|H_f\| / \|H_L\|$": "functional_share", "gradient norm": "gradient_norms"}
    series = tuple(Series(label, line=field) for label, field in sizes.items())
    ranks = tuple(Series(SYMBOLS[part], line=f"ranks.{part}") for part in PARTS)
    return (
        Lines(title=f"{name}, weights", series=weights, y_label="rank", y_limits=rank_limits, **common),
        Lines(title=f"{name}, Hessians", series=ranks, y_label="rank", **common),
        Lines(title=f"{name}, sizes", series=series, y_scale="log", **common),
    )
