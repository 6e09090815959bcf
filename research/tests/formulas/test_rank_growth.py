"""The rank of H_L over the width of a network: as the square root of the parameters, or as the parameters."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from hessmap.exact import generic_rank
from hessmap.networks import Architecture, FullyConnected, Residual, SelfAttention
from hessmap.theory import predict_ranks

# The power of the number of parameters that the ranks tend to as the width grows.
POWERS = {
    "fully connected": 0.5,
    "residual, one layer a block": 0.5,
    "residual, inner width 2": 1.0,
    "residual, inner width half the width": 0.5,
    "attention, many samples": 1.0,
    "attention, 4 samples of 4 tokens": 0.5,
}


def network_and_data(family: str, width: int) -> tuple[Architecture, dict[str, Any]]:
    """A network of the family, and its data, of fixed ranks: only the width grows."""
    data: dict[str, Any] = {"input_rank": 4, "residual_rank": 2}
    if family == "fully connected":
        return FullyConnected((4, width, width, width, 4)), data
    if family.startswith("residual"):
        inner = {"2": 2, "width": width // 2}.get(family.split()[-1])
        ends: Any = {"input_dim": 4, "output_dim": 4, "train_input": True, "train_output": True}
        return Residual(width, 2, inner_width=inner, **ends), data
    if family == "attention, many samples":
        return SelfAttention(width, width, 2), {"num_samples": None, "num_tokens": 2}
    return SelfAttention(width, width, 2), {"num_samples": 4, "num_tokens": 4}


@pytest.mark.parametrize(("family", "power"), POWERS.items())
def test_the_predicted_rank_grows_as_a_power_of_the_parameters(family: str, power: float) -> None:
    small, large = (
        predict_ranks(network, **data) for network, data in (network_and_data(family, width) for width in (1024, 4096))
    )
    grown = log(large.loss.value / small.loss.value) / log(large.num_parameters / small.num_parameters)
    assert grown == pytest.approx(power, abs=0.02)


@pytest.mark.parametrize("family", POWERS)
@pytest.mark.parametrize("width", [4, 6])
def test_the_prediction_is_the_rank_of_small_networks(family: str, width: int) -> None:
    network, data = network_and_data(family, width)
    claim, exact = predict_ranks(network, **data).loss, generic_rank(network, "loss", **data).value
    assert exact == claim.value if claim.relation == "equal" else exact <= claim.value
