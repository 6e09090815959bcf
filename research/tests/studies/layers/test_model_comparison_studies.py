"""Overlap of models, full Hessian, training and clusters on tiny networks; and that their verdicts can fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hessmap.errors import InvalidInput
from hessmap.records.record import decode, encode
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.studies import Row, Study
from hessmap_research.studies.layers import clusters, full_hessian, overlap, training
from hessmap_research.studies.layers import trained_layers as models
from hessmap_research.studies.layers.trained_layers import Recipe

Numbers = dict[str, float]
SHORT = Recipe(200, 4, 150, learning_rate=0.1)
PAIR: dict[str, Any] = {"data": "digits", "network": "F-12", "labels": "true", "layer": "fc1", "count": 20}
FULL: dict[str, Any] = {"data": "digits", "network": "F-100^2", "epochs": 300, "seed": 0}


@pytest.fixture(scope="module", autouse=True)
def _models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = use_models_folder(tmp_path_factory.mktemp("models"))
    yield
    use_models_folder(before)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network is trained for a moment, on few samples."""
    monkeypatch.setattr(models, "recipe_for", lambda network, data, **changes: SHORT)


def measured(study: Study, **case: Any) -> Row:
    record = study.measure(case)
    assert not set(record) & set(case)
    return Row(case, decode(encode(record)))


def held(study: Study, rows: list[Row], claim: str) -> bool:
    found = study.outcome(rows).claim(claim)
    assert found.holds is not None, found.detail
    return found.holds


@pytest.mark.usefixtures("short")
def test_overlap_of_a_model_with_itself_is_one_and_with_another_is_small() -> None:
    same = measured(overlap.STUDY, **PAIR, compared="seeds", pair=(1, 1))
    other = measured(overlap.STUDY, **PAIR, compared="seeds", pair=(0, 1))

    assert same["overlap"] == pytest.approx(np.ones(20), abs=1e-3)
    assert same["predicted"] == pytest.approx(np.ones(20), abs=1e-3)
    assert other["overlap"][0] < 0.9
    assert other["peak_value"] == pytest.approx(other["overlap"].max(), rel=1e-3)
    assert other["growth_end"] <= other["num_live"] <= other["num_outputs"] == 12
    assert other["theorem"][-1] == pytest.approx(other["growth_end"] / 12 * other["input_overlap"], rel=1e-3)
    assert other["chance"][9] == pytest.approx(10 / (12 * 64), rel=1e-3)


@pytest.mark.usefixtures("short")
def test_output_layer_and_checkpoints_have_no_linear_growth() -> None:
    output = measured(overlap.STUDY, **PAIR | {"layer": "fc2"}, compared="seeds", pair=(0, 1))
    checkpoints = measured(overlap.STUDY, **PAIR, compared="checkpoints", pair=(1, 2))

    assert output["theorem"] == pytest.approx(np.full(9, output["input_overlap"]), rel=1e-3)
    assert "theorem" not in checkpoints
    assert checkpoints["at_nine"] > 0.5


@pytest.mark.usefixtures("short")
def test_recipes_and_checkpoints_are_other_models_and_unknown_names_are_refused() -> None:
    def weights(compared: str, number: int, labels: str = "true") -> Any:
        problem = models.compared_model("F-12", "digits", labels, compared, number)
        return problem.named["fc1.weight"]

    assert (weights("recipes", 0) == weights("seeds", 0)).all()
    assert (weights("checkpoints", 2) == weights("seeds", 0)).all()
    for compared, number in (("recipes", 1), ("recipes", 2), ("checkpoints", 0)):
        assert not (weights(compared, number) == weights("seeds", 0)).all()
    with pytest.raises(InvalidInput, match="compared"):
        weights("widths", 0)
    with pytest.raises(InvalidInput, match="labels"):
        weights("seeds", 0, "shuffled")


