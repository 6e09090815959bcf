"""Every decimal in the evidence of an item: a number of a claim's detail, recomputed here from rows, or in a test.

The details of claims are made of the stored rows. What no claim says is the smallest, the largest or the mean of a
field over the rows that the evidence is about, and has its line in ``SOURCES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from committed import committed

from hessmap.records import PARTS
from hessmap.theory.layers import printed_subspace_overlap_limit
from hessmap_research.papers import Item, papers
from hessmap_research.runner.row import Row

Numbers = Iterator[float]
DECIMAL = re.compile(r"(?<![\w.])\d+(?:\.\d+(?:e-?\d+)?|e-\d+)")
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
ROOT = Path(__file__).parents[3]
ITEMS = [item for paper in papers() for item in paper.items if item.studies]
WITHOUT_STUDIES = [item for paper in papers() for item in paper.items if not item.studies]
NINE = 9


def rows_of(study: str, **where: object) -> list[Row]:
    """Rows of a study; a tuple stands for any of its values."""

    def fits(value: object, asked: object) -> bool:
        return value in asked if isinstance(asked, tuple) else value == asked

    rows = committed(study).stored.rows
    return [row for row in rows if all(fits(row.get(name), asked) for name, asked in where.items())]


def ends(values: Sequence[float]) -> Numbers:
    yield min(values)
    yield max(values)


def spans(
    study: str, field: str | Callable[[Row], float], by: Sequence[str] = (), scale: float = 1.0, **where: object
) -> Numbers:
    """The smallest and the largest value of a field, over all rows or for every value of some fields of the case."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in rows_of(study, **where):
        value = row.get(field) if isinstance(field, str) else field(row)
        if value is not None:
            number = row.number(field) if isinstance(field, str) else float(value)
            groups.setdefault(tuple(row.get(name) for name in by), []).append(scale * number)
    assert groups, (study, where)
    yield from chain.from_iterable(map(ends, groups.values()))


def kind(row: Row) -> str:
    return str(row["layer"]).rstrip("0123456789")


