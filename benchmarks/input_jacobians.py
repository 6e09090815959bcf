"""How fast are the input-output Jacobians of 1,000 samples, beside torch.func.jacrev sample by sample?

A ReLU network of 13 layers and width 100 from 50 inputs to 50 outputs (Jacot 2023, Figure 1), and LeNet5 on 28 x 28
images; weights as drawn, standard-normal inputs, float64. The Jacobians must agree to 1e-12 of the largest entry.

    make bench    # or: python benchmarks/input_jacobians.py [--samples 1000]
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch
from harness import environment, seconds_in_turn, speedups, write
from torch import Tensor, nn

import hessmap as hm
from hessmap_research.instruments.zoo import zoo_network

WANTED_SPEEDUP = 5.0
AGREEMENT = 1e-12


def deep_network() -> tuple[nn.Module, int]:
    return hm.FullyConnected((50, *(100,) * 12, 50), activation="relu", bias=True).build(seed=0, init="kaiming"), 50


def lenet() -> tuple[nn.Module, int]:
    return zoo_network("LeNet5", seed=0), 784


CASES = {"13 layers of width 100": deep_network, "LeNet5": lenet}


def sample_by_sample(model: nn.Module, inputs: Tensor) -> Tensor:
    jacobian = torch.func.jacrev(lambda sample: model(sample[None])[0])
    return torch.stack([jacobian(sample).detach() for sample in inputs])


def measure(title: str, num_samples: int) -> dict[str, Any]:
    model, input_dim = CASES[title]()
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(num_samples, input_dim, generator=generator, dtype=torch.float64)
    works = {
        "ours": lambda: hm.maps.functions.input_jacobians(model, inputs),
        "jacrev": lambda: sample_by_sample(model, inputs),
    }
    works["ours"]()  # what is loaded at a first call
    seconds, values = seconds_in_turn(works)
    speedup, found, wanted = speedups(seconds, "ours", "jacrev"), values["ours"], values["jacrev"]
    difference = float((found - wanted).abs().max() / wanted.abs().max())
    return {
        "case": title,
        "num_samples": num_samples,
        "shape": list(found.shape[1:]),
        "seconds": seconds,
        "speedup": speedup,
        "largest_difference": difference,
        "wanted_speedup": WANTED_SPEEDUP,
        "passes": speedup["best"] >= WANTED_SPEEDUP and difference <= AGREEMENT,
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1000)
    given = parser.parse_args()
    where = environment()
    rows = [measure(title, given.samples) for title in CASES]
    for row in rows:
        ours, theirs = (row["seconds"][name]["best"] for name in ("ours", "jacrev"))
        speed = f"{ours:.3f} s against {theirs:.3f} s, {row['speedup']['best']:.1f}x"
        verdict = "passes" if row["passes"] else "FAILS"
        print(f"{row['case']}: {speed}; differ by {row['largest_difference']:.1e}; {verdict}")
    if given.samples == 1000:
        write("input_jacobians", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
