"""Every "N of M" in the evidence of an item with studies is a stored count, or is counted here from the stored rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

import pytest
from committed import committed

from hessmap.records import PARTS
from hessmap_research.papers import Item, papers
from hessmap_research.runner.registry import find
from hessmap_research.runner.row import Row

Count = tuple[int, int]
COUNT = re.compile(r"(?<![\d.,-])(\d[\d,]*) of (\d[\d,]*\d|\d)")
ITEMS = [item for paper in papers() for item in paper.items if item.studies]


def rows_of(study: str, **where: object) -> list[Row]:
    rows = committed(study).stored.rows
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]


def counted(rows: Sequence[Row], test: Callable[[Row], bool]) -> Count:
    return sum(map(test, rows)), len(rows)


def agreeing(studies: Sequence[str], **where: object) -> Count:
    """How many of the rows of some studies agree with every check that applies to them."""
    outcomes = [
        [check.judge(row).outcome for check in find(study).checks if all(name in row for name in check.names)]
        for study in studies
        for row in rows_of(study, **where)
    ]
    return sum(set(found) == {"agrees"} for found in outcomes), len(outcomes)


def ranks(data: str, loss: str = "squared", init: str = "gaussian") -> Iterator[Count]:
    studies = ("fcn/rank-vs-samples", "fcn/rank-vs-width", "fcn/rank-vs-depth")
    yield agreeing(studies, data=data, loss=loss, init=init)


def with_bias() -> Iterator[Count]:
    yield agreeing(["fcn/bias"], data="digits")
    rows = rows_of("fcn/bias", data="cifar10")
    for sweep in ("depth", "width", "samples"):
        yield agreeing(["fcn/bias"], data="cifar10", sweep=sweep)
    printed = [all(row.number(f"measured.{part}") == row[f"printed.{part}"] for part in PARTS) for row in rows]
    yield sum(printed), len(printed)


def conjectured_with_bias() -> Iterator[Count]:
    rows = [row for row in rows_of("fcn/conjectures") if str(row["family"]).startswith("deep, bias")]
    total = sum(int(row["num_networks"]) for row in rows)
    yield min(sum(int(row[f"ours_right.{part}"]) for row in rows) for part in ("functional", "loss")), total


def correlations() -> Iterator[Count]:
    """Under ReLU those that are not higher, of linear networks those that are."""
    for activation, outcome in (("relu", "does not hold"), ("identity", "holds")):
        claims = [claim for claim in committed("cnn/generalisation").outcome.claims if f"-{activation}-" in claim.id]
        yield sum(claim.outcome == outcome for claim in claims), len(claims)


def reconstructed(loss: str) -> Iterator[Count]:
    rows = [
        row
        for row in rows_of("fcn/nonlinear-spectrum", data="mnist", loss=loss, network="64-30-20-10")
        if row["activation"] != "identity"
    ]
    rows = rows or [
        row
        for row in rows_of("fcn/reconstruction", data="mnist", loss=loss, network="64-30-20-10", inputs="as they are")
        if row["activation"] != "identity"
    ]
    for part in PARTS:
        yield counted(rows, lambda row, part=part: row.number(f"error_at_formula.{part}") < 0.01)


def theorem_7() -> Iterator[Count]:
    linear, relu = (rows_of("cnn/rank-vs-filter", activation=kind) for kind in ("identity", "relu"))

    def difference(row: Row, part: str) -> float:
        return row.number(f"measured.{part}") - float(row[f"printed.{part}"])

    yield counted(linear, lambda row: difference(row, "outer_product") < 0)
    yield counted(linear, lambda row: difference(row, "outer_product") == 0)
    yield counted(relu, lambda row: difference(row, "loss") > 0)
    few = rows_of("cnn/samples-equal-inputs", sweep="filter")
    yield counted(few, lambda row: difference(row, "outer_product") == 0)


def over_channels(loss: str) -> Iterator[Count]:
    for kind in ("identity", "relu"):
        rows = rows_of("cnn/rank-vs-channels", activation=kind, loss=loss)
        yield counted(rows, lambda row: row.number("measured.outer_product") <= row["printed.outer_product"])
        yield counted(rows, lambda row: row.number("measured.outer_product") > row["printed.outer_product"])
    yield (len(rows_of("cnn/samples-equal-inputs", sweep="channels", loss=loss)),) * 2


def signatures() -> Iterator[Count]:
    rows = rows_of("fcn/signature")
    yield sum(row["right.signature"] for row in rows), sum(row["num_networks"] for row in rows)


def full_hessian() -> Iterator[Count]:
    for data in ("digits", "mnist"):
        rows = rows_of("layers/full-hessian", data=data)
        yield counted(rows, lambda row: row.number("corrected.at_5") > row.number("printed.at_5"))
        for network in dict.fromkeys(row["network"] for row in rows):
            same = [row for row in rows if row["network"] == network]
            yield counted(same, lambda row: row.number("corrected.at_5") > row.number("printed.at_5"))


def overlaps() -> Iterator[Count]:
    """Peaks and ends of growth beside the outputs of a layer, and how many curves fall behind them."""
    rows = rows_of("layers/overlap", network="LeNet5", compared="seeds", labels="true")
    for row in rows:
        outputs = int(row["num_outputs"])
        yield from ((int(row[name]), outputs) for name in ("peak", "growth_end"))
        yield row.array("overlap").size, outputs
    yield counted(rows, lambda row: row.array("overlap")[-1] < row.array("overlap")[int(row["num_outputs"]) - 1])


def deep_convolutions() -> Iterator[Count]:
    rows = rows_of("layers/deep-convolutions")
    yield from ((int(row["peak"]), int(row["num_outputs"])) for row in rows)
    for network in dict.fromkeys(row["network"] for row in rows):
        same = [row for row in rows if row["network"] == network and row["layer"].startswith("conv")]
        yield counted(same, lambda row: abs(row["peak"] - row["num_outputs"]) <= row["num_outputs"] / 4)


def large_singular_values() -> Iterator[Count]:
    """Of the first 200 eigenvectors of a layer, how many have a top singular value above half of their norm."""
    for row in rows_of("layers/rank-one", data="cifar10", network="LeNet5"):
        yield int((row.array("ratios") > 0.5).sum()), row.array("ratios").size


def with_batch_norm() -> Iterator[Count]:
    outputs = {"LeNet5-BN": {"conv1": 6, "conv2": 16, "fc1": 120, "fc2": 84}, "F-100^2-BN": {"fc1": 100, "fc2": 100}}
    for row in rows_of("layers/batch-norm"):
        if "peak.at" in row and row["layer"] in outputs.get(row["network"], {}):
            yield int(row["peak.at"]), outputs[row["network"]][row["layer"]]


def linear_lenets() -> Iterator[Count]:
    rows = rows_of("cnn/lenet", activation="identity")
    yield counted(rows, lambda row: row["rank.loss"] == row.number("bound.loss"))


def underestimated() -> Iterator[Count]:
    """Descents at ridge 0.005 that end at rank 1 where the true rank is 2."""
    few = rows_of("function/depth-and-samples", ridge=0.005, num_samples=4)
    yield counted([row for row in few if row["num_layers"] >= 8], lambda row: row["narrowest"] == 1)
    more = rows_of("function/depth-and-samples", ridge=0.005, num_samples=6, num_layers=16)
    yield counted(more, lambda row: row["narrowest"] == 1)


def denoised() -> Iterator[Count]:
    """Deep against shallow of the larger width, on arcs and random curves."""
    rows = [row for row in rows_of("function/denoising") if row["curve"] in ("arc", "random")]
    left = {(row["curve"], row["seed"], row["network"]): row.number("mean") for row in rows}
    deep = [key for key in left if key[2] == "deep, width 40"]
    yield sum(left[key] < left[(*key[:2], "shallow, width 100")] for key in deep), len(deep)


def wider_students() -> Iterator[Count]:
    rows = rows_of("teacher/overparameterised")
    yield sum(int(row["num_agree"]) for row in rows), sum(int(row["num_cells"]) for row in rows)


def as_many_as_hidden_units() -> Iterator[Count]:
    """Teachers with as many large eigenvalues as hidden units: all of equal widths, and no others."""
    rows = rows_of("teacher/erf-spectrum")
    printed = sum(int(row["num_as_printed"]) for row in rows)
    assert printed == sum(int(row["num_teachers"]) for row in rows if row["inputs"] == row["hidden"])
    yield printed, sum(int(row["num_teachers"]) for row in rows)


def tripoints() -> Iterator[Count]:
    rows = rows_of("function/tripoints")
    for shape, ridge, depth in dict.fromkeys((row["shape"], row["ridge"], row["num_layers"]) for row in rows):
        same = [row for row in rows if (row["shape"], row["ridge"], row["num_layers"]) == (shape, ridge, depth)]
        yield counted(same, lambda row: row.number("near.num_tripoints") > 0)


def linear_maps() -> Iterator[Count]:
    rows = rows_of("function/linear-cost", item="factors")
    maps, others = (sum(int(row[name]) for row in rows) for name in ("num_maps", "num_others"))
    yield sum(int(row["num_maps"]) for row in rows if row.number("balanced_excess") < 1e-12), maps
    yield sum(int(row["num_others"]) for row in rows if row.number("least_other_excess") < -1e-12), others


def trained_functions() -> Iterator[Count]:
    rows = rows_of("function/trained-zoo")
    yield sum(int(row["num_contradictions"]) for row in rows), sum(int(row["num_measured"]) for row in rows)


def cells() -> Iterator[Count]:
    rows = rows_of("teacher/effective-parameters")
    yield sum(int(row["num_theorems"]) for row in rows), sum(int(row["num_cells"]) for row in rows)


def bases() -> Iterator[Count]:
    bounds: dict[str, dict[str, float]] = {}
    for row in (*rows_of("certificates/table-1"), *rows_of("certificates/table-10")):
        kind = str(row["basis"]).split()[0]
        known = bounds.setdefault(str(row["network"]), {})
        known[kind] = min(known.get(kind, 1.0), row.number("bound"))
    for lower, higher in (("iterative", "approximate"), ("approximate", "standard")):
        both = [found for found in bounds.values() if lower in found and higher in found]
        yield sum(found[lower] < found[higher] for found in both), len(both)


def torch_scaled() -> Iterator[Count]:
    rows = rows_of("function/torch-scaled-data")
    yield counted(rows, lambda row: all(rank == 4 for rank in row.array("ranks.centred")[3:9]))


RECOUNTED: dict[tuple[int, str], Callable[[], Iterator[Count]]] = {
    (0, "Fact 13"): conjectured_with_bias,
    (0, "Figure 9a"): with_bias,
    (0, "Figure S17"): with_bias,
    **{
        (0, f"Figure S{number}"): (lambda given=given: ranks(*given))
        for number, given in {
            7: ("fashion_mnist",),
            8: ("mnist",),
            10: ("fashion_mnist", "cross_entropy"),
            11: ("mnist", "cross_entropy"),
            13: ("fashion_mnist", "log_cosh"),
            14: ("mnist", "log_cosh"),
            15: ("cifar10", "squared", "uniform"),
        }.items()
    },
    (0, "Figures S18 to S20"): lambda: reconstructed("squared"),
    (0, "Figures S24 to S26"): lambda: reconstructed("cross_entropy"),
    **dict.fromkeys(
        ((1, name) for name in ("Theorem 7", "Figure 2b", "Figure 2c", "Figure 9", "Figures 10, 11")), theorem_7
    ),
    (1, "Figure 7"): lambda: over_channels("squared"),
    (1, "Figure 8"): lambda: over_channels("cross_entropy"),
    (1, "Figure 15"): correlations,
    (1, "Section 5.3: negative eigenvalues"): signatures,
    (2, "Equations 261 to 263: the full Hessian"): full_hessian,
    **dict.fromkeys(
        (
            (2, name)
            for name in (
                *("Sections 5.3, G.3: the height of the peak", "Section G.3.1: the overlap falls behind m"),
                *("Figure 1", "Figure 4"),
            )
        ),
        overlaps,
    ),
    (2, "Figure 10"): lambda: chain(overlaps(), deep_convolutions()),
    (2, "Figures 7, 8"): deep_convolutions,
    (2, "Figure 21"): large_singular_values,
    (2, "Figure 27"): with_batch_norm,
    (2, "Section 6: which basis"): bases,
    (1, "beyond: images, padding, pooling"): linear_lenets,
    (3, "Remark 5"): underestimated,
    (3, "Figure 3 B, C"): denoised,
    (4, "Section 6: wider students"): wider_students,
    (4, "Figure 5"): as_many_as_hidden_units,
    **dict.fromkeys(((3, "Proposition 1"), (3, "Proposition 6")), trained_functions),
    (3, "Section 1: the cost of linear maps"): linear_maps,
    (3, "Figure 1"): torch_scaled,
    (3, "Figure 2"): tripoints,
    (3, "Appendix D.1: kernel ridge regression"): lambda: iter(
        [counted(rows_of("function/krr"), lambda row: row["printed"] != row["measured"])]
    ),
    (3, "Proposition 12"): lambda: iter([(len(rows_of("function/balance", item="descent")),) * 2]),
    (4, "Section 4.2, Appendix B: higher degrees"): cells,
}
# Rows of the paper's tables and epochs of its recipe; not counts of cases.
OF_THE_PAPER = {
    (2, "Table 6"): {(8, 19)},
    (2, "Table 7"): {(3, 13)},
    (2, "Table 8"): {(300, 1000)},
    (2, "Table 9"): {(4, 4)},
}


def stored_counts(item: Item) -> Iterator[Count]:
    for study in item.studies:
        outcome = committed(study).outcome
        yield outcome.num_agree, outcome.num_agree + outcome.num_disagree
        yield from ((claim.right, claim.total) for claim in outcome.claims if claim.right is not None and claim.total)


def number(text: str) -> int:
    return int(text.replace(",", ""))


def counts_of(item: Item) -> set[Count]:
    return {(number(right), number(total)) for right, total in COUNT.findall(item.evidence)}


@pytest.mark.parametrize(
    "item", [item for item in ITEMS if counts_of(item)], ids=lambda one: f"{one.paper}: {one.item}"
)
def test_counts_of_evidence_are_those_of_the_rows(item: Item) -> None:
    key = (item.paper, item.item)
    known = {*stored_counts(item), *(RECOUNTED[key]() if key in RECOUNTED else ())}
    assert counts_of(item) - known == OF_THE_PAPER.get(key, set())
