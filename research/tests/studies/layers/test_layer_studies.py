"""Studies of layers on tiny networks: what they record agrees with what is known of it, and their verdicts can fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hessmap.records.record import decode, encode
from hessmap_research.runner.model_cache import use_models_folder
from hessmap_research.studies import Row, Study, claim_id
from hessmap_research.studies.layers import (
    autocorrelation,
    batch_norm,
    correspondence,
    kronecker,
    published_networks,
    rank_one,
    spectra,
    subspace,
    training,
)
from hessmap_research.studies.layers.layer_cases import PUBLISHED, published_moments, recipe_of, special_training
from hessmap_research.views.panels import panels

_MODULES = (autocorrelation, batch_norm, correspondence, kronecker, published_networks, rank_one, spectra, subspace)
STUDIES = tuple(module.STUDY for module in _MODULES)
TINY: dict[str, Any] = {"data": "digits", "network": "F-12", "epochs": 3, "layer": "fc1", "seed": 0}
PAPERS: dict[str, Any] = {"data": "digits", "network": "F-100^2", "epochs": 300, "seed": 0}


@pytest.fixture(scope="module", autouse=True)
def _models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = use_models_folder(tmp_path_factory.mktemp("models"))
    yield
    use_models_folder(before)


def measured(study: Study, **fields: Any) -> Row:
    case = TINY | fields
    record = study.measure(case)
    assert not set(record) & set(case)
    return Row(case, decode(encode(record)))


def row(layer: str, record: dict[str, Any], **fields: Any) -> Row:
    return Row(PAPERS | {"layer": layer} | fields, record)


def held(study: Study, rows: list[Row], claim: str) -> bool | None:
    return study.outcome(rows).claim(claim).holds


def test_kronecker_overlaps_are_shares_and_the_nearest_product_is_nearer() -> None:
    found = measured(kronecker.STUDY, layer="fc2")

    assert len(found["overlap"]) == 60
    assert 0 <= found["overlap"].min() <= found["overlap"].max() <= 1
    assert found["overlap_at.k9"] == found["overlap"][8]
    assert found["best_frobenius_error"] < found["frobenius_error"] < 1
    assert found["are_all_found"]


def test_spectra_of_the_last_layer_have_a_gap_without_end_in_the_output_factor() -> None:
    found = measured(spectra.STUDY, layer="fc2", labels="true")

    assert found["gap_of_output"] == float("inf")
    assert found["top_ratio"] == found["hessian"][0] / found["kronecker"][0]
    assert (np.diff(found["kronecker"]) <= 0).all()
    np.testing.assert_allclose(found["scaled_output"][0], found["kronecker"][0])


def test_spectra_with_random_labels_use_fewer_samples_and_a_larger_rate() -> None:
    true, random = ({**TINY, "labels": labels} for labels in ("true", "random"))

    recipes = [spectra._recipe(case) for case in (true, random)]

    assert [how.num_measured for how in recipes] == [1400, 700]
    assert [how.has_random_labels for how in recipes] == [False, True]
    assert recipes[1].learning_rate > recipes[0].learning_rate


def test_inputs_of_the_first_layer_are_the_digits_whatever_the_network() -> None:
    """E[x x^T] of the first 1,400 digits, taken here from the pixels themselves."""
    from hessmap.datasets import by_name

    pixels = by_name("digits", num_samples=1400).inputs.numpy()
    values = np.linalg.eigvalsh(pixels.T @ pixels / 1400)[::-1]

    for network in ("F-12", "F-12-BN"):
        found = measured(autocorrelation.STUDY, network=network)
        assert found["eigenvalue_ratio"] == pytest.approx(values[0] / values[1])
        assert found["squared_cosine"] > 0.9999
        assert found["ratio_bound"] <= found["eigenvalue_ratio"]


def test_published_numbers_stand_beside_later_layers_alone() -> None:
    assert published_moments("mnist", "F-200^2", "fc1") == {}
    assert published_moments("mnist", "F-200^2", "fc3") == {"squared_cosine": 1.0, "ratio": 12.29}
    assert published_moments("cifar10", "LeNet5", "conv2")["ratio"] == 15.87
    assert published_moments("cifar10", "LeNet5", "fc1")["ratio"] == 7.21
    assert published_moments("cifar10", "LeNet5", "conv1") == {}
    assert published_moments("digits", "F-100^2", "fc2") == {}
    for moments in PUBLISHED.values():
        for mean, least, largest in moments:
            assert least <= mean <= largest


@pytest.mark.parametrize("epochs", [0, 3])
def test_subspace_of_the_last_layer_is_exact_and_activities_help_in_the_first(epochs: int) -> None:
    first, last = (measured(subspace.STUDY, layer=layer, epochs=epochs) for layer in ("fc1", "fc2"))

    assert last["centred"] == pytest.approx(1.0, abs=1e-9)
    assert last["of_last_layer"] == last["centred"]
    assert "of_last_layer" not in first
    assert first["by_activity"] > first["centred"]
    assert last["top_over.from_activity"] == pytest.approx(1.0)


def test_rank_one_ratios_lie_between_that_of_a_full_matrix_and_one() -> None:
    found = measured(rank_one.STUDY)

    assert 12**-0.5 <= found["least"] <= found["mean_of_all"] <= 1
    assert found["mean_of_10"] == pytest.approx(found["ratios"][:10].mean())
    assert found["by_chance"] == pytest.approx((12**0.5 + 64**0.5) / (12 * 64) ** 0.5)


def test_correspondence_matrices_are_shares_and_drawn_for_one_seed() -> None:
    first, second = (measured(correspondence.STUDY, seed=seed) for seed in (0, 1))

    assert "matrices" in first
    assert "matrices" not in second
    inputs = first["matrices.input"]
    assert inputs.shape == (20, 20)
    assert (inputs.sum(axis=0) <= 1 + 1e-3).all()
    np.testing.assert_allclose(first["matrices.output"].sum(axis=0), 1, atol=2e-3)  # all of its 12 rows are there
    assert set(np.unique(first["matrices.input_of_product"])) <= {0.0, 1.0}


def test_batch_norm_takes_the_mean_out_of_the_inputs() -> None:
    plain, normal = (measured(batch_norm.STUDY, network=name, layer="fc2") for name in ("F-12", "F-12-BN"))

    assert normal["eigenvalue_ratio"] < plain["eigenvalue_ratio"]
    assert (plain["is_normalised"], normal["is_normalised"]) == (False, True)
    first = measured(batch_norm.STUDY, network="F-12-BN")
    assert first["peak.value"] == first["between_models"].max()
    assert first["between_models"].size == 24  # of hidden layers the curves go to twice the outputs
    assert "peak" not in normal
    assert 1 <= first["peak.growth_end"] <= 12


@pytest.mark.parametrize(
    ("network", "layer", "outputs", "at", "holds"),
    [
        ("F-100^2-BN", "fc1", 100, 95, True),
        ("F-100^2-BN", "fc1", 100, 60, False),
        ("LeNet5-BN", "conv1", 6, 7, True),
        ("LeNet5-BN", "conv1", 6, 9, False),
        ("LeNet5-BN", "fc1", 120, 120, False),
        ("LeNet5-BN", "fc1", 120, 240, True),
    ],
)
def test_peak_at_the_outputs_is_expected_of_the_first_layer_alone(
    network: str, layer: str, outputs: int, at: int, holds: bool
) -> None:
    curve = np.zeros(2 * outputs)
    curve[at - 1] = 0.4
    peak = {"peak": {"at": at, "value": 0.4}, "between_models": curve, "is_normalised": True, "are_all_found": True}
    claim = claim_id("peak", network, "digits", layer)
    assert held(batch_norm.STUDY, [row(layer, peak, network=network)], claim) is holds


@pytest.mark.parametrize(
    ("study", "layer", "name", "words", "good", "bad"),
    [
        (kronecker.STUDY, "fc2", "k9", "overlap-at-k9-f-100-2-digits-300-fc2", 0.91, 0.9),
        (
            autocorrelation.STUDY,
            "fc3",
            "squared_cosine",
            "squared-cosine-f-100-2-digits-300-fc1-fc2-fc3",
            0.9995,
            0.998,
        ),
        (autocorrelation.STUDY, "fc3", "eigenvalue_ratio", "eigenvalue-ratio-f-100-2-digits-300-fc1-fc2-fc3", 6.1, 5.9),
        (autocorrelation.STUDY, "fc1", "gap", "gap-f-100-2-digits-300-fc1", 5.5, 4.5),
        (subspace.STUDY, "fc1", "centred", "centred-f-100-2-digits-300-fc1-fc2", 0.81, 0.79),
        (subspace.STUDY, "fc2", "by_activity", "by-activity-f-100-2-digits-300-fc1-fc2", 0.98, 0.96),
        (rank_one.STUDY, "fc1", "mean_of_10", "mean-of-10-f-100-2-digits-300-fc1-fc2-fc3", 0.91, 0.89),
    ],
)
def test_thresholds_hold_and_fail(study: Study, layer: str, name: str, words: str, good: float, bad: float) -> None:
    assert held(study, [_whole(layer, **{name: good})], words)
    assert not held(study, [_whole(layer, **{name: good}), _whole(layer, **{name: bad}, seed=1)], words)


@pytest.mark.parametrize(("overlap", "reached"), [(0.89, True), (0.88, False)])
def test_a_training_on_all_images_is_judged_apart_from_the_small_ones(overlap: float, reached: bool) -> None:
    lenet = {"data": "mnist", "network": "LeNet5"}
    weak = {"as_printed": 0.5, "centred": 0.6, "by_activity": 0.9, "of_last_layer": 1.0}
    small = row("fc1", weak, **lenet, epochs=30)
    of_training = {"accuracy": 0.99977, "loss": 1e-3, "weights": "ab"}
    measured_on = {"size": "long", "epochs": 25, "num_measured": 60_000}
    record = {"as_printed": 0.6, "centred": overlap, "by_activity": 0.95, "training": of_training}
    rows = [small, row("fc1", record, **lenet, **measured_on)]

    assert not held(subspace.STUDY, rows, "published-lenet5-mnist-fc1")
    assert held(subspace.STUDY, rows, "published-lenet5-mnist-long-fc1") is reached


def test_cases_on_all_images_have_their_own_recipe() -> None:
    case = next(case for case in subspace.cases("mnist") if case.get("size") == "long")
    recipe = recipe_of({**case, "data": "mnist"})
    assert (recipe.num_train, recipe.momentum, recipe.num_measured) == (60_000, 0.9, 2000)
    assert recipe_of({"data": "mnist", "network": "LeNet5", "epochs": 30}).num_train == 3000


def test_a_case_says_what_is_special_about_its_training() -> None:
    lenet = {"data": "cifar10", "network": "LeNet5", "epochs": 90, "size": "long"}
    plain, random, default = (recipe_of(lenet | more) for more in ({}, {"labels": "random"}, {"init": "uniform"}))
    own = recipe_of(lenet | {"size": "published"})

    assert random == replace(plain, has_random_labels=True)
    assert default == replace(plain, init="uniform")
    assert (own.momentum, own.drop_rate_after, own.num_train) == (0.0, None, 50_000)
    words = [
        special_training(row("fc1", {}, **(lenet | more))) for more in ({}, {"init": "uniform", "labels": "random"})
    ]
    assert words == ["", ", from torch's initialisation, random labels"]


@pytest.mark.parametrize(("overlap", "is_less"), [(0.5, True), (0.7, False)])
def test_random_labels_are_compared_with_the_same_training_on_true_ones(overlap: float, is_less: bool) -> None:
    trained = {"data": "cifar10", "network": "LeNet5", "size": "long", "epochs": 90, "num_measured": 50_000}
    training = {"accuracy": 0.99, "loss": 0.1, "weights": "ab"}
    record = {"as_printed": 0.6, "by_activity": 0.9, "of_last_layer": 1.0, "training": training}
    true = row("fc1", record | {"centred": 0.6}, **trained)
    random = row("fc1", record | {"centred": overlap}, **trained, labels="random")
    shorter = row("fc1", record | {"centred": 0.1}, **(trained | {"epochs": 30}))

    assert held(subspace.STUDY, [shorter, true, random], "random-labels-lenet5-cifar10-fc1") is is_less


def _whole(layer: str, seed: int = 0, k9: float = 0.95, **changed: float) -> Row:
    """A record with what the claims of all studies look at."""
    record: dict[str, Any] = {
        "overlap_at": {"k9": k9, "k20": 0.6},
        "best_at": {"k9": 0.95},
        "spectral_error": 0.2,
        "are_all_found": True,
        "squared_cosine": 1.0,
        "eigenvalue_ratio": 10.0,
        "ratio_bound": 5.0,
        "gap": 9.0,
        "num_outliers": 9,
        "as_printed": 0.7,
        "centred": 0.9,
        "by_activity": 0.98,
        "of_last_layer": 1.0,
        "mean_of_10": 0.95,
        "mean_of_all": 0.7,
    }
    return row(layer, record | changed, seed=seed)


@pytest.mark.parametrize(("name", "bad"), [("squared_cosine", 0.31), ("eigenvalue_ratio", 1.6), ("overlap_at_9", 0.5)])
def test_contrast_of_batch_norm_can_fail(name: str, bad: float) -> None:
    good = {"squared_cosine": 0.1, "eigenvalue_ratio": 1.2, "overlap_at_9": 0.3, "is_normalised": True}
    good |= {"are_all_found": True, "between_models": np.arange(40.0)}
    rows = [row("fc2", good, network="F-100^2-BN", epochs=60)]

    assert batch_norm.STUDY.outcome(rows).holds
    rows.append(row("fc3", {**good, name: bad}, network="F-100^2-BN", epochs=60))
    assert batch_norm.STUDY.outcome(rows).fails


def test_curves_that_end_below_the_outputs_say_nothing_of_their_peak() -> None:
    record = {"between_models": np.arange(40.0), "is_normalised": True, "are_all_found": True, "overlap_at_9": 0.3}
    found = batch_norm.STUDY.outcome([row("fc2", record, network="LeNet5-BN")]).claim("short-curves")
    assert found.outcome == "inconclusive"
    assert found.detail == "the curves end at k = 40 or before, below the outputs; 1 of 1 still rise there"


def test_other_claims_can_fail() -> None:
    labelled = [
        row("fc1", {"gap_of_output": gap, "gap_of_hessian": 2.0, "top_ratio": 1.1, "are_all_found": 1}, labels=labels)
        for gap, labels in ((5.0, "true"), (1.2, "random"))
    ]
    assert held(spectra.STUDY, labelled, "random-labels-gap-of-output")
    assert not held(spectra.STUDY, labelled, "random-labels-gap-of-hessian")
    assert held(spectra.STUDY, labelled, "top-eigenvalue-f-100-2-digits-true")
    far = row("fc1", labelled[0].record | {"top_ratio": 1.3}, labels="true")
    assert not held(spectra.STUDY, [far], "top-eigenvalue-f-100-2-digits-true")

    numbers = {"first_nine": {"on_mean": 0.9, "on_outliers": 0.9}, "later": {"on_mean": 0.1}, "are_all_found": 1}
    assert correspondence.STUDY.outcome([row("fc1", numbers)]).holds
    worse = {"first_nine": {"on_mean": 0.4, "on_outliers": 0.4}, "later": {"on_mean": 0.5}, "are_all_found": 1}
    assert not any(found.holds for found in correspondence.STUDY.outcome([row("fc1", worse)]).claims[1:])
    assert held(correspondence.STUDY, [row("fc1", numbers)], "eigenpairs-found")
    assert not held(correspondence.STUDY, [row("fc1", {**numbers, "are_all_found": 0})], "eigenpairs-found")


def test_published_networks_record_every_layer_and_leave_the_first_out_of_the_means() -> None:
    case = {"data": "digits", "network": "F-12", "size": "small", "seed": 0}

    found = Row(case, decode(encode(published_networks.STUDY.measure(case))))

    assert set(found["layer"]) == {"fc1", "fc2"}
    assert found["fc.number"] == 1
    assert found["fc.ratio.mean"] == found["layer.fc2.ratio"] != found["layer.fc1.ratio"]
    assert 0 < found["layer.fc1.overlap_at_9"] <= 1
    assert (found["num_train"], found["epochs"]) == (1400, 300)
    assert "conv" not in found
    assert "published" not in found["fc"]
    assert "epochs" not in published_networks.STUDY.measure({**case, "epochs": 2})  # no name of the case again


def test_one_published_network_outside_the_papers_range_is_inconclusive() -> None:
    def of(cosine: float, ratio: float) -> list[Row]:
        parts = {
            name: {"mean": value, "least": value, "largest": value}
            for name, value in (("squared_cosine", cosine), ("ratio", ratio))
        }
        return [Row({"data": "mnist", "network": "F-600^2", "size": "large", "seed": 0}, {"fc": parts})]

    assert [one.holds for one in published_networks.STUDY.outcome(of(0.999, 12.1)).claims] == [True, True]
    assert [one.holds for one in published_networks.STUDY.outcome(of(0.99, 5.0)).claims] == [None, None]
    both = published_networks.STUDY.outcome([*of(0.999, 12.1), *of(0.999, 13.2)]).claims
    assert [one.holds for one in both] == [True, True]
    assert both[1].detail == "2 trainings: ours 12.65 (12.1 to 13.2), paper 12.0 (11.42 to 13.0)"


def test_networks_on_all_images_are_judged_and_drawn_for_themselves() -> None:
    numbers = {"mean_of_all": 0.4, "mean_of_10": 0.9, "are_all_found": True}
    small = Row({"data": "cifar10", "network": "LeNet5", "layer": "fc1", "epochs": 60}, numbers)
    long = {**small.case, "size": "long", "epochs": 90, "num_measured": 2000}
    large = Row(long, {**numbers, "mean_of_all": 0.6})

    found = {one.id: one.holds for one in rank_one.STUDY.outcome([small, large]).claims[1:]}

    assert found == {"mean-ratio-lenet5-cifar10": False, "mean-ratio-lenet5-cifar10-long": True}
    factors = Row({**long, "num_measured": 50_000}, {})
    drawn = {panel.title: panel.rows for panel in panels(training.STUDY.view.figures, [small, large, factors])}
    assert drawn["LeNet5, CIFAR-10: overlap of two trainings"] == (small,)
    assert drawn["LeNet5, CIFAR-10, all images: overlap of two trainings"] == (large,)
    assert drawn["fc1 of LeNet5, CIFAR-10, all images: E[M]"] == (factors,)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_data_set_has_cases_with_seconds_and_figures(study: Study) -> None:
    for data in study.data:
        chosen = study.cases_on(data)
        assert chosen
        assert all(study.seconds_of(case) > 0 for case in chosen)
        assert panels(study.view.figures, [Row(case, {}) for case in chosen])
