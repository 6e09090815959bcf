"""The number of networks that a conjecture of the library names as its evidence is that of the committed results."""

from __future__ import annotations

import json
from typing import Any

from committed import RESULTS

from hessmap.networks import Convolutional, FullyConnected
from hessmap.theory import predict_ranks

BIASED = FullyConnected((6, 5, 4, 3), bias=True)
SOME_BIASES = FullyConnected((6, 5, 4, 3), bias=(True, False, False))
BIASED_CONVOLUTION = Convolutional(9, (1, 3), (8,), outputs=5, bias=(True, False))
TWO_CONVOLUTIONS = Convolutional(16, (1, 4, 4), (7, 7), outputs=4)


def count(name: str, **wanted: Any) -> int:
    cases = [record["case"] for record in json.loads((RESULTS / f"{name}.json").read_text())["records"]]
    return sum(case["num_networks"] for case in cases if all(case[key] in wanted[key] for key in wanted))


def test_evidence_is_what_the_committed_results_count() -> None:
    families = ("deep, bias", "deep, bias, bottleneck")
    assert predict_ranks(BIASED).loss.num_cases == count("fcn-conjectures", family=families)
    assert predict_ranks(SOME_BIASES).loss.num_cases == count("fcn-bias-in-some-layers")
    assert predict_ranks(TWO_CONVOLUTIONS).outer_product.num_cases == count("cnn-deep-law")
    assert predict_ranks(TWO_CONVOLUTIONS).loss.num_cases == count("cnn-layer-kernels", largest_stride=(1,))
    assert predict_ranks(BIASED_CONVOLUTION).loss.num_cases == count("cnn-biased-convolution")
