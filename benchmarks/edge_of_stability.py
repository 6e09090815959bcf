"""Where does training settle? Full-batch descent, SGD and full-batch Adam beside the threshold of each.

    python benchmarks/edge_of_stability.py digits          (a few minutes)
    python benchmarks/edge_of_stability.py cifar10         (about half an hour on one core; needs the data folder)
    python benchmarks/edge_of_stability.py --draw          (the figures, from the stored results)

A point of descent is the sharpness (largest eigenvalue of the loss Hessian), of SGD the batch sharpness with its
standard error, of Adam the preconditioned sharpness, all by ``hm.step_report``. The stored average is over the second
half of the points. Results are in results/edge_of_stability.json, figures in docs/pictures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import hessmap as hm

STORED = Path(__file__).parent / "results" / "edge_of_stability.json"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


class Run(NamedTuple):
    """One training: the data, the optimiser, and which quantity of the step report is followed."""

    data: str
    name: str
    quantity: str
    rate: float
    num_steps: int
    every: int
    batch_size: int | None = None

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self.name == "adam":
            return torch.optim.Adam(model.parameters(), lr=self.rate)
        return torch.optim.SGD(model.parameters(), lr=self.rate)


RUNS = (
    Run("digits", "descent", "sharpness", 0.15, 1500, 15),
    Run("digits", "sgd", "batch_sharpness", 0.2, 4500, 45, batch_size=8),
    Run("digits", "adam", "preconditioned_sharpness", 5e-3, 1500, 15),
    Run("cifar10", "descent", "sharpness", 0.04, 3000, 30),
    Run("cifar10", "sgd", "batch_sharpness", 0.06, 12000, 120, batch_size=32),
    Run("cifar10", "adam", "preconditioned_sharpness", 1e-3, 1000, 10),
)


def subset(name: str) -> tuple[torch.Tensor, torch.Tensor, tuple[int, ...]]:
    """Inputs, one-hot targets and widths of the network."""
    if name == "digits":
        inputs, labels = hm.datasets.digits(num_samples=200)
        return inputs, nn.functional.one_hot(labels, 10).double(), (64, 32, 32, 10)
    inputs, labels = hm.datasets.cifar10(num_samples=1000)  # grey, 32 x 32
    flat = inputs.flatten(1).float()
    flat = (flat - flat.mean()) / flat.std()
    return flat, nn.functional.one_hot(labels, 10).float(), (flat.shape[1], 64, 64, 10)


def network(widths: tuple[int, ...], dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    first, second, third, last = widths
    layers = [nn.Linear(first, second), nn.Tanh(), nn.Linear(second, third), nn.Tanh(), nn.Linear(third, last)]
    return nn.Sequential(*layers).to(dtype)


def measure(run: Run) -> dict[str, Any]:
    """Train, and report the step every few steps."""
    inputs, targets, widths = subset(run.data)
    model = network(widths, inputs.dtype)
    optimizer = run.optimizer(model)
    draw = torch.Generator().manual_seed(1)
    points = []
    wanted: Any = [run.quantity] if run.quantity != "preconditioned_sharpness" else ["sharpness", run.quantity]
    for step in range(run.num_steps + 1):
        if step % run.every == 0:
            problem = hm.Problem(model, "squared", inputs, targets)
            options: dict[str, Any] = {"tolerance": 1e-2, "max_products": 200, "seed": step}
            found = hm.step_report(problem, optimizer, quantities=wanted, batch_size=run.batch_size, **options)
            value = getattr(found, run.quantity)
            assert value is not None
            assert found.stability_threshold is not None
            points.append((step, found.risk, value.value, value.error, found.stability_threshold.value))
            print(run.data, run.name, *(f"{number:.5g}" for number in points[-1]), flush=True)
        chosen: Any = slice(None)
        if run.batch_size is not None:
            chosen = torch.randperm(len(inputs), generator=draw)[: run.batch_size]
        optimizer.zero_grad()
        (0.5 * (model(inputs[chosen]) - targets[chosen]).square().sum(1).mean()).backward()
        optimizer.step()
    table = np.array(points)
    half = table[len(table) // 2 :]
    return {
        **run._asdict(),
        "widths": widths,
        "num_samples": len(inputs),
        "dtype": str(inputs.dtype).removeprefix("torch."),
        "torch": torch.__version__,
        "columns": ["step", "risk", "value", "error", "threshold"],
        "points": [[float(f"{number:.6g}") for number in row] for row in points],
        "mean_ratio_of_second_half": float((half[:, 2] / half[:, 4]).mean()),
    }


def stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


TITLES = {
    "descent": ("Full-batch descent", "sharpness", "2 / lr"),
    "sgd": ("SGD", "batch sharpness, with two standard errors", "2 / lr"),
    "adam": ("Full-batch Adam", "preconditioned sharpness", "38 / lr"),
}


def draw(results: dict[str, Any], data: str) -> Path:
    """One panel a training: the loss in grey, the followed quantity, and the threshold of the optimiser."""
    from hessmap.views.plots import write_figure
    from hessmap.views.plots.style import FAINT, INK, SERIES_COLOURS, dress, new_figure

    chosen = [results[f"{data}-{name}"] for name in TITLES if f"{data}-{name}" in results]
    figure = new_figure(4.2 * len(chosen), 3.4)
    for place, result in enumerate(chosen, start=1):
        axes = figure.add_subplot(1, len(chosen), place)
        steps, risk, value, error, threshold = np.array(result["points"]).T
        title, quantity, line = TITLES[result["name"]]
        axes.plot(steps, value, "-", color=SERIES_COLOURS[0], linewidth=1.2, label=quantity)
        if result["name"] == "sgd":
            low, high = value - 2 * error, value + 2 * error
            axes.fill_between(steps, low, high, color=SERIES_COLOURS[0], alpha=0.2, linewidth=0)
        axes.plot(steps, threshold, "--", color=INK, linewidth=1.2, label=f"threshold {line} = {threshold[-1]:.4g}")
        axes.set_ylim(0, 1.7 * threshold.max())
        axes.set_xlabel("step", fontsize=9, color=INK)
        other = axes.twinx()
        other.plot(steps, risk, color=FAINT, linewidth=1.0)
        other.set_yscale("log")
        other.minorticks_off()
        other.tick_params(labelsize=8, colors=FAINT)
        other.set_ylabel("loss (grey)", fontsize=8, color=FAINT)
        other.spines["top"].set_visible(False)
        dress(axes, f"{title}, lr {result['rate']:g}")
        axes.legend(fontsize=8, frameon=False, loc="upper right")
    return write_figure(figure, PICTURES / f"edge-{data}.png", salt="edge")


def main(words: list[str]) -> None:
    results = stored()
    for run in RUNS:
        if run.data in words or f"{run.data}-{run.name}" in words:
            results[f"{run.data}-{run.name}"] = measure(run)
            results = {**stored(), f"{run.data}-{run.name}": results[f"{run.data}-{run.name}"]}
            STORED.write_text(json.dumps(results, indent=1) + "\n")
    for data in sorted({result["data"] for result in results.values()}):
        print("drawn to", draw(results, data))
    for name, result in results.items():
        print(f"{name}: mean of the second half {result['mean_ratio_of_second_half']:.3f} of the threshold")


if __name__ == "__main__":
    main(sys.argv[1:])
