"""Does the predicted cost of quantising a layer rank the layers as the measured one does?

Two trained networks: a ResNet18 of width 16 with batch norm on a subset of CIFAR-10, and the character GPT of the
examples. For every layer and bit width ``hm.compression_plan`` predicts the increase of the loss from the gradient and
the curvature (the exact quadratic form of the layer's block, and its diagonal alone), and measures it by rounding that
layer alone. The report has the rank correlation of both over the layers, per bit width.

    python benchmarks/compression_costs.py train resnet       # writes hessmap-runs/compression_resnet.pt
    python benchmarks/compression_costs.py measure resnet     # writes results/compression_costs_resnet.json
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import torch
from harness import environment, write
from scipy.stats import spearmanr
from sharpness_of_resnet import resnet18
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import hessmap as hm

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import character_gpt

RUNS = Path("hessmap-runs")
WIDTH, IMAGES, EPOCHS, BATCH = 16, 10_000, 40, 128
GPT_STEPS = 4_000
RESNET_SAMPLES, GPT_SAMPLES = 256, 128
BITS = (2, 3, 4, 8)
PREDICTIONS = {
    "gradient and block": ("gradient_term", "block_term"),
    "gradient and diagonal": ("gradient_term", "diagonal_term"),
    "block": ("block_term",),
    "diagonal": ("diagonal_term",),
    "squared step": ("squared_step",),
}


def photographs(count: int, split: str = "train") -> tuple[Tensor, Tensor]:
    """CIFAR-10 images in colour, standardised by channel with the statistics of the training subset."""
    inputs, labels = hm.datasets.cifar10(split, num_samples=count, grayscale=False)
    images = inputs.float().reshape(-1, 3, 32, 32)
    mean, deviation = torch.tensor([0.491, 0.482, 0.447]), torch.tensor([0.247, 0.243, 0.262])
    return (images - mean[:, None, None]) / deviation[:, None, None], labels


def train_resnet() -> tuple[nn.Module, dict[str, Any]]:
    """SGD with momentum, one cycle of the learning rate, random flips and shifts."""
    images, labels = photographs(IMAGES)
    model = resnet18(WIDTH).train()
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = EPOCHS * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=0.1, total_steps=steps)
    for epoch in range(EPOCHS):
        order, right, total = torch.randperm(len(images), generator=generator), 0, 0.0
        for start in range(0, len(images) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            batch = shifted(images[chosen], generator)
            optimiser.zero_grad()
            outputs = model(batch)
            loss = cross_entropy(outputs, labels[chosen])
            loss.backward()
            optimiser.step()
            schedule.step()
            right += int((outputs.argmax(1) == labels[chosen]).sum())
            total += float(loss.detach()) * BATCH
        print(f"epoch {epoch}: loss {total / len(images):.3f}, accuracy {right / len(images):.3f}", flush=True)
    model.eval()
    held_out, held_labels = photographs(2_000, "test")
    with torch.no_grad():
        accuracy = {
            "training_accuracy": accuracy_of(model, images[:2_000], labels[:2_000]),
            "test_accuracy": accuracy_of(model, held_out, held_labels),
        }
    return model, {"images": IMAGES, "epochs": EPOCHS, "width": WIDTH, **accuracy}


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images of a batch, half of the batches mirrored, shifted by up to four pixels."""
    if bool(torch.rand((), generator=generator) < 0.5):
        images = images.flip(3)
    down, right = torch.randint(-4, 5, (2,), generator=generator).tolist()
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4))
    return padded[:, :, 4 + down : 36 + down, 4 + right : 36 + right]