def pair_row(**fields: Any) -> Row:
    case = {
        "data": "digits",
        "network": "F-16",
        "labels": "random",
        "layer": "fc1",
        "compared": "seeds",
        "pair": (0, 1),
    }
    curve = np.concatenate([np.full(9, 0.3), np.full(39, 0.1)])
    record = {"overlap": curve, "peak": 15, "peak_value": 0.7, "at_twice": 0.5, "at_nine": 0.3, "input_overlap": 0.4}
    record |= {"num_outputs": 16, "num_live": 16, "growth_end": 15}
    return Row(case | {k: v for k, v in fields.items() if k in case}, record | fields)


SHORT_CURVE = np.concatenate([np.full(9, 0.3), np.full(51, 0.1)])
WIDE: dict[str, Any] = {
    "network": "F-200^2",
    "labels": "true",
    "peak": 9,
    "num_outputs": 200,
    "overlap": SHORT_CURVE,
}
LONG: dict[str, Any] = WIDE | {"overlap": np.concatenate([SHORT_CURVE, np.full(340, 0.2)])}
LENET: dict[str, Any] = {"data": "cifar10", "network": "LeNet5", "labels": "true", "layer": "conv2", "peak": 14}


@pytest.mark.parametrize(
    ("words", "good", "bad"),
    [
        ("random-labels-peak", {}, {"peak": 12}),
        ("random-labels-peak", {"peak": 17}, {"peak": 18}),
        ("random-labels-height", {}, {"peak_value": 0.59}),
        ("random-labels-decline", {}, {"at_twice": 0.56}),
        ("random-labels-mean", {}, {"at_twice": 0.56}),
        ("near-nine-digits-fc2", WIDE | {"layer": "fc2"}, {"peak": 11}),
        ("none-beyond-digits-fc1", LONG, {"peak": 400}),
        ("at-outputs-digits-fc1", LONG | {"peak": 210}, {"peak": 260}),
        ("hypothesis-fails", WIDE, {"growth_end": 200}),
        ("output-layer-flat-digits", WIDE | {"layer": "fc3"}, {"overlap": np.linspace(0.1, 0.9, 48)}),
        ("output-layer-share-at-nine-digits", WIDE | {"layer": "fc3"}, {"at_nine": 0.27}),
        ("output-layer-falls-at-18-digits", WIDE | {"layer": "fc3"}, {"overlap": np.full(48, 0.3)}),
        ("lenet-at-outputs-cifar10-conv2", LENET, {"peak": 40}),
    ],
)
def test_claims_on_overlaps_hold_and_fail(words: str, good: dict[str, Any], bad: dict[str, Any]) -> None:
    assert held(overlap.STUDY, [pair_row(**good)], words)
    assert not held(overlap.STUDY, [pair_row(**good | bad)], words)


@pytest.mark.parametrize("claim", ["none-beyond-digits-fc1", "at-outputs-digits-fc1"])
def test_curves_that_end_below_the_outputs_do_not_decide_where_the_overlap_peaks(claim: str) -> None:
    found = overlap.STUDY.outcome([pair_row(**WIDE)]).claim(claim)
    assert found.outcome == "inconclusive"
    assert found.detail == "the curves end at k = 60 of m = 200"


def test_mean_curves_of_wide_layers_are_compared_without_a_verdict_on_their_peaks() -> None:
    rows = [pair_row(**WIDE), pair_row(**WIDE, compared="recipes"), pair_row(**LONG)]
    found = overlap.STUDY.outcome(rows).claim("recipes-f-200-2-fc1")
    assert (found.outcome, found.detail) == ("inconclusive", "1 and 1 of k = 1 to 60")


def test_claims_on_recipes_and_checkpoints_compare_mean_curves() -> None:
    late = np.concatenate([np.full(20, 0.01), np.full(28, 0.2)])
    rows = [pair_row(), pair_row(compared="recipes"), pair_row(compared="checkpoints", overlap=np.full(48, 0.9))]

    assert held(overlap.STUDY, rows, "recipes-f-16-fc1")
    assert held(overlap.STUDY, rows, "checkpoints-f-16-fc1")
    assert not held(overlap.STUDY, [rows[0], pair_row(compared="recipes", overlap=late)], "recipes-f-16-fc1")
    assert not held(overlap.STUDY, [rows[0], pair_row(compared="checkpoints", overlap=late)], "checkpoints-f-16-fc1")


