"""The studies of networks that recover a rank: their data, small cases of each, and that their verdicts can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from hessmap.errors import HessmapError
from hessmap.records.record import decode, encode
from hessmap_research.runner.registry import find
from hessmap_research.studies import Row
from hessmap_research.studies.function import regularised_network as module
from hessmap_research.studies.function.denoising import curve_points
from hessmap_research.studies.function.depth_and_samples import isometric_data
from hessmap_research.studies.function.low_rank_data import low_rank_data
from hessmap_research.studies.function.tripoints import four_shapes


@pytest.fixture
def _few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings of 30 steps: what a record holds does not depend on how good a network is."""
    plain = module.regularised_network

    def short(*given: Any, **options: Any) -> Any:
        return plain(*given, **{**options, "num_steps": 30})

    monkeypatch.setattr(module, "regularised_network", short)


def _row(name: str, case: dict[str, Any], **changes: Any) -> Row:
    record = decode(encode(find(name).measure(case)))
    return Row(case, {**record, **changes})


def _holds(name: str, *rows: Row) -> list[bool | None]:
    return [claim.holds for claim in find(name).outcome(rows).claims]


@pytest.mark.parametrize("law", ["uniform", "gaussian", "truncated"])
def test_coordinates_have_the_deviation_that_is_asked_for_under_every_law(law: Any) -> None:
    inputs, targets = low_rank_data(2, law=law, deviation=0.7, num_samples=20_000, seed=3)
    assert float(inputs.std()) == pytest.approx(0.7, rel=0.01)
    assert abs(float(inputs.mean())) < 0.01
    assert torch.allclose(targets.std(0, correction=0), torch.ones(15, dtype=torch.float64))


@pytest.mark.parametrize("target", ["relu", "homogeneous", "linear"])
def test_targets_do_not_change_with_the_scale_of_the_inputs(target: Any) -> None:
    small, large = (low_rank_data(3, target=target, deviation=deviation, seed=1) for deviation in (0.3, 1.0))
    assert torch.equal(small.targets, large.targets)
    assert torch.allclose(small.inputs / 0.3, large.inputs)


def test_linear_targets_have_the_true_rank_and_a_constant_takes_the_last_coordinate() -> None:
    data = low_rank_data(3, target="linear", constant=2.0)
    assert int(torch.linalg.matrix_rank(data.targets)) == 3
    assert (data.inputs[:, -1] == 2.0).all()
    with pytest.raises(HessmapError, match="true_rank must be between"):
        low_rank_data(15)
    with pytest.raises(HessmapError, match="law"):
        low_rank_data(2, law="cauchy")  # type: ignore[arg-type]


def test_isometric_data_are_a_map_of_rank_two_with_singular_values_one() -> None:
    inputs, outputs, matrix = isometric_data(10, seed=0)
    np.testing.assert_allclose(np.linalg.svd(matrix, compute_uv=False)[:3], [1, 1, 0], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(outputs, axis=1), np.linalg.norm(inputs[:, :2], axis=1))


@pytest.mark.parametrize("curve", ["arc", "random", "sine"])
def test_curves_are_continuous_and_do_not_depend_on_the_places_asked_for(curve: str) -> None:
    places = np.linspace(-1, 1, 4001)
    points = curve_points(curve, places, seed=2)
    assert np.linalg.norm(np.diff(points, axis=0), axis=1).max() < 0.05
    np.testing.assert_allclose(curve_points(curve, places[::7], seed=2), points[::7])


def test_four_shapes_are_copies_of_one_curve_side_by_side() -> None:
    points, labels = four_shapes("hook 1.5/0.5", seed=0)
    assert torch.bincount(labels).tolist() == [100] * 4
    means = [float(points[labels == label, 0].mean()) for label in range(4)]
    assert means == sorted(means)
    assert float(points[:, 1].abs().max()) < 1.1


@pytest.mark.usefixtures("_few_steps")
def test_rank_recovery_says_where_the_middle_rank_is_not_the_true_one() -> None:
    name, case = "function/rank-recovery", {"setting": "uniform", "true_rank": 2, "seed": 0}
    row = _row(name, case)
    assert len(row.array("ranks.centred")) == 10
    middle = {"smallest": 2, "largest": 2, "uncentred": 3, "next_over_last": 0.01, "nonlinearity": 0.0}
    assert _holds(name, _row(name, case, middle=middle)) == [True] * 4
    assert _holds(name, _row(name, case, middle={**middle, "largest": 3}))[0] is False
    assert _holds(name, _row(name, case, middle={**middle, "next_over_last": 0.2}))[1] is False
    gaussian = {**case, "setting": "gaussian"}
    assert _holds(name, Row(gaussian, {"middle": {"smallest": 3}})) == [True]
    assert _holds(name, Row(gaussian, {"middle": {"smallest": 2}})) == [False]