def accuracy_of(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    return float((model(images).argmax(1) == labels).float().mean())


def train_gpt() -> tuple[nn.Module, dict[str, Any]]:
    """Adam with a learning rate that falls to zero."""
    torch.manual_seed(0)
    model = character_gpt.CharacterGPT(len(character_gpt.alphabet))
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, GPT_STEPS)
    for step in range(GPT_STEPS):
        inputs, targets = character_gpt.sequences(64, generator)
        optimiser.zero_grad()
        loss = cross_entropy(model(inputs).mT, targets)
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: loss {float(loss.detach()):.3f}", flush=True)
    return model, {"steps": GPT_STEPS, "last_loss": float(loss.detach())}


def problem_of(network: str) -> tuple[hm.Problem, dict[str, Any]]:
    """The trained network on samples of its training set."""
    stored = torch.load(RUNS / f"compression_{network}.pt", weights_only=True)
    if network == "resnet":
        model, data = resnet18(WIDTH), photographs(RESNET_SAMPLES)
    else:
        model = character_gpt.CharacterGPT(len(character_gpt.alphabet))
        data = character_gpt.sequences(GPT_SAMPLES, torch.Generator().manual_seed(5))
    model.load_state_dict(stored["state"])
    dtype = torch.float32 if network == "resnet" else torch.float64
    return hm.Problem(model, "cross_entropy", *data, dtype=dtype), stored["training"]


def case_of(network: str) -> dict[str, Any]:
    """Costs of all layers and widths, and their rank correlations with what was measured."""
    problem, training = problem_of(network)
    block = hm.compression_plan(problem, BITS, 4)
    diagonal = hm.compression_plan(problem, BITS, 4, prediction="diagonal", measure=False)
    rows = []
    for layer, other in zip(block.layers, diagonal.layers, strict=True):
        for cost, rough in zip(layer.costs, other.costs, strict=True):
            rows.append(
                {
                    "layer": layer.name,
                    "bits": cost.bits,
                    "measured": cost.measured_increase,
                    "gradient_term": cost.gradient_term,
                    "block_term": cost.curvature_term,
                    "diagonal_term": rough.curvature_term,
                    "squared_step": cost.step_norm**2,
                }
            )
    return {
        "network": network,
        "per": block.per,
        "training": training,
        "num_parameters": problem.num_parameters,
        "num_layers": len(block.layers),
        "num_samples": problem.num_samples,
        "risk": block.risk,
        "gradient_norm": block.gradient_norm,
        "diagonal_error": diagonal.diagonal_error,
        "rank_correlation": {
            name: {str(bits): correlation(rows, parts, bits) for bits in (*BITS, "all")}
            for name, parts in PREDICTIONS.items()
        },
        "plan": {
            "bits": block.chosen_bits,
            "interactions": block.interactions,
            "used_mean_bits": block.used_mean_bits,
            "separate_increase": block.separate_increase,
            "joint_increase": block.joint_increase,
            "measured_increase": block.measured_increase,
            "uniform_bits": block.uniform_bits,
            "uniform_measured_increase": block.uniform_measured_increase,
        },
        "costs": rows,
    }


def correlation(rows: list[dict[str, Any]], parts: tuple[str, ...], bits: int | str) -> float:
    """Spearman correlation over the layers (and widths) of the sum of some terms with the measured increase."""
    chosen = [row for row in rows if bits in ("all", row["bits"])]
    predicted = [sum(row[part] for part in parts) for row in chosen]
    return round(float(spearmanr(predicted, [row["measured"] for row in chosen]).statistic), 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("work", choices=("train", "measure"))
    parser.add_argument("network", choices=("resnet", "gpt"))
    options = parser.parse_args()
    RUNS.mkdir(exist_ok=True)
    if options.work == "train":
        trained, about = train_resnet() if options.network == "resnet" else train_gpt()
        path = RUNS / f"compression_{options.network}.pt"
        torch.save({"state": trained.state_dict(), "training": about}, path)
        print(about, "written to", path)
    else:
        where = environment()
        case = case_of(options.network)
        print(case["rank_correlation"], case["plan"])
        write(f"compression_costs_{options.network}", where, [case])