def by_kind(study: str, field: str, scale: float = 1.0, **where: object) -> Numbers:
    """The ends of a field for every data set, network and kind of layer, linear or convolutional."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for row in rows_of(study, **where):
        groups.setdefault((row["data"], row["network"]), []).append(scale * row.number(field))
        groups.setdefault((row["data"], row["network"], kind(row)), []).append(scale * row.number(field))
    yield from chain.from_iterable(map(ends, groups.values()))


def at(field: str, place: int) -> Callable[[Row], float]:
    return lambda row: float(row.array(field)[place - 1])


def decoupled() -> Numbers:
    for field in ("overlap_at.k9", "spectral_error", "frobenius_error"):
        yield from by_kind("layers/kronecker", field)


def eigenvalues_from_factors() -> Numbers:
    found: dict[tuple[object, ...], list[float]] = {}
    for row in rows_of("layers/spectra", labels="true"):
        pairs = zip(row.array("hessian")[:NINE], row.array("scaled_output")[:NINE], strict=False)
        values = [float(value / product) for value, product in pairs if product > 0]
        found.setdefault((row["data"], row["network"], kind(row)), []).extend(values)
    yield from chain.from_iterable(map(ends, found.values()))


def gaps() -> Numbers:
    for field in ("gap_of_output", "gap_of_hessian"):
        for row_kind in ("fc", "conv"):
            rows = [
                row
                for row in rows_of("layers/spectra")
                if kind(row) == row_kind and np.isfinite(row.number(field) if field in row else np.inf)
            ]
            groups: dict[tuple[object, ...], list[float]] = {}
            for row in rows:
                for key in ((row["data"], row["network"]), (row["data"],), ()):
                    groups.setdefault((row["labels"], *key), []).append(row.number(field))
            yield from chain.from_iterable(map(ends, groups.values()))


def overlaps_of_lenet() -> Numbers:
    for row in rows_of("layers/overlap", network="LeNet5", compared="seeds", labels="true"):
        yield float(row.array("overlap")[int(row["num_outputs"]) - 1])
        yield row.number("peak_value")
        yield row.number("input_overlap")
    three = {"data": "cifar10", "layer": "conv2", "size": None}
    yield from spans("layers/overlap", lambda row: at("overlap", int(row["num_outputs"]))(row), **three)
    yield from spans("layers/overlap", "input_overlap", **three)


def accuracies(study: str, field: str = "accuracy") -> Numbers:
    yield from (100 * row.number(field) for row in rows_of(study) if field in row)


def right_of_lenet() -> Numbers:
    yield from accuracies("layers/published-networks")
    yield from accuracies("layers/subspace", "training.accuracy")


def courses() -> Numbers:
    """Figures 19 and 20: lambda_1 / lambda_2 of the inputs and tau_9 / tau_10 along every training of LeNet5."""
    for size in ("long", "published"):
        rows = rows_of("layers/training", network="LeNet5", data="cifar10", layer="fc1", size=size, num_measured=50_000)
        ratios = [row.array("course.eigenvalue_ratio") for row in rows]
        yield from (float(ratio[0]) for ratio in ratios)
        yield from ends(np.concatenate([ratio[1:] for ratio in ratios]))
        for row in rows_of("layers/training", network="LeNet5", data="cifar10", layer="fc1", size=size):
            gap = row.array("course.tau_9") / row.array("course.tau_10")
            has_nine = row.array("course.num_outliers") == NINE
            yield float(gap[-1])
            yield from ends(gap[has_nine])


def first_singular_values() -> Numbers:
    for size in (None, "long", "published"):
        rows = rows_of("layers/rank-one", data="cifar10", network="LeNet5", size=size)
        for count in (10, 40, 200):
            means = [float(row.array("ratios")[:count].mean()) for row in rows]
            yield from ends(means)
            for layer in dict.fromkeys(row["layer"] for row in rows):
                yield from ends([mean for mean, row in zip(means, rows, strict=True) if row["layer"] == layer])
        yield from (row.number("by_chance") for row in rows)


def output_layers() -> Numbers:
    for row in rows_of("layers/overlap", layer="fc3", compared="seeds", labels="true"):
        curve = row.array("overlap")
        yield float(curve[2:NINE].min() / curve[2:NINE].max())
    rows = rows_of("layers/batch-norm", network="LeNet5", data="cifar10", layer="fc3")
    for place in (1, NINE):
        yield from ends([at("between_models", place)(row) for row in rows])


def without_batch_norm() -> Numbers:
    for field in ("on_first_input", "overlap_at_9"):
        for normalised in (True, False):
            rows = [row for row in rows_of("layers/batch-norm", data="cifar10") if row["is_normalised"] == normalised]
            for layers in (("fc1", "fc2"), ("fc1", "fc2", "fc3"), ("conv1", "conv2", "fc1", "fc2", "fc3")):
                yield from ends([row.number(field) for row in rows if row["layer"] in layers])


def published_bounds() -> Numbers:
    """Table 10: every bound, the paper's, and by how much ours is above it in percent."""
    for row in (*rows_of("certificates/table-1"), *rows_of("certificates/table-10")):
        yield row.number("bound")
        if "published" in row:
            yield row.number("published")
            yield 100 * (row.number("bound") / row.number("published") - 1)


def small_trainings_of_table_8() -> Numbers:
    yield from accuracies("layers/subspace", "training.accuracy")
    for field in ("as_printed", "centred", "by_activity"):
        for row in rows_of("layers/subspace", network=("LeNet5", "F-1500^3")):
            yield row.number(field)
        for layer in ("fc1", "fc2"):
            for data in ("mnist", "cifar10"):
                small = rows_of("layers/subspace", network="LeNet5", data=data, layer=layer, size=None)
                yield float(np.mean([row.number(field) for row in small if row["epochs"]]))


def errors_at_the_formula(study: str, *fields: str, **where: object) -> Numbers:
    """In percent, for every activation, and for all that are not linear."""
    rows = [row for row in rows_of(study, **where) if row.get("activation") != "identity"]
    for field in (f"{name}.{part}" for name in fields for part in PARTS):
        yield from ends([100 * row.number(field) for row in rows])
        for activation in dict.fromkeys(row.get("activation") for row in rows):
            yield from ends([100 * row.number(field) for row in rows if row.get("activation") == activation])


