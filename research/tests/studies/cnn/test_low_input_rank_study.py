"""The study of inputs of low rank finds right claims right and wrong ones wrong."""

from __future__ import annotations

import pytest

from hessmap_research.studies.cnn import low_input_rank as study


@pytest.mark.parametrize("family", ["patches", "convolutions", "dense"])
def test_the_study_finds_every_claim_right(family):
    found = study.measure({"family": family, "num_networks": 8, "batch": 99})
    assert found["held"] == 8


def test_the_study_bites(monkeypatch):
    right = study.predict_ranks
    monkeypatch.setattr(study, "predict_ranks", lambda net, input_rank: right(net, input_rank=max(1, input_rank - 1)))
    assert study.measure({"family": "dense", "num_networks": 5, "batch": 99})["held"] < 5
