"""The study of inputs of low rank finds right claims right and wrong ones wrong."""

from __future__ import annotations

import pytest

import hessmap.theory
from hessmap.theory import predict_ranks
from hessmap_research.studies.random_networks.convolutional import LOW_INPUT_RANK


@pytest.mark.parametrize("family", ["patches", "convolutions", "dense"])
def test_the_study_finds_every_claim_right(family):
    found = LOW_INPUT_RANK.measure({"family": family, "num_networks": 8, "batch": 99})
    assert found["held"] == 8


def test_the_study_bites(monkeypatch):
    def wrong(net, loss, input_rank):
        return predict_ranks(net, loss, input_rank=max(1, input_rank - 1))

    monkeypatch.setattr(hessmap.theory, "predict_ranks", wrong)
    assert LOW_INPUT_RANK.measure({"family": "dense", "num_networks": 5, "batch": 99})["held"] < 5