def deviations() -> Numbers:
    for field in ("deviation.outputs", "deviation.inputs", "gradient_left"):
        yield from spans("function/torch-scaled-data", field, by=("penalty",))
        yield from spans("function/torch-scaled-data", field)
    yield from spans("function/torch-scaled-data", "middle.next_over_last")


def spectra_of_two_networks() -> Numbers:
    """The medians, over three trainings, of the overlap at nine and the ratio of the largest eigenvalue."""
    rows = rows_of("layers/kronecker", network="F-200^2", data="mnist")
    for layer in dict.fromkeys(row["layer"] for row in rows):
        values = [row.number("overlap_at.k9") for row in rows if row["layer"] == layer]
        yield float(np.mean(values))
    yield from spans("layers/spectra", "top_ratio", network="F-200^2", data="mnist", labels="true")


def undecided_with_bias() -> Numbers:
    for row in rows_of("fcn/bias", data="cifar10"):
        for part in PARTS:
            if not row[f"measured.{part}.decidable"]:
                yield row.number(f"measured.{part}.largest_dropped") / row.number("measured.loss.scale")


SOURCES: dict[tuple[int, str], Callable[[], Numbers]] = {
    (0, "Figure S17"): undecided_with_bias,
    (0, "Figure 6"): lambda: errors_at_the_formula(
        "fcn/nonlinear-spectrum", "first_beyond_formula", data="mnist", loss="squared", activation="tanh"
    ),
    (0, "Figure 8"): lambda: spans("fcn/training", "gradient_norm", scenario="relu", data="mnist"),
    (0, "Figures S27 to S31"): lambda: errors_at_the_formula(
        "fcn/nonlinear-spectrum", "first_beyond_formula", data="mnist", loss="cross_entropy"
    ),
    (1, "Figure 3"): lambda: errors_at_the_formula(
        "cnn/reconstruction", "error_at.linear_rank", "error_at.printed", inputs="as they are"
    ),
    (1, "Figure 4"): lambda: spans("cnn/training", lambda row: row.array("gradient_norms")[-1], scenario="images"),
    (2, "Equations 28 to 35: convolutions"): lambda: (
        float(np.mean([row.number("overlap_at.k9") for row in rows_of("layers/kronecker", data="mnist", layer=layer)]))
        for layer in ("conv1", "conv2")
    ),
    (2, "Conjecture: decoupling"): decoupled,
    (2, "Sections 3.1, 3.2: eigenvalues from both factors"): eigenvalues_from_factors,
    (2, "Theorem 4.1"): lambda: (
        float(np.mean([row.number("hessian_overlap") for row in rows_of("layers/theorem-4", width=width)]))
        for width in (16, 64, 256, 512)
    ),
    (2, "Theorem 4.2"): lambda: iter([printed_subspace_overlap_limit()]),
    (2, "Equations 261 to 263: the full Hessian"): lambda: spans(
        "layers/full-hessian", lambda row: row.number("corrected.at_5") - row.number("printed.at_5"), by=("network",)
    ),
    (2, "Sections 5.3, G.3: the height of the peak"): overlaps_of_lenet,
    (2, "Figure 1"): lambda: chain(right_of_lenet(), first_singular_values()),
    (2, "Figure 2"): spectra_of_two_networks,
    (2, "Figure 3"): gaps,
    (2, "Figure 4"): lambda: chain(right_of_lenet(), overlaps_of_lenet()),
    (2, "Figure 5"): lambda: spans("layers/full-hessian", "corrected.at_30"),
    **dict.fromkeys(((2, name) for name in ("Figures 7, 8", "Figure 10", "Figures 16 to 18")), lambda: deep()),
    (2, "Figures 11 to 13"): lambda: spans("layers/correspondence", "diagonal", by=("size", "layer"), data="cifar10"),
    (2, "Figure 19"): courses,
    (2, "Figure 20"): lambda: chain(courses(), right_of_lenet()),
    (2, "Figure 21"): first_singular_values,
    (2, "Figure 22"): output_layers,
    (2, "Figure 26"): without_batch_norm,
    (2, "Figure 28"): without_batch_norm,
    (2, "Figure 31"): lambda: spans("certificates/variance", "correlation", by=("network",), scale=-1.0),
    (2, "Table 8"): small_trainings_of_table_8,
    (2, "Table 9"): lambda: chain.from_iterable(
        spans("layers/autocorrelation", field, by=("seed",), network="F-600^2-BN", layer=("fc2", "fc3"))
        for field in ("squared_cosine", "eigenvalue_ratio")
    ),
    (2, "Table 10"): published_bounds,
    (2, "Section 6: which basis"): published_bounds,
    (3, "Section 1: the cost of linear maps"): lambda: spans(
        "function/linear-cost", lambda row: 100 * (row.number("last_ratio") - 1), item="trained"
    ),
    (3, "Figure 1"): deviations,
    (3, "Figure 1: the norm"): deviations,
    (3, "Figure 3 A"): lambda: spans("function/denoising-images", "gradient_norm", by=("num_layers",), data="mnist"),
    (4, "Section 5.1: erf has full rank"): lambda: spans("teacher/erf-full-rank", "smallest"),
    (4, "Figure 9"): lambda: spans("teacher/distributions", "distance", hidden=5, inputs=5),
}


