"""Products of an objective next to double backward written by hand with a kept graph: seconds, interleaved.

    python benchmarks/objective_products.py      # writes benchmarks/results/objective_products.json

Both sides multiply the same vector with the Hessian of the same scalar, in float64, after one product that builds the
graph. The ratio is that of the best of all rounds; the spread is that of the hand-written side.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import hessmap as hm

OUTPUT = Path(__file__).parent / "results" / "objective_products.json"
ROUNDS, REPEATS = 9, 20
Objective = Callable[[nn.Module, Any], Tensor]


def contrastive(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    first, second = (nn.functional.normalize(model(view), dim=1) for view in batch)
    return nn.functional.cross_entropy(first @ second.T / 0.2, torch.arange(len(first)))


def heat_equation(model: nn.Module, points: Tensor) -> Tensor:
    points = points.clone().requires_grad_()
    values = model(points)
    slope = torch.autograd.grad(values.sum(), points, create_graph=True)[0]
    bend = torch.autograd.grad(slope[:, 1].sum(), points, create_graph=True)[0][:, 1]
    return (slope[:, 0] - 0.1 * bend).square().mean()


def autoencoder(model: nn.Module, inputs: Tensor) -> Tensor:
    return (model(inputs) - inputs).square().sum(1).mean() + 1e-3 * sum(p.square().sum() for p in model.parameters())


def mlp(*widths: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def cases() -> dict[str, tuple[nn.Module, Objective, Any]]:
    torch.manual_seed(0)
    images = torch.randn(512, 64, dtype=torch.float64)
    noisy = images + 0.1 * torch.randn_like(images)
    return {
        "contrastive, 512 pairs": (mlp(64, 256, 128, 32).double(), contrastive, (images, noisy)),
        "heat equation, 1,000 points": (mlp(2, 64, 64, 1).double(), heat_equation, torch.rand(1000, 2).double()),
        "autoencoder, 512 samples": (mlp(64, 256, 16, 256, 64).double(), autoencoder, images),
    }


def by_hand(model: nn.Module, objective: Objective, batch: Any) -> Callable[[Tensor], Tensor]:
    """Double backward on a kept graph."""
    weights = list(model.parameters())
    gradient = torch.autograd.grad(objective(model, batch), weights, create_graph=True, materialize_grads=True)
    flat = torch.cat([part.reshape(-1) for part in gradient])

    def product(vector: Tensor) -> Tensor:
        parts = torch.autograd.grad(flat @ vector, weights, retain_graph=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    return product


def seconds(product: Callable[[Tensor], Tensor], vector: Tensor) -> float:
    start = time.perf_counter()
    for _ in range(REPEATS):
        product(vector)
    return (time.perf_counter() - start) / REPEATS


def main() -> None:
    rows = []
    for name, (model, objective, batch) in cases().items():
        hessian = hm.loss_hessian(hm.Problem(model, objective=objective, data=[batch]))
        plain = by_hand(model, objective, batch)
        vector = torch.randn(hessian.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        ours, theirs = hessian @ vector, plain(vector)
        rounds = [(seconds(hessian.__matmul__, vector), seconds(plain, vector)) for _ in range(ROUNDS)]
        own, other = (min(side) for side in zip(*rounds, strict=True))
        row = {
            "objective": name,
            "num_parameters": hessian.size,
            "error": float((ours - theirs).norm() / theirs.norm()),
            "seconds": own,
            "seconds_by_hand": other,
            "ratio": own / other,
            "spread_by_hand": max(side for _, side in rounds) / other - 1,
        }
        rows.append(row)
        print(f"{name}: {own * 1e3:.2f} ms, by hand {other * 1e3:.2f} ms, ratio {own / other:.3f}, ", end="")
        print(f"error {row['error']:.0e}, spread {row['spread_by_hand']:.0%}")
    record = {"threads": torch.get_num_threads(), "torch": torch.__version__, "cases": rows}
    OUTPUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
