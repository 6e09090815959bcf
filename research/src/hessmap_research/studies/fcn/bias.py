"""Rank with a bias in every layer: the paper's sweeps, and the bottlenecks that it leaves open.

With bias the inputs enter by their centred rank, and the place of a bottleneck matters. The formulas as printed stand
beside the corrected ones: they are for hidden layers no narrower than min(r + 1, K), and take the rank r uncentred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hessmap.records import PARTS
from hessmap_research.runner.claims import Answer, Claim
from hessmap_research.runner.row import Row
from hessmap_research.runner.study import Case, Study, grid
from hessmap_research.runner.view import Column, Lines, Mark, Series, View
from hessmap_research.studies.fcn.rank_sweeps import DATA, LOSSES, network_and_problem, rank_record, seconds
from hessmap_research.studies.hessian_ranks import FRACTIONS, RANK_CHECKS, RANKS, SYMBOLS, decidability_claims
from hessmap_research.studies.random_networks.fully_connected import Setting, printed_ranks

if TYPE_CHECKING:
    from hessmap.networks import FullyConnected
    from hessmap.problem.problem import Problem

_SAMPLES = (2, 5, 10, 20, 30, 40, 50, 60, 100, 200, 300)
_WIDTHS = (2, 5, 10, 15, 20, 25, 30, 35, 40, 45)
_NARROW = (1, 2, 3, 4, 6, 8, 10, 12)
# The paper's networks; on the digits at most 1,500 parameters.
_PAPERS = {"samples": (64, 50, 20, 20, 20, 10), "depth": (16, 25, 10), "bottleneck": (64, 20, 20, 20, 10)}
_SMALLER = {"samples": (64, 14, 11, 11, 11, 10), "depth": (16, 11, 5), "bottleneck": (64, 14, 14, 14, 10)}


def cases(data: str) -> tuple[Case, ...]:
    sizes = _SMALLER if data == "digits" else _PAPERS
    input_dim, hidden, output_dim = sizes["depth"]
    all_widths = range(2, 17) if data == "digits" else _WIDTHS
    samples = ({"num_samples": count, "widths": sizes["samples"]} for count in _SAMPLES)
    widths = ({"width": width, "widths": (64, width, width, 10)} for width in all_widths)
    depths = ({"num_hidden": count, "widths": (input_dim, *[hidden] * count, output_dim)} for count in range(10))
    sweeps = {"samples": samples, "width": widths, "depth": depths}
    squared = [{"sweep": sweep, "loss": "squared", **case} for sweep, some in sweeps.items() for case in some]
    shared: dict[str, Any] = {"bias": True, "init": "gaussian", "seed": 0}
    return tuple({**case, **shared} for case in (*squared, *_bottlenecks(sizes["bottleneck"])))


def _bottlenecks(widths: tuple[int, ...]) -> Iterator[Case]:
    """One narrow layer, at each place among the hidden ones; and in the middle, where the last bias is stationary."""
    everywhere = grid(sweep=["bottleneck"], loss=LOSSES, position=[1, 2, 3], narrow=_NARROW)
    stationary = grid(sweep=["stationary"], loss=["squared"], position=[2], narrow=_NARROW)
    for case in (*everywhere, *stationary):
        place = case["position"]
        yield {**case, "widths": (*widths[:place], case["narrow"], *widths[place + 1 :])}


def measure(case: Case) -> dict[str, Any]:
    network, problem = network_and_problem(case)
    if case["sweep"] == "stationary":
        problem = _with_stationary_last_bias(case, network, problem)
    record = rank_record(network, problem)
    ranks = {name: value for name, value in record["data_ranks"].items() if name != "are_decidable"}
    setting = Setting(network.widths, network.has_bias, case["loss"], **ranks)
    printed = {part: values[0] for part, values in printed_ranks(setting).items()}
    beyond_print = {
        "predicted": {part: rank - printed[part] for part, rank in record["predicted"].items()},
        "measured": {part: rank.value - printed[part] for part, rank in record["measured"].items()},
    }
    return {**record, "printed": printed, "beyond_print": beyond_print, "has_bottleneck": setting.has_bottleneck}


def _with_stationary_last_bias(case: Case, network: FullyConnected, problem: Problem) -> Problem:
    """The problem of squared loss with the last bias moved to where the residuals sum to zero."""
    import torch

    from hessmap.problem.problem import Problem

    model = network.build(seed=case["seed"], init=case["init"])
    last = model[-1]
    assert isinstance(last, torch.nn.Linear)
    with torch.no_grad():
        last.bias.sub_(problem.weights @ problem.residuals())
    return Problem(model, "squared", problem.inputs, problem.targets)


def claims(rows: Sequence[Row]) -> Iterator[Claim]:
    yield from decidability_claims(rows)
    decided = [row for row in rows if all(row[f"measured.{part}.decidable"] for part in PARTS)]
    covered, others = ([row for row in decided if _is_covered(row) is wanted] for wanted in (True, False))
    if covered:
        claim = "The printed formulas hold for hidden layers without bottleneck and inputs that centring costs no rank"
        num_right = sum(map(_is_printed_right, covered))
        yield Claim.counted(
            "printed-where-covered",
            claim,
            num_right,
            len(covered),
            f"in {num_right} of {len(covered)} decidable cases",
        )
    if others:
        num_wrong = len(others) - sum(map(_is_printed_right, others))
        detail = f"in {num_wrong} of {len(others)} decidable cases"
        yield Claim.counted(
            "printed-wrong-elsewhere",
            "Elsewhere they miss the rank of at least one Hessian",
            num_wrong,
            len(others),
            detail,
        )
    yield from _places(rows)


def _is_covered(row: Row) -> bool:
    """Whether the setting is one that the printed formulas are for."""
    ranks, is_deep = row["data_ranks"], len(row["widths"]) > 2
    is_centred = ranks["input_rank"] == ranks["centred_input_rank"]
    return is_deep and is_centred and not row["has_bottleneck"] and not ranks["mean_residual_is_zero"]


def _is_printed_right(row: Row) -> bool:
    return all(row[f"beyond_print.measured.{part}"] == 0 for part in PARTS)


def _places(rows: Sequence[Row]) -> Iterator[Claim]:
    """Networks that differ only in where their narrow layer is: the printed formulas cannot tell them apart."""
    by_network: dict[tuple[Any, ...], list[float]] = {}
    for row in rows:
        if row["sweep"] == "bottleneck" and row["has_bottleneck"]:
            key = (row["data"], row["loss"], row["narrow"])
            by_network.setdefault(key, []).append(row.number("measured.loss"))
    triples = [ranks for ranks in by_network.values() if len(ranks) == 3]
    if triples:
        num_different = sum(len(set(ranks)) == 3 for ranks in triples)
        detail = f"three different ranks in {num_different} of {len(triples)} cases"
        yield Claim.counted(
            "place-of-bottleneck",
            "The rank of H_L depends on the place of a bottleneck",
            num_different,
            len(triples),
            detail,
        )


_DIFFERENCES = tuple(
    Series(SYMBOLS[part], line=f"beyond_print.predicted.{part}", points=f"beyond_print.measured.{part}", part=part)
    for part in PARTS
)
_BY_PLACE = (replace(_DIFFERENCES[-1], label="hidden layer {position} narrow", part=""),)
_FRACTION: dict[str, Any] = {"y_label": "rank / parameters", "y_limits": (0.0, 1.03)}
_DIFFERENCE: dict[str, Any] = {"y_label": "rank - printed formula", "marks": (Mark(0.0, "as printed", "y"),)}
_X_LABELS = {
    "num_samples": "number of samples",
    "width": "width of both hidden layers",
    "num_hidden": "number of hidden layers",
    "narrow": "width of the narrow layer",
}


def _figures(data: str) -> Iterator[Lines]:
    """Figure S17; then what the printed formulas miss: by the place of a bottleneck, and without one."""

    def panel(title: str, sweep: str, x: str, series: tuple[Series, ...], **options: Any) -> Lines:
        where = {"data": data, "sweep": sweep, "loss": "squared"}
        name = f"{title}, {data.replace('_', '-')}"
        return Lines(title=name, where=where, x=x, series=series, x_label=_X_LABELS[x], **options)

    yield panel("rank", "samples", "num_samples", RANKS, y_label="rank")
    yield panel("rank", "width", "width", RANKS, y_label="rank")
    yield panel("rank / parameters", "depth", "num_hidden", FRACTIONS, **_FRACTION)
    yield panel(
        "$H_L$, one narrow layer", "bottleneck", "narrow", _BY_PLACE, part="loss", split="position", **_DIFFERENCE
    )
    yield panel("few samples", "samples", "num_samples", _DIFFERENCES, x_scale="log", **_DIFFERENCE)
    yield panel("last bias stationary", "stationary", "narrow", _DIFFERENCES, **_DIFFERENCE)


STUDY = Study(
    name="fcn/bias",
    question="Which ranks do the three Hessians have with a bias in every layer, bottlenecks included?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 9a and S17, Theorem 12, Fact 13, S7.3",
    cases=cases,
    measure=measure,
    data=DATA,
    checks=RANK_CHECKS,
    claims=claims,
    seconds=seconds,
    view=View(
        figures=tuple(figure for data in DATA for figure in _figures(data)),
        table=(
            "data",
            "sweep",
            "loss",
            "widths",
            Column("num_samples", "N"),
            Column("data_ranks.centred_input_rank", "r_c"),
            Column("predicted.loss", "H_L"),
            Column("measured.loss", "meas."),
            Column("printed.loss", "printed"),
        ),
    ),
    answered=Answer(
        "Those of the corrected formulas, in every decidable case; the printed ones are right without bottleneck"
        " where centring costs no rank (53 of 53), and miss at least one Hessian elsewhere (92 of 92).",
        num_claims=5,
        cases="undecidable",
    ),
)
