"""Numbers of the registry, recomputed from the stored rows of the studies."""

from __future__ import annotations

import re

import pytest
from committed import committed

from hessmap.records import PARTS
from hessmap_research.papers import Item, papers
from hessmap_research.runner.row import Row
from hessmap_research.studies.layers.layer_cases import layers_of

BASES = {"BASE": "standard", "APPR": "approximate", "ITER": "iterative"}


def item_of(paper: int, name: str) -> Item:
    (item,) = papers()[paper].items_named(name)
    return item


def rows_of(study: str, **where: object) -> list[Row]:
    rows = committed(study).stored.rows
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]


def certificates() -> list[Row]:
    return [*rows_of("certificates/table-1"), *rows_of("certificates/table-10")]


@pytest.mark.parametrize("row", item_of(2, "Table 10").numbers, ids=lambda row: row[0])
def test_bounds_of_table_10(row: tuple[str, str, str]) -> None:
    name, published, ours = row
    network, basis = name.split(", ")
    number, decaying = float(ours.split()[0]), "decaying" in ours
    found = [one for one in certificates() if one["network"] == network and one["basis"].startswith(BASES[basis])]
    bounds = [one.number("bound") for one in found]
    assert any(abs(bound - number) <= 5e-5 for bound in bounds), (bounds, decaying)
    theirs = float(published.split()[0])
    assert any(abs(one.number("published") - theirs) < 1e-9 for one in found if "published" in one)


def test_bounds_of_table_1_are_those_of_the_iterative_basis() -> None:
    table_10 = {name: ours for name, _, ours in item_of(2, "Table 10").numbers}
    for name, _, ours in item_of(2, "Table 1").numbers:
        exact = float(table_10[f"{name.split()[0]}, ITER"].split()[0])
        assert round(exact, 3) == float(ours)


@pytest.mark.parametrize(
    ("name", "layers", "where"),
    [
        (
            "LeNet5 on MNIST",
            ("fc1", "fc2"),
            {"network": "LeNet5", "data": "mnist", "size": "long", "epochs": 100, "num_measured": 60_000, "init": None},
        ),
        (
            "LeNet5 on CIFAR-10",
            ("fc1", "fc2"),
            {"network": "LeNet5", "data": "cifar10", "size": "published", "epochs": 300, "num_measured": 50_000},
        ),
        (
            "LeNet5, random labels of MNIST",
            ("fc1", "fc2"),
            {"network": "LeNet5", "data": "mnist", "labels": "random", "num_measured": 2000},
        ),
        ("F-1500^3 on MNIST", ("fc1",), {"network": "F-1500^3", "data": "mnist", "num_measured": 60_000}),
        (
            "F-1500^3 on MNIST",
            ("fc2", "fc3"),
            {"network": "F-1500^3", "data": "mnist", "size": "large", "num_measured": 2000},
        ),
        (
            "F-1500^3 on MNIST without momentum, 10 epochs",
            ("fc1", "fc2", "fc3"),
            {"network": "F-1500^3", "data": "mnist", "size": "published", "num_measured": 2000},
        ),
        (
            "LeNet5, random labels of CIFAR-10",
            ("fc1", "fc2"),
            {"network": "LeNet5", "data": "cifar10", "labels": "random", "num_measured": 2000},
        ),
    ],
)
def test_overlaps_of_table_8(name: str, layers: tuple[str, ...], where: dict[str, object]) -> None:
    numbers = {quantity: (theirs, ours) for quantity, theirs, ours in item_of(2, "Table 8").numbers}
    on_some = " (E[M] on 2,000 images)" if name.startswith("F-") and where["num_measured"] == 2000 else ""
    for layer in layers:
        (row,) = rows_of("layers/subspace", **({"labels": None} | where), layer=layer)
        theirs, ours = numbers[f"{name}, {layer}{on_some}"]
        assert row.number("published") == float(theirs)
        found = [row.number(field) for field in ("as_printed", "centred", "by_activity")]
        for text, value in zip(re.findall(r"\d\.\d+", ours), found, strict=True):
            assert abs(float(text) - value) <= 0.0051, (layer, text, value)


