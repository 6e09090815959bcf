"""The study of one convolution with a bias finds the ranks of the formulas, and wrong ones wrong."""

from __future__ import annotations

import pytest

from hessmap_research.studies.cnn import biased_convolution as study


@pytest.mark.parametrize("has_last_bias", [True, False])
def test_the_study_finds_the_ranks_of_the_formulas(has_last_bias):
    found = study.measure({"has_last_bias": has_last_bias, "num_networks": 15, "batch": 99})
    assert found["right"] == {"functional": 15, "loss": 15}
    assert found["counterexamples"] == []


def test_the_study_bites(monkeypatch):
    right = study.predict_ranks
    monkeypatch.setattr(study, "predict_ranks", lambda net: right(net, mean_residual_is_zero=True))
    found = study.measure({"has_last_bias": True, "num_networks": 15, "batch": 99})
    assert found["right"]["functional"] < 15
