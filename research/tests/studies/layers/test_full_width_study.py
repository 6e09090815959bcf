"""The study of the widest networks, on a narrow one: right numbers, and claims that can fail."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hessmap.hessians.operators import loss_hessian
from hessmap_research.studies import Row
from hessmap_research.studies.layers.full_width import STUDY, cases, claims, measure
from hessmap_research.studies.layers.trained_layers import Recipe, untrained_layers

CASE: dict[str, Any] = {"data": "digits", "network": "F-16^2", "layer": "fc2", "epochs": 0, "seed": 0}
CASE |= {"num_samples": 60, "count": 30}


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return measure(CASE)


def test_eigenvalues_are_those_of_the_dense_block(record: dict[str, Any]) -> None:
    problem = untrained_layers("F-16^2", "digits", recipe=Recipe(60, 0, 60))
    place = problem.layout["fc2.weight"]
    dense = torch.linalg.eigvalsh(loss_hessian(problem).to_dense()[place, place]).flip(0).numpy()
    assert record["eigenvalues"] == pytest.approx(dense[:30], abs=1e-5 * dense[0])
    assert record["is_converged"]
    assert record["gap"] == pytest.approx(dense[8] / dense[9], rel=1e-3)
    assert (record["num_weights"], len(record["overlap"])) == (256, 30)


def test_a_trained_network_is_measured_too(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HESSMAP_MODELS", str(tmp_path))
    untrained, trained = (measure({**CASE, "epochs": epochs, "count": 12})["risk"] for epochs in (0, 5))
    assert trained < untrained


@pytest.mark.parametrize(
    ("name", "value", "place"),
    [("is_converged", False, 0), ("worst_residual", 1e-3, 0), ("num_outliers", 12, 1), ("overlap_at", {"k9": 0.2}, 2)],
)
def test_every_claim_can_fail(record: dict[str, Any], name: str, value: Any, place: int) -> None:
    right = {**record, "is_converged": True, "num_outliers": 9, "overlap_at": {"k9": 0.9}}
    assert all(claim.holds for claim in claims([Row(CASE, right)]))
    broken = [claim.holds for claim in claims([Row(CASE, {**right, name: value})])]
    assert [number for number, holds in enumerate(broken) if not holds] == [place]


def test_both_networks_are_cases() -> None:
    assert [(case["network"], case["layer"]) for case in cases("cifar10")] == [
        ("VGG11-W200", "conv8"),
        ("ResNet18-W80", "conv17"),
    ]
    assert STUDY.data == ("cifar10",)
