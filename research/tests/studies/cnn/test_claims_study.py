"""The study of claims: it sees every family, and it would see a claim that is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hessmap.theory
from hessmap.records import PARTS
from hessmap_research.studies.random_networks.convolutional import CLAIMS

FAMILIES = tuple(dict.fromkeys(case["family"] for case in CLAIMS.cases))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_claim_fails_on_a_few_networks_of_each_family(family: str) -> None:
    record = CLAIMS.measure({"family": family, "loss": "cross_entropy", "num_networks": 4, "batch": 99})
    assert record["held"] == dict.fromkeys(PARTS, 4)
    assert record["counterexamples"] == []
    assert all(sum(kinds.values()) == 4 for kinds in record["kinds"].values())


def test_a_claim_that_is_one_too_high_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = hessmap.theory.predict_ranks

    def wrong(*arguments: Any, **options: Any) -> Any:
        prediction = right(*arguments, **options)
        return replace(prediction, loss=replace(prediction.loss, value=prediction.loss.value + 1))

    monkeypatch.setattr(hessmap.theory, "predict_ranks", wrong)
    record = CLAIMS.measure({"family": "one convolution", "loss": "squared", "num_networks": 3, "batch": 0})
    assert record["held"] == {"outer_product": 3, "functional": 3, "loss": 0}
    assert [example["claim"].kind_text for example in record["counterexamples"]] == ["exact"] * 3
