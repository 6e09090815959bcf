"""Studies of certificates on tiny fits: what they record, which tasks they name, and that their verdicts can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hessmap import certificates
from hessmap.errors import InvalidInput
from hessmap.records.record import decode, encode
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.studies import Row, Study
from hessmap_research.studies.certificates import digits, variance
from hessmap_research.studies.certificates.certificate_record import BASES, PUBLISHED, published_bound
from hessmap_research.studies.certificates.tables import TABLE_1, TABLE_10
from hessmap_research.studies.certificates.task import NormalStart, task

TABLES = (TABLE_1, TABLE_10)
TINY: dict[str, Any] = {"data": "digits", "network": "T-3", "iterations": 20, "draws": 500, "seed": 0}


@pytest.fixture(scope="module", autouse=True)
def _models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One folder of trained networks and certificates for all tests of this file."""
    before = use_models_folder(tmp_path_factory.mktemp("models"))
    yield
    use_models_folder(before)


def measured(study: Study, **fields: Any) -> Row:
    case = TINY | fields
    return Row(case, decode(encode(study.measure(case))))


def row(basis: str, bound: float, **fields: Any) -> Row:
    record = {"bound": bound, "stochastic_test_error": 0.01, **fields}
    return Row(TINY | {"network": "T-600", "basis": basis}, record)


def holds(study: Study, rows: list[Row], claim: str) -> bool | None:
    return study.outcome(rows).claim(claim).holds


def in_three_seeds(bounds: dict[str, float], network: str = "T-600") -> list[Row]:
    return [
        Row({**row(basis, bound).case, "seed": seed, "network": network}, row(basis, bound).record)
        for basis, bound in bounds.items()
        for seed in range(3)
    ]


def test_a_tiny_case_is_measured_once_and_recorded_whole() -> None:
    first, again = (measured(digits.STUDY, basis="approximate") for _ in range(2))

    assert first.record == again.record
    assert first["num_samples"] == 1500
    assert first["num_parameters"] == 64 * 3 + 3 + 3 * 2 + 2
    assert 0 < first["sampled_error_bound"] < first["bound"] <= 1
    assert first["ending"] == "20 iterations done"
    assert "published" not in first


def test_bases_differ_in_their_bounds_alone_and_the_order_is_judged() -> None:
    rows = [measured(digits.STUDY, basis=basis) for basis in ("approximate", "standard")]

    assert len({row["test_error"] for row in rows}) == 2  # posteriors move the means, each in its own way
    assert len({row["bound"] for row in rows}) == 2
    assert len(digits.STUDY.outcome(rows).claims) == 2


@pytest.mark.parametrize(
    ("claim", "bounds", "worse"),
    [
        ("basis-beats-none", {"approximate": 0.25, "standard": 0.36}, {"approximate": 0.32}),
        ("recomputing-costs-nothing", {"iterative": 0.252, "approximate": 0.25}, {"iterative": 0.254}),
        (
            "activity-beats-weights",
            {"iterative_activity": 0.25, "iterative_weights": 0.26},
            {"iterative_activity": 0.27},
        ),
        ("measured-factor-is-best", {"iterative": 0.25, "iterative_activity": 0.26}, {"iterative": 0.27}),
    ],
)
def test_claims_on_digits_hold_and_fail(claim: str, bounds: dict[str, float], worse: dict[str, float]) -> None:
    good, bad = in_three_seeds(bounds), in_three_seeds(bounds | worse)
    assert holds(digits.STUDY, good, claim) is True
    assert holds(digits.STUDY, bad, claim) is False
    one_seed = [row for row in good if row["seed"] == 0]
    assert holds(digits.STUDY, one_seed, claim) is None
    mixed = [row for row in bad if row["seed"] == 0] + [row for row in good if row["seed"] != 0]
    assert holds(digits.STUDY, mixed, claim) is None


@pytest.mark.parametrize("study", [digits.STUDY, *TABLES], ids=lambda study: study.name)
def test_bound_below_the_error_on_test_data_is_held_against_the_study(study: Study) -> None:
    sound, broken = row("iterative", 0.2), row("iterative", 0.2, stochastic_test_error=0.21)

    assert holds(study, [sound], "test-error-below-bound")
    assert not holds(study, [sound, broken], "test-error-below-bound")