@pytest.mark.usefixtures("_few_steps")
def test_a_network_that_takes_its_constant_into_its_biases_is_the_same_function() -> None:
    from hessmap_research.studies.function.gaussian_inputs import _with_constant_in_biases

    name = "function/gaussian-inputs"
    row = _row(name, {"variant": "gaussian 1, from the constant's", "seed": 0})
    assert 0 <= row["extra.by_true_coordinates"] <= 1
    data = low_rank_data(3, law="gaussian", deviation=1.0, constant=3.0)
    model = module.regularised_network((15, 40, 15), data, ridge=0.01, learning_rate=0.01, num_steps=5).model
    moved = _with_constant_in_biases(model)
    without = data.inputs.clone()
    without[:, -1] = 17.0
    torch.testing.assert_close(moved(without), model(data.inputs))


def test_gaussian_inputs_claims_fail_where_the_ratios_are_the_other_way() -> None:
    def rows(large: float, small: float, seeds: range = range(3)) -> list[Row]:
        ratios = {"uniform 1": large, "uniform 0.3": small}
        return [
            Row({"variant": name, "seed": seed}, {"middle": {"next_over_last": at}})
            for name, at in ratios.items()
            for seed in seeds
        ]

    assert _holds("function/gaussian-inputs", *rows(0.5, 0.1)) == [True]
    assert _holds("function/gaussian-inputs", *rows(0.1, 0.5)) == [False]
    assert _holds("function/gaussian-inputs", *rows(0.5, 0.1, range(2))) == [None]
    assert _holds("function/gaussian-inputs", *rows(0.5, 0.1, range(2)), *rows(0.1, 0.5, range(1))) == [None]


@pytest.mark.usefixtures("_few_steps")
def test_tripoints_record_two_windows_and_the_contrast_can_fail() -> None:
    name = "function/tripoints"
    case = {"shape": "sine 0.3/1.0", "ridge": 1e-4, "num_layers": 2, "seed": 0}
    row = _row(name, case)
    assert row.array("plane.labels").shape == (81, 81)
    assert row["far.num_tripoints"] >= row["near.num_tripoints"] or not row["near.agrees"]
    deep = {**case, "num_layers": 9}
    for counts, holds in (((2, 0), True), ((2, 1), False), ((0, 0), False)):
        pair = [
            Row(at, {"near": {"num_tripoints": count}, "slope_ratio": 0.1})
            for at, count in zip((case, deep), counts, strict=True)
        ]
        assert _holds(name, *pair)[0] is holds


@pytest.mark.usefixtures("_few_steps")
def test_denoising_compares_deep_with_shallow_networks_of_the_same_seed() -> None:
    name = "function/denoising"
    row = _row(name, {"curve": "arc", "seed": 0, "network": "shallow, width 40"})
    assert row["mean"] > 0
    assert row.array("plane.arrows").shape == (60, 4)
    networks = ("shallow, width 100", "deep, width 40")
    for scores, holds in (((0.8, 0.3), True), ((0.3, 0.8), False)):
        pairs = [
            Row({"curve": "arc", "seed": seed, "network": network}, {"mean": score})
            for seed in range(3)
            for network, score in zip(networks, scores, strict=True)
        ]
        assert _holds(name, *pairs) == [holds]
        assert _holds(name, *pairs[:4]) == [None]


@pytest.mark.usefixtures("_few_steps")
def test_denoising_of_digits_splits_the_error_into_what_passes_and_what_is_lost() -> None:
    name, case = "function/denoising-images", {"data": "digits", "num_layers": 2, "seed": 0}
    row = _row(name, case)
    scores = [row.number(f"held_out.{part}") for part in ("left", "passed", "lost")]
    assert scores[0] <= scores[1] + scores[2] + 1e-12
    assert row.array("picture").shape == (24, 64)
    deep = Row({**case, "num_layers": 8}, {"held_out": {"passed": 9.0, "left": 0.0}})
    assert _holds(name, *[row] * 3, *[deep] * 3) == [False, True]
    assert _holds(name, row, deep) == [None, None]


@pytest.mark.usefixtures("_few_steps")
def test_depth_and_samples_expects_no_recovery_where_rank_one_is_cheaper() -> None:
    name, case = "function/depth-and-samples", {"ridge": 1e-3, "num_samples": 6, "num_layers": 4, "seed": 0}
    row = _row(name, case)
    assert 0 < row["expected.first"] < row["expected.last"]
    few = Row({**case, "num_samples": 4, "num_layers": 16}, {**row.record, "expected": {"last": 3}, "narrowest": 1})
    assert _holds(name, few) == [True]
    over = Row(few.case, {**few.record, "narrowest": 2, "over_built": 0.5})
    assert _holds(name, over) == [False, False]
