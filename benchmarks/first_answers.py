"""How long does one wait for the first answer: start-up, a prediction, a Problem, its first product, a map?

Commands run in fresh processes, best of five, beside the start of the interpreter; each is started once before.
``Problem`` of a ResNet18 and its first ``H @ v`` are counted in passes: one forward and backward pass of the same model
over the same data, in turn with them. Of the first product, what a new operator of the same problem takes (which
linearises the model and multiplies) is left out: the rest are checks, made once per problem. Dense Hessians are found
from the model, ``Problem`` included, in turn with torch.func.hessian and with one GEMM of the same work. Rows that were
measured before are kept, so that an interrupted run goes on; ``--anew`` measures all of them.

    python benchmarks/first_answers.py [--anew] [--only WORD]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from harness import RESULTS, environment, seconds_in_turn, speedups, summary, timed, write
from sharpness_of_resnet import BasicBlock, resnet18
from torch import Tensor, nn

import hessmap as hm
from networks import SIZES, problem, torch_risk

NAME = "first_answers"
ROUNDS = 5
COMMANDS = {
    "import hessmap": (["-c", "import hessmap"], 0.15),
    "hessmap --help": (["-m", "hessmap", "--help"], 0.4),
    "hessmap predict": (["-m", "hessmap", "predict", "64-30-20-10", "--loss", "cross_entropy"], 0.8),
    "hessmap map (of make run)": (["-m", "hessmap", "map"], 15.0),
}
PASSES = {"Problem": 3.0, "first product": 5.0}  # beyond what each must do
DENSE = {SIZES[0]: 12.0, SIZES[1]: 20.0}  # times faster than torch.func.hessian
GEMM, MAP_SECONDS = 1.5, 20.0


def command(words: list[str], most: float) -> dict[str, Any]:
    """Seconds of a command in a fresh process, beside those of Python that does nothing."""
    with TemporaryDirectory() as folder:

        def run(arguments: list[str]) -> None:
            subprocess.run([sys.executable, *arguments], cwd=folder, check=True, capture_output=True)

        run(words)
        seconds, _ = seconds_in_turn({"command": lambda: run(words), "python": lambda: run(["-c", "pass"])}, ROUNDS)
    best = seconds["command"]["best"]
    return {"value": best, "unit": "s", "most": most, "passes": best <= most, "seconds": seconds}


def images(count: int, size: int = 32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 3, size, size, generator=generator)
    return inputs, torch.randint(10, (count,), generator=generator)


def first_product(count: int) -> dict[str, Any]:
    """Problem and first product of a ResNet18 of 11 million parameters in float32, in passes over the data."""
    (inputs, labels), model = images(count), resnet18()
    weights = list(model.parameters())
    spent: dict[str, list[float]] = {name: [] for name in ("pass", "Problem", "first product", "product itself")}
    for number in range(ROUNDS + 1):
        took, _ = timed(lambda: torch.autograd.grad(F.cross_entropy(model(inputs), labels), weights))
        making, made = timed(lambda: hm.Problem(model, "cross_entropy", inputs, labels, dtype=torch.float32))
        vector = torch.ones(made.num_parameters) / made.num_parameters**0.5
        first, one = timed(lambda made=made, vector=vector: hm.loss_hessian(made) @ vector)
        itself, other = timed(lambda made=made, vector=vector: hm.loss_hessian(made) @ vector)
        assert torch.equal(one, other)
        for name, value in zip(spent, (took, making, first, itself), strict=True):
            spent[name] += [value] if number else []  # the first round loads modules and kernels
    seconds = {name: summary(values) for name, values in spent.items()}
    best = {name: row["best"] for name, row in seconds.items()}
    found = {
        "Problem": best["Problem"] / best["pass"],
        "first product": (best["first product"] - best["product itself"]) / best["pass"],
    }
    passes = all(found[name] <= most for name, most in PASSES.items())
    return {"value": found, "unit": "passes", "most": PASSES, "passes": passes, "seconds": seconds}


def dense(widths: tuple[int, ...], num_samples: int) -> dict[str, Any]:
    """The dense loss Hessian with its Problem, beside torch.func.hessian and the GEMM of the outer-product part."""
    given, model = problem(widths, num_samples, "tanh"), hm.FullyConnected(widths, activation="tanh").build(seed=0)
    left = torch.randn(given.num_parameters, num_samples, dtype=torch.float64)
    right = left.T.contiguous()
    works: dict[str, Callable[[], Any]] = {
        "gemm": lambda: left @ right,
        "hessmap": lambda: hm.loss_hessian(hm.Problem(model, "squared", given.inputs, given.targets)).to_dense(),
        "torch": lambda: torch.func.hessian(torch_risk(given))(given.parameters),
    }
    works["hessmap"]()
    seconds, found = seconds_in_turn(works, ROUNDS)
    ratio = {
        "over torch.func.hessian": speedups(seconds, "hessmap", "torch")["best"],
        "over gemm": seconds["hessmap"]["best"] / seconds["gemm"]["best"],
        "disagreement": float((found["hessmap"] - found["torch"]).abs().max() / found["torch"].abs().max()),
    }
    least = DENSE[widths, num_samples]
    passes = ratio["over torch.func.hessian"] >= least and ratio["over gemm"] <= GEMM and ratio["disagreement"] < 1e-12
    bars = {"most": {"over gemm": GEMM}, "least": {"over torch.func.hessian": least}}
    return {"value": ratio, "unit": "ratio", **bars, "passes": passes, "seconds": seconds}


def small_resnet() -> nn.Module:
    """A ResNet of about 20,000 parameters."""
    torch.manual_seed(0)
    blocks = (BasicBlock(8, 8, 1), BasicBlock(8, 16, 2), *(BasicBlock(16, 16, 1) for _ in range(3)))
    stem = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).eval()


def whole_map() -> dict[str, Any]:
    """``hm.map`` of a ResNet of 20,000 parameters on 256 images, with default options."""
    inputs, labels = images(256, 16)
    seconds, found = seconds_in_turn({"map": lambda: hm.map(small_resnet(), (inputs, labels), "cross_entropy")}, ROUNDS)
    best = seconds["map"]["best"]
    size = sum(weight.numel() for weight in small_resnet().parameters())
    row = {"value": best, "unit": "s", "most": MAP_SECONDS, "passes": best <= MAP_SECONDS}
    return row | {"num_parameters": size, "kind": type(found["map"]).__name__, "seconds": seconds}


def questions() -> dict[str, Callable[[], dict[str, Any]]]:
    found: dict[str, Callable[[], dict[str, Any]]] = {}
    for name, (words, most) in COMMANDS.items():
        found[name] = lambda words=words, most=most: command(words, most)  # type: ignore[misc]
    for widths, count in SIZES:
        name = f"dense {'-'.join(map(str, widths))}, {count} samples"
        found[name] = lambda widths=widths, count=count: dense(widths, count)  # type: ignore[misc]
    for count in (128, 1024):
        found[f"ResNet18, {count} samples"] = lambda count=count: first_product(count)  # type: ignore[misc]
    return found | {"map of a ResNet of 20,000 parameters": whole_map}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--anew", action="store_true")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    where, path = environment(), Path(RESULTS / f"{NAME}.json")
    kept = json.loads(path.read_text())["cases"] if path.exists() and not options.anew else []
    rows = {row["name"]: row for row in kept}
    for name, question in questions().items():
        if name in rows or options.only not in name:
            continue
        rows[name] = {"name": name, **question()}
        print(f"{'passes' if rows[name]['passes'] else 'FAILS ':6}  {name}: {rows[name]['value']} {rows[name]['unit']}")
        write(NAME, where, list(rows.values()))
    return 0 if all(row["passes"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
