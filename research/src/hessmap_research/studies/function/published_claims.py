"""What Figure 1 of the paper claims, asked of trainings at its own size: of those on the same data, the one that ends
lowest.

A training is at a minimum here if the least gradient norm of its objective, with free slopes at kinks, is at most a
tenth of the norm of the penalty's gradient, 2 ridge ||W||. At a minimum the gradients of risk and penalty cancel, so
that this is the share of either that is left. It does not change when the objective is multiplied by a number, as a
mean over fifty outputs in place of their sum is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

from hessmap_research.runner.claims import Claim, claim_id
from hessmap_research.runner.row import Row

TRUE_RANK = 4
UNCHANGED = 1.0  # a penalty that is as strong at first as later
_PUBLISHED_COST = 6.0
NUM_OUTPUTS, NUM_LAYERS = 50, 13
# The paper's lambda = 0.05 / L beside a mean squared error: a mean over samples of the sum over the fifty outputs, or a
# mean over both, as torch has it. The latter weighs the penalty fifty times as much.
RIDGES = {"samples": 0.05 / NUM_LAYERS, "samples and outputs": NUM_OUTPUTS * 0.05 / NUM_LAYERS}
_AT_MINIMUM = 0.1  # of the norm of the penalty's gradient


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    for mean_over, scale in dict.fromkeys((row["mean_over"], row["scale"]) for row in rows):
        tried = [row for row in rows if (row["mean_over"], row["scale"]) == (mean_over, scale)]
        chosen = _lowest(tried)
        where = f"Mean over {mean_over}, inputs of deviation {scale:g}"
        for base, words, name, is_right in (
            ("middle-rank", f"the middle layer has centred rank {TRUE_RANK}", "middle.rank", _is_true_rank),
            ("relu-change", "ReLU changes the middle layer by at most 5 %", "middle.nonlinearity", _is_small),
            ("cost", "||W||^2 / L is within 1 of the paper's 6", "cost_per_layer", _is_published),
        ):
            yield _of_all(claim_id(base, mean_over, scale), f"{where}: {words}", chosen, name, is_right)
        yield _split_claim(claim_id("layer-costs-rank", mean_over, scale), where, chosen)
        if len(tried) > len(chosen):
            yield _plain_claim(claim_id("stronger-penalty-lower", mean_over, scale), where, tried)


def _lowest(rows: Sequence[Row]) -> list[Row]:
    """Of the trainings on the same data the one that ends lowest."""
    seeds = dict.fromkeys(row["seed"] for row in rows)
    return [
        min((row for row in rows if row["seed"] == seed), key=lambda row: row.number("objective")) for seed in seeds
    ]


def _split_claim(name: str, where: str, rows: Sequence[Row]) -> Claim:
    inside = [row for row in rows if row["split.end"] > row["split.start"]]
    detail = ", ".join(
        f"{row['split.inside_per_layer']:.2f} at rank {row['split.rank']}, layers {row['split.start']} to "
        f"{row['split.end']}"
        for row in inside
    )
    near = [abs(row.number("split.inside_per_layer") / row.number("split.rank") - 1) <= 0.1 for row in inside]
    claim = f"{where}: a layer inside the bottleneck costs its rank, to a tenth"
    if len(inside) == len(rows) and (all(near) or _are_minima(rows)):
        return Claim.counted(name, claim, sum(near), len(near), detail)
    return Claim(name, claim, None, f"{detail}; {_no_minima(rows)}" if len(inside) == len(rows) else detail)


def _plain_claim(name: str, where: str, rows: Sequence[Row]) -> Claim:
    """Whether descent with a penalty that is stronger at first ends lower than with the same penalty all along."""
    plain = [row for row in _lowest(rows) if row["first_penalty"] == UNCHANGED]
    ends = (f"{row.number('objective'):.3g} ({row['first_penalty']:g}, rank {row['middle.rank']})" for row in rows)
    claim = f"{where}: the lowest end has a penalty that is stronger at first"
    return Claim(name, claim, not plain, f"objective by first penalty: {', '.join(ends)}")


def _is_true_rank(value: float) -> bool:
    return value == TRUE_RANK


def _is_small(value: float) -> bool:
    return value <= 0.05


def _is_published(value: float) -> bool:
    return abs(value - _PUBLISHED_COST) <= 1


def _of_all(name: str, claim: str, rows: Sequence[Row], field: str, holds: Any) -> Claim:
    values = [row.number(field) for row in rows]
    detail = ", ".join(f"{value:.3g}" for value in values)
    if all(map(holds, values)) or _are_minima(rows):
        return Claim(name, claim, all(map(holds, values)), detail)
    return Claim(name, claim, None, f"{detail}; {_no_minima(rows)}")


def relative_gradient(row: Row) -> float:
    """The least gradient norm with free slopes at kinks over the norm of the penalty's gradient."""
    norm = sqrt(NUM_LAYERS * row.number("cost_per_layer"))
    return row.number("least_gradient_norm") / (2 * RIDGES[row["mean_over"]] * norm)


def _are_minima(rows: Sequence[Row]) -> bool:
    """What is said of minima is not refuted by a training that did not reach one."""
    return all(relative_gradient(row) <= _AT_MINIMUM for row in rows)


def _no_minima(rows: Sequence[Row]) -> str:
    shares = ", ".join(f"{relative_gradient(row):.2g}" for row in rows)
    return f"training did not reach a minimum: a gradient of {shares} of the penalty's is left"