def deep() -> Numbers:
    yield from accuracies("layers/deep-convolutions")
    for row in rows_of("layers/deep-convolutions"):
        yield float(row.array("overlap")[min(int(row["num_outputs"]), row.array("overlap").size) - 1])
        yield row.number("at_end")


# Rates, ridges and scales of a set-up, and limits within which all numbers are.
GIVEN: dict[tuple[int, str], set[str]] = {
    (2, "Figures 11 to 13"): {"0.01"},
    (2, "Table 6"): {"0.02"},
    (2, "Corollary B.5"): {"4.2"},  # of a theorem
    (3, "Theorem 2"): {"0.35"},  # tests/theory/test_functions_as_networks.py
    (3, "Figure 3 A"): {"0.01", "1e-4", "0.08", "1.1"},
    (3, "Figure 3 B, C"): {"0.001", "0.003", "1e-4"},
}


def values(text: str) -> list[float]:
    return [float(found.replace(",", "")) for found in NUMBER.findall(text)]


def half_a_digit(text: str) -> float:
    mantissa, _, exponent = text.partition("e")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def known(item: Item) -> list[float]:
    details = [
        f"{claim.sentence} {claim.detail}" for study in item.studies for claim in committed(study).outcome.claims
    ]
    theirs = [item.claim, *(number for _, number, _ in item.numbers)]
    source = SOURCES.get((item.paper, item.item))
    return [*values(" ".join([*details, *theirs])), *(source() if source else ())]


def unexplained(text: str, numbers: Sequence[float]) -> list[str]:
    """The decimals of a text that no number is when it is rounded to as many digits."""
    return [
        decimal
        for decimal in DECIMAL.findall(text)
        if not any(abs(number - float(decimal)) <= half_a_digit(decimal) * (1 + 1e-9) for number in numbers)
    ]


@pytest.mark.parametrize("item", ITEMS, ids=lambda one: f"{one.paper}: {one.item}")
def test_decimals_of_evidence_are_numbers_of_details_and_rows(item: Item) -> None:
    found = unexplained(" ".join([item.evidence, *(ours for _, _, ours in item.numbers)]), known(item))
    assert set(found) == GIVEN.get((item.paper, item.item), set())


@pytest.mark.parametrize("item", WITHOUT_STUDIES, ids=lambda one: f"{one.paper}: {one.item}")
def test_decimals_of_evidence_without_studies_are_in_the_tests_of_the_item(item: Item) -> None:
    text = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in item.tests)
    found = unexplained(item.evidence, values(text))
    assert set(found) == GIVEN.get((item.paper, item.item), set())
