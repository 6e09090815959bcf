"""How much faster are whole networks drawn many at once than one after another?

``python benchmarks/whole_draws.py``: milliseconds a network that answers 100 samples, by both ways, in turn, with the
same law of weights; the best of three rounds on one thread.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from hessmap.certificates.draws import Sampler
from hessmap.certificates.stochastic import StochasticNetwork
from hessmap.datasets import Data
from hessmap.records import provenance

RESULTS = Path(__file__).parent / "results" / "whole_draws.json"
NUM_NETWORKS, NUM_ROUNDS = 200, 3


class Decoder(nn.Module):
    """A weight that acts twice: the decoder is the transpose of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 20), nn.Linear(64, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.b(self.a(inputs).relu() @ self.a.weight)


class Tokens(nn.Module):
    """Eight tokens of eight numbers, folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.b(self.a(inputs.reshape(-1, 8)).relu().reshape(len(inputs), 8, 32).mean(1))


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 100), nn.LayerNorm(100), nn.ReLU(), nn.Linear(100, 10))


NETWORKS: dict[str, Callable[[], nn.Module]] = {"decoder": Decoder, "tokens": Tokens, "layer norm": normalised}


def milliseconds(sampler: Sampler, data: Data) -> float:
    """Of one network."""
    started = time.perf_counter()
    sampler.draws(data, NUM_NETWORKS, seed=0)
    return 1e3 * (time.perf_counter() - started) / NUM_NETWORKS


def compared(make: Callable[[], nn.Module]) -> dict[str, float]:
    torch.manual_seed(0)
    model, inputs = make(), torch.randn(1000, 64)
    data = Data(inputs, (inputs.sum(1) > 0).long())
    sampler = Sampler(StochasticNetwork(model, torch.Generator()), inputs, model)
    batch, found = sampler.batch, {"one after another": float("inf"), "many at once": float("inf")}
    assert sampler.kind == "networks"
    assert batch is not None
    for _ in range(NUM_ROUNDS):
        for name, way in (("one after another", None), ("many at once", batch)):
            sampler.batch = way
            found[name] = min(found[name], milliseconds(sampler, data))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = {name: compared(make) for name, make in NETWORKS.items()}
    text = json.dumps({"milliseconds": rows, "provenance": provenance("float32").to_dict()}, indent=1)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    print(text)
