"""Ranks along training: H_L collapses onto H_o where the residual vanishes, and also where a bottleneck keeps it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import isqrt
from typing import TYPE_CHECKING, Any

from hessmap.results import PARTS
from hessmap.studies import Case, Check, Column, Finding, Lines, Row, Series, Study, View, grid
from hessmap.studies.course_view import collapse, course_figures, loss_vanishes, starts_as_predicted
from hessmap.studies.rank_comparison import SYMBOLS

if TYPE_CHECKING:
    from hessmap.datasets import Data

_HIDDEN = (25, 20, 15)
_BOTTLENECKS = ((2,), (5,), (8,), (12, 4), (4, 12), (3, 3), (14, 6, 12), (9, 7, 9))
_COURSES = ("relu", "teacher")


def cases(data: str) -> tuple[Case, ...]:
    """Figure 8, Figure S1 (its sizes are not printed), and critical points of linear networks with a bottleneck.

    The linear teacher knows nothing of the data set: it goes with the default one.
    """
    input_dim = 16 if data == "digits" else 64
    courses = [{"scenario": "relu", "widths": (input_dim, *_HIDDEN, 10), "num_samples": 100, "seed": 0}]
    if data == "digits":
        courses.append({"scenario": "teacher", "widths": (10, *_HIDDEN, 5), "num_samples": 200, "seed": 0})
    networks = [(input_dim, *hidden, 10) for hidden in _BOTTLENECKS]
    points = grid(widths=networks, point=["minimum", "saddle", "trained"], num_samples=[300], seed=[0])
    return (*courses, *({"scenario": "bottleneck", **case} for case in points))


def measure(case: Case) -> dict[str, Any]:
    from hessmap.networks import FullyConnected
    from hessmap.studies.fcn.training_record import course_record, critical_point_record

    data = _samples(case)
    if case["scenario"] == "bottleneck":
        return critical_point_record(FullyConnected(case["widths"]), data, case["point"], case["seed"])
    activation = {"relu": "relu", "teacher": "identity"}[case["scenario"]]
    return course_record(FullyConnected(case["widths"], activation=activation), data, case["seed"])


def _samples(case: Case) -> Data:
    """Gaussian inputs labelled by a linear teacher, or standardised images with one-hot labels."""
    from hessmap.datasets import by_name, linear_teacher

    input_dim, output_dim, count = case["widths"][0], case["widths"][-1], case["num_samples"]
    if case["scenario"] == "teacher":
        return linear_teacher(count, input_dim, output_dim, seed=case["seed"])
    return by_name(case["data"], num_samples=count, side=isqrt(input_dim), standardise=True, one_hot=True)


def findings(rows: Sequence[Row]) -> Iterator[Finding]:
    """Section 6 along training, and what holds at the critical points of which it does not speak."""
    for row in rows:
        if row["scenario"] in _COURSES:
            yield from _along_training(row)
    trained = {_setting(row): row["final_risk"] for row in rows if row.get("point") == "trained"}
    minima = {_setting(row): row["final_risk"] for row in rows if row.get("point") == "minimum"}
    distances = [abs(trained[setting] / minima[setting] - 1) for setting in trained.keys() & minima.keys()]
    if distances:
        detail = f"the losses of {len(distances)} pairs differ by at most {max(distances):.1e}"
        claim = "Training ends at the global minimum that reduced-rank regression gives"
        yield Finding(claim, max(distances) < 1e-9, detail)
    points = [row for row in rows if "fact_7" in row]
    if points:
        above = sum(row["fact_7"] > row.number("final.loss") for row in points)
        detail = f"in {above} of {len(points)} cases"
        yield Finding("At critical points with a bottleneck Fact 7 counts too much", above == len(points), detail)


def _along_training(row: Row) -> Iterator[Finding]:
    name = f"ReLU on {row['data']}" if row["scenario"] == "relu" else "Linear teacher"
    yield from collapse(name, row, [min(pair) for pair in pairwise(row["widths"])])
    if row["scenario"] == "teacher":
        yield loss_vanishes(name, row)
        yield starts_as_predicted(name, row, "initial_theorem")


def _setting(row: Row) -> tuple[Any, ...]:
    return row["data"], row["widths"], row["seed"]


def _course_figures(scenario: str, name: str) -> tuple[Lines, ...]:
    return course_figures(name, {"scenario": scenario}, len(_HIDDEN) + 1, rank_limits=(0.0, 22.0))


# H_L lies on H_o, and is dashed to let it be seen.
_POINTS = (
    Series(SYMBOLS["outer_product"], line="final_theorem.outer_product", points="final.outer_product"),
    Series(SYMBOLS["functional"], line="final_theorem.functional", points="final.functional"),
    Series(SYMBOLS["loss"], dashed="final_theorem.loss", points="final.loss"),
)

STUDY = Study(
    name="fcn/training",
    question="How do the ranks of weights and Hessians change along training, and what is left at its end?",
    reference="Singh, Bachmann & Hofmann 2021, Figures 8 and S1; Fact 7 at critical points",
    cases=cases,
    measure=measure,
    data=("digits", "mnist", "fashion_mnist", "cifar10"),
    checks=(
        Check("gradient_norm", 1e-10, "at_most"),
        *(Check(f"final.{part}", f"final_theorem.{part}") for part in PARTS),
        Check("final.loss", "final.outer_product"),
    ),
    findings=findings,
    seconds=lambda case: {"relu": 60.0, "teacher": 20.0, "bottleneck": 2.0}[case["scenario"]],
    view=View(
        figures=(
            *_course_figures("relu", "ReLU"),
            *_course_figures("teacher", "linear teacher"),
            Lines(
                title="critical points with a bottleneck",
                where={"scenario": "bottleneck"},
                facet="data",
                x="bottleneck",
                series=_POINTS,
                x_label="width of the bottleneck",
                y_label="rank",
            ),
        ),
        table=(
            "data",
            "scenario",
            "point",
            "widths",
            *(Column(f"final.{part}", SYMBOLS[part].strip("$")) for part in PARTS),
            Column("final_theorem.loss", "predicted"),
            Column("fact_7", "Fact 7"),
            Column("final_risk", "loss", ".1e"),
            Column("gradient_norm", "gradient", ".0e"),
        ),
    ),
)
