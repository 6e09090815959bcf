"""The study of one convolution with a bias finds the ranks of the formulas, and wrong ones wrong."""

from __future__ import annotations

import pytest

import hessmap.theory
from hessmap.theory import predict_ranks
from hessmap_research.studies.random_networks.convolutional import BIASED_CONVOLUTION


@pytest.mark.parametrize("has_last_bias", [True, False])
def test_the_study_finds_the_ranks_of_the_formulas(has_last_bias):
    found = BIASED_CONVOLUTION.measure({"has_last_bias": has_last_bias, "num_networks": 15, "batch": 99})
    assert found["right"] == {"functional": 15, "loss": 15}
    assert found["counterexamples"] == []


def test_the_study_bites(monkeypatch):
    def wrong(net, loss):
        return predict_ranks(net, loss, mean_residual_is_zero=True)

    monkeypatch.setattr(hessmap.theory, "predict_ranks", wrong)
    found = BIASED_CONVOLUTION.measure({"has_last_bias": True, "num_networks": 15, "batch": 99})
    assert found["right"]["functional"] < 15