def test_full_hessian_of_a_tiny_network_is_guessed_and_compared() -> None:
    found = measured(full_hessian.STUDY, data="digits", network="F-6", epochs=2, count=9, seed=0)

    assert found["converged"] is True
    assert found["num_parameters"] == 64 * 6 + 6 + 6 * 10 + 10
    for form in ("corrected", "printed"):
        assert 0.5 < found[f"{form}.overlap"][8] <= 1
        assert 0 < found[f"{form}.largest"] < 1.5


def full_row(corrected: dict[str, float], printed: dict[str, float], **case: Any) -> Row:
    right = {"at_1": 0.93, "at_5": 0.93, "at_9": 0.9, "at_30": 0.33, "largest": 0.88}
    other = {"at_1": 0.8, "at_5": 0.9, "at_9": 0.9, "at_30": 0.33, "largest": 0.84}
    return Row(FULL | case, {"corrected": right | corrected, "printed": other | printed})


@pytest.mark.parametrize(
    ("words", "corrected", "printed"),
    [
        ("limit-at-1-f-100-2-digits-300", {"at_1": 0.89}, {}),
        ("closer-at-1-f-100-2-digits-300", {}, {"at_1": 0.94}),
        ("limit-at-5-f-100-2-digits-300", {"at_5": 0.915}, {}),
        ("closer-at-5-f-100-2-digits-300", {}, {"at_5": 0.94}),
        ("limit-at-9-f-100-2-digits-300", {"at_9": 0.875}, {}),
        ("limit-at-30-f-100-2-digits-300", {}, {"at_30": 0.5}),
        ("limit-largest-f-100-2-digits-300", {"largest": 0.91}, {}),
        ("closer-largest-f-100-2-digits-300", {"largest": 1.2}, {}),
    ],
)
def test_claims_on_the_full_hessian_hold_and_fail(words: str, corrected: Numbers, printed: Numbers) -> None:
    good, bad = full_row({}, {}), full_row(corrected, printed)
    verdict = full_hessian.STUDY.outcome([good] * 3)
    assert [one.holds for one in verdict.claims] == [True] * 8
    assert not held(full_hessian.STUDY, [bad] * 3, words)
    assert not full_hessian.STUDY.outcome([good, good, bad]).claim(words).holds
    assert len(full_hessian.STUDY.outcome([full_row({}, {}, epochs=100)]).claims) == 3


@pytest.mark.usefixtures("short")
def test_training_starts_at_the_initialisation_and_ends_with_its_own_space() -> None:
    found = measured(training.STUDY, data="digits", network="F-12", layer="fc1", seed=0)

    assert found["moments"].tolist() == [0, 1, 3, 4]
    assert found["course.with_final"][-1] == pytest.approx(1, abs=1e-3)
    assert found["course.risk"][0] > found["course.risk"][-1]
    assert found["first.with_final"] < found["before_last.with_final"]
    assert found["chance"] == 9 / (12 * 64)
    assert "course.gap" not in measured(training.STUDY, data="digits", network="F-12", layer="fc2", seed=0)


