"""How fast is the exact Hessian of a convolutional network, beside torch.func.hessian?

Float64, cross-entropy, 8x8 digits as images and as sequences: a network like LeNet5 (average pools and tanh; max-pools
and ReLU) and two one-dimensional ones of about 3,000 parameters, a shallow one with long outputs and a strided one with
three convolutions. torch.func.hessian pushes all parameters forward through the gradient at once, which does not fit
the memory; here it is the same two transforms, in chunks of columns. Both run in this process, the same number of
rounds, taken in turn; the speedup is best over best, medians and spreads stand beside it.

    make bench    # or: python benchmarks/conv_hessian.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from harness import environment, seconds_in_turn, speedups, write
from torch import nn

from hessmap.datasets import digits
from hessmap.hessians.operators import functional_hessian, loss_hessian, outer_product_hessian
from hessmap.problem.problem import Problem

NUM_SAMPLES = 300
COLUMNS_AT_ONCE = 64
WANTED = {"torch": 10.0, "agreement": 1e-12}


def lenet(activation: type[nn.Module], pool: type[nn.Module]) -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 6, 5, padding=2), activation(), pool(2)),
        *(nn.Conv2d(6, 16, 3), activation(), nn.Flatten()),
        *(nn.Linear(64, 20), activation(), nn.Linear(20, 10)),
    )


def shallow() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 64)), nn.Conv1d(1, 4, 3), nn.Tanh(), nn.Conv1d(4, 5, 3), nn.Tanh()),
        *(nn.Flatten(), nn.Linear(300, 10)),
    )


def strided() -> nn.Module:
    return nn.Sequential(
        *(nn.Unflatten(1, (1, 64)), nn.Conv1d(1, 8, 5, stride=2), nn.Tanh(), nn.Conv1d(8, 16, 5, stride=2), nn.Tanh()),
        *(nn.Conv1d(16, 18, 5, stride=2), nn.Tanh(), nn.Flatten(), nn.Linear(90, 10)),
    )


CASES: dict[str, Callable[[], nn.Module]] = {
    "LeNet5-like, tanh, average pools": lambda: lenet(nn.Tanh, nn.AvgPool2d),
    "LeNet5-like, ReLU, max-pools": lambda: lenet(nn.ReLU, nn.MaxPool2d),
    "1D, two convolutions": shallow,
    "1D, three strided convolutions": strided,
}


def problem(model: Callable[[], nn.Module]) -> Problem:
    inputs, targets = (torch.as_tensor(part)[:NUM_SAMPLES] for part in digits())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Problem(model(), "cross_entropy", inputs, targets)


def torch_hessian(made: Problem) -> torch.Tensor:
    """torch.func.hessian(risk), forward over reverse, some columns at a time."""

    def risk(flat: torch.Tensor) -> torch.Tensor:
        outputs = torch.func.functional_call(made.model, made.unflatten(flat), (made.inputs,))
        return nn.functional.cross_entropy(outputs, made.targets)

    gradient = torch.func.grad(risk)
    units = torch.eye(made.num_parameters, dtype=torch.float64)

    def column(unit: torch.Tensor) -> torch.Tensor:
        return torch.func.jvp(gradient, (made.parameters,), (unit,))[1]

    return torch.func.vmap(column, out_dims=1, chunk_size=COLUMNS_AT_ONCE)(units)


def measure(name: str) -> dict[str, Any]:
    made = problem(CASES[name])
    ours = loss_hessian(made).dense  # warm
    parts = {"loss": loss_hessian, "outer_product": outer_product_hessian, "functional": functional_hessian}
    works = {part: lambda made_of=made_of: made_of(made).to_dense() for part, made_of in parts.items()}
    seconds, found = seconds_in_turn(works | {"torch": lambda: torch_hessian(made)})
    speedup, theirs = speedups(seconds, "loss", "torch"), found["torch"]
    disagreement = float((ours.matrix - theirs).abs().max() / theirs.abs().max())
    passes = ours.method == "lifted" and speedup["best"] >= WANTED["torch"] and disagreement <= WANTED["agreement"]
    return {
        "network": name,
        "num_parameters": made.num_parameters,
        "num_samples": made.num_samples,
        "columns_at_once": COLUMNS_AT_ONCE,
        "seconds": seconds,
        "torch_speedup": speedup,
        "torch_disagreement": disagreement,
        "wanted": WANTED,
        "passes": passes,
    }


def main() -> int:
    where, rows = environment(), []
    for name in CASES:
        row = measure(name)
        speedup = row["torch_speedup"]
        print(
            f"{row['network']}, {row['num_parameters']} parameters: H_L {row['seconds']['loss']['best'] * 1e3:.0f} ms, "
            f"torch {speedup['best']:.1f}x (medians {speedup['median']:.1f}x), "
            f"disagreement {row['torch_disagreement']:.1e}: {'passes' if row['passes'] else 'FAILS'}"
        )
        rows.append(row)
        write("conv_hessian", where, rows)
    return 0 if all(row["passes"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
