"""Networks trained with an l2 penalty: the gradient that is written out, the objective, the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hessmap.datasets import Data
from hessmap.errors import HessmapError
from hessmap.networks import FullyConnected
from hessmap_research.studies.function import regularised_network as module
from hessmap_research.studies.function.regularised_network import regularised_network
from hessmap_research.studies.function.relu_objective import ReluDescent


def _data(loss: str, num_samples: int = 30) -> Data:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, 4, generator=generator, dtype=torch.float64)
    targets = inputs[:, :3] ** 2 if loss == "squared" else inputs[:, :3].argmax(dim=1)
    return Data(inputs, targets)


@pytest.mark.parametrize("loss", ["squared", "cross_entropy"])
def test_gradient_written_out_is_that_of_autograd(loss: Any) -> None:
    inputs, targets = _data(loss)
    model = FullyConnected((4, 6, 5, 3), bias=True, activation="relu").build(seed=1)
    descent = ReluDescent(model, inputs, targets, loss)
    descent.set_gradients()
    outputs = model(inputs)
    if loss == "squared":
        risk = (outputs - targets).square().sum(dim=1).mean()
    else:
        risk = torch.nn.functional.cross_entropy(outputs, targets)
    exact = torch.autograd.grad(risk, list(model.parameters()))
    for found, ndim in ((descent.weights.grad, 2), (descent.biases.grad, 1)):
        wanted = torch.cat([part.flatten() for part in exact if part.ndim == ndim])
        torch.testing.assert_close(found, wanted.float(), rtol=1e-4, atol=1e-6)


def test_training_nears_a_stationary_point_of_the_penalised_objective() -> None:
    """The minimum of mean (w x - 1)^2 + ridge w^2 over one weight with x = 1 is w = 1 / (1 + ridge), bias alike."""
    data = Data(torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    net = regularised_network((1, 1), data, ridge=0.5, learning_rate=0.05, num_steps=2000)
    # w = b by symmetry: 2 (2 w - 1) + 2 * 0.5 w = 0 gives w = 2 / 5
    found = [float(part.detach()) for part in net.model.parameters()]
    np.testing.assert_allclose(found, 0.4, atol=1e-4)
    assert net.squared_norm == pytest.approx(0.32, abs=1e-3)
    assert net.risk == pytest.approx(0.04, abs=1e-3)
    assert net.gradient_norm < 1e-3
    assert len(net.objectives) == 11
    assert net.objectives[-1] == pytest.approx(0.2, abs=1e-3)


def test_a_penalty_that_is_stronger_at_first_ends_at_the_same_minimum() -> None:
    """Where there is one minimum only: what is minimised in the end does not depend on how the penalty began."""
    data = Data(torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    options: dict[str, Any] = {"ridge": 0.5, "learning_rate": 0.05, "num_steps": 2000}
    plain, strong = (regularised_network((1, 1), data, first_penalty=first, **options) for first in (1.0, 20.0))
    assert strong.objectives[-1] == pytest.approx(plain.objectives[-1], abs=1e-6)
    assert strong.objectives[1] > plain.objectives[1]  # it was another training


def test_unpenalised_biases_carry_the_whole_mean() -> None:
    data = Data(torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64))
    net = regularised_network((1, 1), data, ridge=0.5, bias_ridge=0.0, learning_rate=0.05, num_steps=2000)
    weight, bias = (float(part.detach()) for part in net.model.parameters())
    assert weight == pytest.approx(0.0, abs=1e-3)
    assert bias == pytest.approx(1.0, abs=1e-3)


def test_interrupted_training_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, options = _data("squared"), {"ridge": 0.01, "learning_rate": 0.01, "num_steps": 60}
    monkeypatch.setattr(module, "CHECKPOINT_EVERY", 20)
    monkeypatch.setenv("HESSMAP_MODELS", str(tmp_path / "whole"))
    whole = regularised_network((4, 8, 3), data, **options)
    monkeypatch.setenv("HESSMAP_MODELS", str(tmp_path / "broken"))
    steps = iter(range(45))
    plain = ReluDescent.set_gradients

    def killed(self: ReluDescent) -> None:
        if next(steps, None) is None:
            raise KeyboardInterrupt
        plain(self)

    with monkeypatch.context() as patch:
        patch.setattr(ReluDescent, "set_gradients", killed)
        with pytest.raises(KeyboardInterrupt):
            regularised_network((4, 8, 3), data, **options)
    resumed = regularised_network((4, 8, 3), data, **options)
    assert resumed[1:] == whole[1:]
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
    with monkeypatch.context() as patch:
        patch.setattr(ReluDescent, "set_gradients", lambda self: pytest.fail("trained twice"))
        assert regularised_network((4, 8, 3), data, **options)[1:] == whole[1:]


def test_divergence_and_unknown_names_are_said_in_a_sentence() -> None:
    data = _data("squared")
    options: dict[str, Any] = {"ridge": 0.01, "learning_rate": 1.0, "num_steps": 10}
    with pytest.raises(HessmapError, match="optimiser"):
        regularised_network((4, 3), data, optimiser="lion", **options)  # type: ignore[arg-type]
    with pytest.raises(HessmapError, match="loss must be"):
        regularised_network((4, 3), data, loss="hinge", **options)  # type: ignore[arg-type]
    with pytest.raises(HessmapError, match="must stay finite"):
        regularised_network((4, 8, 8, 3), data, **{**options, "optimiser": "gd", "learning_rate": 1e9})
