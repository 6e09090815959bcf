"""Numbers of the registry, recomputed from the stored rows of the studies."""

from __future__ import annotations

import re

import pytest
from committed import committed

from hessmap.records import PARTS
from hessmap_research.papers import Item, papers
from hessmap_research.runner.row import Row

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
    ("name", "where"),
    [
        ("LeNet5 on MNIST", {"data": "mnist", "size": "long", "epochs": 100, "num_measured": 60_000, "init": None}),
        ("LeNet5 on CIFAR-10", {"data": "cifar10", "size": "published", "epochs": 300, "num_measured": 50_000}),
    ],
)
def test_overlaps_of_table_8(name: str, where: dict[str, object]) -> None:
    numbers = {quantity: (theirs, ours) for quantity, theirs, ours in item_of(2, "Table 8").numbers}
    for layer in ("fc1", "fc2"):
        (row,) = rows_of("layers/subspace", layer=layer, labels=None, **where)
        theirs, ours = numbers[f"{name}, {layer}"]
        assert row.number("published") == float(theirs)
        found = [row.number(field) for field in ("as_printed", "centred", "by_activity")]
        for text, value in zip(re.findall(r"\d\.\d+", ours), found, strict=True):
            assert abs(float(text) - value) <= 0.0051, (layer, text, value)


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