def test_table_8_by_the_recipe_of_the_paper_on_mnist() -> None:
    evidence = item_of(2, "Table 8").evidence
    for field in ("centred", "by_activity"):
        pairs = []
        for epochs in (10, 30, 100):
            rows = rows_of(
                "layers/subspace", data="mnist", network="LeNet5", size="published", epochs=epochs, num_measured=2000
            )
            pairs.append(", ".join(f"{row.number(field):.2f}" for row in sorted(rows, key=lambda row: row["layer"])))
        assert all(pair in evidence for pair in pairs)


@pytest.mark.parametrize(
    ("name", "sweep", "order"),
    [("Figure 2c", "filter", ("loss", "functional", "outer_product")), ("Figures 13, 14", "patches", PARTS[::-1])],
)
def test_counts_with_as_many_samples_as_inputs(name: str, sweep: str, order: tuple[str, ...]) -> None:
    rows = rows_of("cnn/samples-equal-inputs", sweep=sweep)
    within = {part: sum(row.number(f"measured.{part}") <= row[f"printed.{part}"] for row in rows) for part in PARTS}
    evidence = item_of(1, name).evidence
    assert f"{within['loss']} of {len(rows)} cases" in evidence
    for part in order:
        assert re.search(rf"\b{within[part]}\b", evidence), part


def test_counts_of_signatures() -> None:
    rows = rows_of("fcn/signature")
    right, total = (sum(row[field] for row in rows) for field in ("right.signature", "num_networks"))
    half = sum(row["num_half"] for row in rows)
    evidence = item_of(1, "Section 5.3: negative eigenvalues").evidence
    assert f"{right:,} of {total:,} networks" in evidence
    assert f"{half:,} have exactly half" in evidence


def test_counts_of_fact_14_and_theorem_7() -> None:
    fact = committed("cnn/locality").outcome.claim("fact-14-fails")
    assert f"{fact.right} of {fact.total}" in item_of(1, "Fact 14").evidence
    linear = rows_of("cnn/rank-vs-filter", activation="identity")
    loose = sum(row.number("measured.outer_product") < row["printed.outer_product"] for row in linear)
    assert f"{loose} of {len(linear)} cases" in item_of(1, "Theorem 7").evidence


@pytest.mark.parametrize(("name", "loss"), [("Figure 7", "squared"), ("Figure 8", "cross_entropy")])
def test_counts_of_figures_over_channels(name: str, loss: str) -> None:
    linear, relu = (
        [(row.number("measured.outer_product"), row["printed.outer_product"]) for row in rows]
        for rows in (rows_of("cnn/rank-vs-channels", activation=kind, loss=loss) for kind in ("identity", "relu"))
    )
    evidence = item_of(1, name).evidence
    within, equal = (sum(test) for test in ((a <= b for a, b in linear), (a == b for a, b in linear)))
    above = sum(measured > bound for measured, bound in relu)
    assert f"{within} of {len(linear)} cases" in evidence
    assert f"equal to it in {equal}" in evidence
    assert f"above its bound in {above} of {len(relu)}" in evidence
    few = rows_of("cnn/samples-equal-inputs", sweep="channels", loss=loss)
    assert f"in {len(few)} of {len(few)} cases" in evidence
    assert all(row.number(f"measured.{part}") <= row[f"printed.{part}"] for row in few for part in PARTS)


def test_norms_on_data_at_the_scale_of_torch() -> None:
    numbers = {name: ours for name, _, ours in item_of(3, "Figure 1: the norm").numbers}
    for (_, ours), penalty in zip(numbers.items(), (1.0, 2.0, 4.0), strict=True):
        costs = [row.number("cost_per_layer") for row in rows_of("function/torch-scaled-data", penalty=penalty)]
        assert ours == f"{min(costs):.2f} to {max(costs):.2f}"
        assert len(costs) == 3