@pytest.mark.usefixtures("short")
def test_factors_on_all_images_are_those_beside_the_hessian_and_are_claimed_apart() -> None:
    case = {"data": "digits", "network": "F-12", "layer": "fc1", "seed": 0}
    beside, alone = (measured(training.STUDY, **case, num_measured=number) for number in (300, 50_000))

    assert "course.largest" in beside
    assert not {"course.largest", "course.with_final", "chance"} & set(alone.names())
    for name in ("squared_cosine", "gap", "num_outliers", "tau_9", "gamma_2"):
        np.testing.assert_array_equal(alone.array(f"course.{name}"), beside.array(f"course.{name}"))
    claims = [one.id for one in training.STUDY.outcome([beside, alone]).claims]
    whole, factors = "f-12-digits-fc1", ("rank-one-inputs", "outliers")
    assert claims == [
        *(f"{name}-{whole}" for name in (*factors, "nearer-the-end", "above-chance")),
        *(f"{name}-{whole}-all" for name in factors),
    ]


def training_row(**fields: Any) -> Row:
    case = {"data": "digits", "network": "F-100^2", "layer": "fc1", "seed": 0}
    numbers = {"squared_cosine": 0.999, "gap": 5.0, "num_outliers": 9, "with_other": 0.1}
    arrays = {name: np.full(4, fields.get(name, value)) for name, value in numbers.items()}
    ends = {"first": {"with_final": fields.get("start", 0.3)}, "before_last": {"with_final": 0.9}}
    return Row(case, {"course": arrays, **ends, "chance": 0.001})


@pytest.mark.parametrize(
    ("words", "bad"),
    [
        ("rank-one-inputs-f-100-2-digits-fc1", {"squared_cosine": 0.98}),
        ("outliers-f-100-2-digits-fc1", {"num_outliers": 8}),
        ("nearer-the-end-f-100-2-digits-fc1", {"start": 0.95}),
        ("above-chance-f-100-2-digits-fc1", {"with_other": 0.009}),
    ],
)
def test_claims_along_training_hold_and_fail(words: str, bad: dict[str, Any]) -> None:
    assert held(training.STUDY, [training_row()], words)
    assert not held(training.STUDY, [training_row(), training_row(**bad)], words)


@pytest.mark.usefixtures("short")
def test_clusters_are_by_logit_before_training() -> None:
    case = {"data": "digits", "network": "F-12", "layer": "fc1", "seed": 0}
    start = measured(clusters.STUDY, **case, moment="initialisation", space="outputs")
    end = measured(clusters.STUDY, **case, moment="minimum", space="weights")

    assert start["by_logit"] > 1 > start["by_class"]
    assert end["explained"] < 1
    assert start["horizontal"].shape == start["logit"].shape == (100,)
    assert start["class"][:3].tolist() == [0, 0, 0]
    assert 0 < start["centre_cosine.weights"] < start["centre_cosine.activities"] <= 1


def cluster_row(moment: str, **fields: Any) -> Row:
    case = {"data": "digits", "layer": "fc1", "moment": moment, "space": "outputs"}
    centres = {"weights": 0.8, "activities": fields.get("activities", 0.95)}
    return Row(case, {"by_logit": 3.0, "by_class": 0.1, "explained": 0.5, "centre_cosine": centres} | fields)


@pytest.mark.parametrize(
    ("words", "moment", "bad"),
    [
        ("logit-clusters-digits-fc1-outputs", "initialisation", {"by_logit": 0.9}),
        ("logit-clusters-digits-fc1-outputs", "initialisation", {"by_class": 4.0}),
        ("weak-class-clusters-digits-fc1-outputs", "minimum", {"by_class": 1.1}),
        ("class-means-not-enough", "minimum", {"explained": 0.96}),
        ("centres-initialisation", "initialisation", {"activities": 0.85}),
    ],
)
def test_claims_on_clusters_hold_and_fail(words: str, moment: str, bad: dict[str, float]) -> None:
    assert held(clusters.STUDY, [cluster_row(moment)], words)
    assert not held(clusters.STUDY, [cluster_row(moment, **bad)], words)


@pytest.mark.parametrize("study", [overlap.STUDY, full_hessian.STUDY, training.STUDY, clusters.STUDY])
def test_every_case_of_every_data_set_has_a_predicted_time(study: Study) -> None:
    for data in study.data:
        assert all(study.seconds_of(case) > 0 for case in study.cases_on(data))
