"""Certificates of one logit and of regression: confirmed, and refused where targets do not fit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hessmap.certificates import certify, certify_from_data
from hessmap.certificates.losses import bounded_loss
from hessmap.errors import InvalidInput

INPUTS = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
CASES = {
    "bce": (lambda: nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1)), INPUTS[:, 0] > 0),
    "squared": (lambda: nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), INPUTS[:, :2] * 0.3),
}


@pytest.mark.parametrize("loss", CASES)
def test_certificates_of_other_losses_are_confirmed(loss: str) -> None:
    build, targets = CASES[loss]
    data, model = (INPUTS, targets.float()), build()
    initial = copy.deepcopy(model)

    fitted = certify(model, initial, data, loss=loss, iterations=5, num_draws=200, basis="standard")
    prior = certify_from_data(lambda: copy.deepcopy(initial), data, loss=loss, train=lambda network, part: None)

    assert fitted.verify(model, data, initial_model=initial, seed=1, num_draws=200).verdict == "confirmed"
    assert prior.verify(initial, data, seed=2).verdict == "confirmed"
    assert prior.bound > prior.sampled_error


def test_losses_lie_in_the_unit_interval_and_what_is_not_a_number_counts_one() -> None:
    outputs = torch.tensor([[0.5, 0.0], [30.0, 0.0], [float("nan"), 0.0]])
    assert bounded_loss("squared").values(outputs, torch.zeros(3, 2)).tolist() == [0.25, 1.0, 1.0]
    assert bounded_loss("cross_entropy").values(outputs, torch.tensor([0, 1, 0])).tolist() == [0.0, 1.0, 1.0]


def test_targets_that_do_not_fit_are_refused() -> None:
    model = nn.Linear(5, 1)
    for loss, targets, words in (
        ("bce", torch.full((300,), 2), "the targets of data must be 0 or 1"),
        ("squared", torch.zeros(300, dtype=torch.long), "the targets of data must be real numbers"),
        ("squared", torch.zeros(300, 3), "the targets of data must have 1 values per sample"),
        ("cross_entropy", torch.ones(300, dtype=torch.long), 'loss="bce" for a network with one logit'),
    ):
        with pytest.raises(InvalidInput, match=words):
            certify(model, copy.deepcopy(model), (INPUTS, targets), loss=loss)