def test_eigenvalues_from_both_factors() -> None:
    evidence = item_of(2, "Sections 3.1, 3.2: eigenvalues from both factors").evidence
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows_of("layers/spectra", labels="true"):
        key = (row["data"], row["network"], row["layer"].rstrip("0123456789"))
        pairs = zip(row.array("hessian")[:9], row.array("scaled_output")[:9], strict=False)
        found.setdefault(key, []).extend(value / product for value, product in pairs if product > 0)
    assert len(found) == 7
    for ratios in found.values():
        assert f"{min(ratios):.2f} to {max(ratios):.2f}" in evidence


def test_heights_and_falls_of_overlaps() -> None:
    evidence = item_of(2, "Sections 5.3, G.3: the height of the peak").evidence
    lenet = rows_of("layers/overlap", network="LeNet5", compared="seeds", labels="true")

    def at_outputs(row: Row) -> float:
        return float(row.array("overlap")[int(row["num_outputs"]) - 1])

    for row in (row for row in lenet if row["data"] == "cifar10" and row.get("size") == "long"):
        assert f"{at_outputs(row):.3f}" in evidence
        assert f"{row.number('input_overlap'):.3f}" in evidence
        assert f"{row['growth_end']} of {row['num_outputs']}" in evidence
    small = [row for row in lenet if (row["data"], row["layer"], row.get("size")) == ("cifar10", "conv2", None)]
    for values in ([at_outputs(row) for row in small], [row.number("input_overlap") for row in small]):
        assert f"{min(values):.3f} to {max(values):.3f}" in evidence
    falls = sum(float(row.array("overlap")[-1]) < at_outputs(row) for row in lenet)
    assert f"{falls} of {len(lenet)} pairs" in item_of(2, "Section G.3.1: the overlap falls behind m").evidence


def test_medians_of_bulks() -> None:
    evidence = item_of(4, "Sections 4.1, 5: the bulk moves to zero").evidence
    quadratic = rows_of("teacher/quadratic-spectrum", shape="square")
    error = rows_of("teacher/erf-spectrum", shape="square")
    for values, digits in (
        ([row.number("median_positive") for row in quadratic], 3),
        ([row.number("bulk_median") for row in error], 4),
        ([row.number("top.mean") for row in quadratic], 1),
    ):
        *first, last = (f"{value:.{digits}f}" for value in values)
        assert f"{', '.join(first)} and {last}" in evidence
    large = [row.number("large_mean") for row in error]
    assert f"{min(large):.2f} to {max(large):.2f}" in evidence


def test_gaps_of_spectra_by_data_set() -> None:
    evidence = item_of(2, "Figure 3").evidence
    gaps: dict[tuple[str, str, str], list[float]] = {}
    own: dict[str, list[float]] = {}
    for row in rows_of("layers/spectra"):
        if row["layer"] in ("conv1", layers_of(row["network"])[-1]):
            continue
        labels, kind = row["labels"], row["layer"].rstrip("0123456789")
        if row["data"] == "digits":
            own.setdefault(labels, []).append(row.number("gap_of_hessian"))
        key = (labels if labels == "random" else row["data"], row["network"], kind)
        gaps.setdefault(key if kind == "fc" else ("", "", kind), []).append(row.number("gap_of_output"))
    random = [value for (labels, *_), values in gaps.items() if labels == "random" for value in values]
    true = [values for (labels, *_), values in gaps.items() if labels != "random"]
    assert len(true) == 6
    for values in (*true, random, *own.values()):
        assert f"{min(values):.2f} to {max(values):.2f}" in evidence


def test_ranks_along_a_training() -> None:
    (row,) = rows_of("fcn/training", data="mnist", scenario="relu")
    for part, first, last in (("functional", "1,824", "0"), ("outer_product", "963", "339")):
        assert [f"{row.number(f'{moment}.{part}'):,.0f}" for moment in ("initial", "final")] == [first, last]
        assert f"{first} to {last}" in item_of(0, "Figure 8").evidence