@pytest.mark.parametrize("study", TABLES, ids=lambda study: study.name)
def test_tables_compare_bases_and_published_bounds(study: Study) -> None:
    bounds = {"standard": 0.15, "approximate": 0.14, "iterative": 0.11}
    networks = ("T-100", "T-600", "T-1200")

    def rows(**worse: float) -> list[Row]:
        return [one for name in networks for one in in_three_seeds(bounds | worse, name) if one["seed"] == 0]

    compared = [*rows(), row("iterative_weights", 0.11, published=0.1198)]
    assert [one.holds for one in study.outcome(compared).claims] == [True] * 4
    assert holds(study, rows(iterative=0.145), "iterative-beats-approximate") is False
    assert holds(study, rows(approximate=0.16), "approximate-beats-standard") is False
    assert holds(study, rows()[:3], "approximate-beats-standard") is None
    assert holds(study, [row("iterative", 0.1199, published=0.1198)], "at-most-published") is False


def test_published_bounds_are_those_of_the_networks_in_the_tables() -> None:
    networks = [case["network"] for study in TABLES for case in study.cases_on("mnist")]

    assert set(networks) == {"T-100", *PUBLISHED}
    assert set(BASES) == set(certificates.BASES)
    for study in TABLES:
        for case in study.cases_on("mnist"):
            assert study.seconds_of(case) > 0
    for network in PUBLISHED:
        known = [published_bound(network, basis) for basis in ("iterative", "approximate", "standard")]
        assert sorted(bound for bound in known if bound) == [bound for bound in known if bound]
    assert published_bound("T-600", "iterative_weights") == 0.1255
    assert published_bound("R-600", "iterative") is None
    assert published_bound("T-600", "iterative_activity") is None


def test_variance_study_shares_its_posteriors_and_its_verdict_can_fail() -> None:
    known = [*digits.STUDY.cases_on("digits"), *TABLE_1.cases_on("mnist")]
    assert all(case in known for data in ("digits", "mnist") for case in variance.STUDY.cases_on(data))

    found = measured(variance.STUDY, basis="approximate", iterations=500)

    assert found["correlation"] < 0
    assert len(found["log_variance"]) * found["window"] <= 64 * 3
    assert variance.STUDY.outcome([found]).holds
    assert not variance.STUDY.outcome([found, Row(found.case, {"correlation": 0.1})]).holds


def test_task_names_say_widths_labels_and_classes() -> None:
    plain = task("T-3", "digits")
    assert [tuple(value.shape) for value in plain.initial.parameters()] == [(3, 64), (3,), (2, 3), (2,)]
    assert (len(plain.data.inputs), len(plain.test.inputs)) == (1500, 297)
    assert set(plain.data.targets.tolist()) == {0, 1}
    assert not torch.equal(plain.model[0].weight, plain.initial[0].weight)

    deep = task("T-3^2_10", "digits")
    assert [len(value) for value in deep.initial.parameters()][::2] == [3, 3, 10]
    assert set(deep.data.targets.tolist()) == set(range(10))

    random = task("R-2", "digits")
    share = float((random.data.targets == plain.data.targets).double().mean())
    assert abs(share - 0.5) < 0.06


def test_first_weights_are_normal_and_belong_to_their_seed() -> None:
    start = NormalStart((64, 50, 2), 0.1)
    first, again, other = (
        torch.cat([value.detach().flatten() for value in start.build(seed=seed).parameters()]) for seed in (3, 3, 4)
    )

    assert float(first.std()) == pytest.approx(0.1, rel=0.05)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("name", ["S-600", "T-", "T-600_9", "600", "T-600^"])
def test_unknown_task_names_are_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(InvalidInput, match="a task has a name as T-600, R-600, .*; got"):
        task(name, "digits")


def test_every_table_has_a_picture() -> None:
    from hessmap_research.views.panels import panels

    rows = [row("standard", 0.15), row("iterative", 0.11)]
    for study in TABLES:
        assert panels(study.view.figures, rows)
