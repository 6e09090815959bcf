"""Products by finite differences of gradients beside autograd: is the reported error at least half of the true one?

Twenty models in three precisions, seven products each (420 in all): random vectors, the gradient, and vectors of one
parameter alone. The truth is double backward of the same model in float64. "bfloat16" is a float32 problem whose
forward pass rounds weights and activations of every layer to bfloat16. Errors are counted, not timed.

    python benchmarks/finite_differences.py [--models 20]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from harness import environment, write
from torch import Tensor, nn
from torch.nn import functional as F

import hessmap as hm

NUM_SAMPLES = 24
NUM_RANDOM = 4
PRECISIONS = "float64", "float32", "bfloat16"


class Rounded(nn.Module):
    """A linear layer or convolution in bfloat16: weights, inputs and outputs are rounded, in both passes."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        weight, bias = self.layer.weight.bfloat16(), None if self.layer.bias is None else self.layer.bias.bfloat16()
        if isinstance(self.layer, nn.Conv2d):
            found = F.conv2d(x.bfloat16(), weight, bias, self.layer.stride, self.layer.padding)
        else:
            found = F.linear(x.bfloat16(), weight, bias)
        return found.to(x.dtype)


def rounded(model: nn.Module) -> nn.Module:
    """Every linear layer and convolution of a model replaced by its rounded form, with the same parameters."""
    for name, child in list(model.named_children()):
        if type(child) in (nn.Linear, nn.Conv2d):
            setattr(model, name, Rounded(child))
        else:
            rounded(child)
    return model


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.first, self.second = nn.LayerNorm(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.gelu(self.first(self.norm(x))))


class Attention(nn.Module):
    """One layer of self-attention over the four tokens into which twelve inputs are split."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.embed, self.qkv, self.out = nn.Linear(3, 8), nn.Linear(8, 24), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(len(x), 4, 3))
        parts = self.qkv(tokens).reshape(len(x), 4, 3, self.heads, 8 // self.heads).permute(2, 0, 3, 1, 4)
        weights = (parts[0] @ parts[1].mT / (8 // self.heads) ** 0.5).softmax(-1)
        return self.out((weights @ parts[2]).transpose(1, 2).reshape(len(x), 4, 8)).mean(1)


class Recurrent(nn.Module):
    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        self.inside, self.state, self.out = nn.Linear(3, 12), nn.Linear(6, 12), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), 6)
        for token in x.reshape(len(x), 4, 3).unbind(1):
            new, gate = (self.inside(token) + self.state(state)).chunk(2, -1)
            state = torch.tanh(new) if not self.gated else state + torch.sigmoid(gate) * (torch.tanh(new) - state)
        return self.out(state)


def mlp(activation: Callable[[], nn.Module], *widths: int, gain: float = 1.0) -> nn.Sequential:
    layers: list[nn.Module] = []
    for first, last in pairwise(widths):
        layers += [nn.Linear(first, last), activation()]
    with torch.no_grad():
        for layer in layers[::2]:
            layer.weight.mul_(gain)
    return nn.Sequential(*layers[:-1])


def cnn(activation: Callable[[], nn.Module], *extra: nn.Module) -> nn.Sequential:
    image = nn.Unflatten(1, (1, 3, 4))
    convolutions = nn.Conv2d(1, 4, 2), *extra, activation(), nn.Conv2d(4, 4, 2), activation()
    return nn.Sequential(image, *convolutions, nn.Flatten(), nn.Linear(8, 5))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Sequential(nn.Linear(12, 5)),
    "deep linear": lambda: mlp(nn.Identity, 12, 8, 8, 5),
    "tanh": lambda: mlp(nn.Tanh, 12, 10, 5),
    "deep tanh": lambda: mlp(nn.Tanh, 12, 8, 8, 8, 8, 5),
    "tanh, small weights": lambda: mlp(nn.Tanh, 12, 10, 5, gain=0.05),
    "tanh, large weights": lambda: mlp(nn.Tanh, 12, 10, 5, gain=4.0),
    "GELU": lambda: mlp(nn.GELU, 12, 16, 16, 5),
    "SiLU": lambda: mlp(nn.SiLU, 12, 16, 16, 5),
    "softplus": lambda: mlp(nn.Softplus, 12, 16, 5),
    "sigmoid": lambda: mlp(nn.Sigmoid, 12, 16, 16, 5),
    "wide tanh": lambda: mlp(nn.Tanh, 12, 128, 5),
    "ReLU": lambda: mlp(nn.ReLU, 12, 16, 5),
    "CNN tanh": lambda: cnn(nn.Tanh),
    "CNN GELU, group norm": lambda: cnn(nn.GELU, nn.GroupNorm(2, 4)),
    "residual": lambda: nn.Sequential(nn.Linear(12, 10), Residual(10), Residual(10), nn.Linear(10, 5)),
    "layer norm": lambda: nn.Sequential(nn.LayerNorm(12), *mlp(nn.Tanh, 12, 10, 5)),
    "attention": lambda: Attention(1),
    "two heads": lambda: Attention(2),
    "recurrent": lambda: Recurrent(gated=False),
    "gated": lambda: Recurrent(gated=True),
}


def vectors_of(problem: hm.Problem, seed: int) -> list[tuple[str, Tensor]]:
    """Random vectors, the gradient, and random vectors in the first weight and in the last bias alone."""
    generator = torch.Generator().manual_seed(seed)
    size = problem.num_parameters
    found = [("random", torch.randn(size, generator=generator, dtype=torch.float64)) for _ in range(NUM_RANDOM)]
    found.append(("gradient", problem.gradient()))
    for name in (problem.layout.names[0], problem.layout.names[-1]):
        alone = torch.zeros(size, dtype=torch.float64)
        place = problem.layout[name]
        alone[place] = torch.randn(place.stop - place.start, generator=generator, dtype=torch.float64)
        found.append((f"{name} alone", alone))
    return found


def products_of(name: str, seed: int) -> list[dict[str, Any]]:
    """The true and the reported relative error of every product with one model."""
    torch.manual_seed(seed)
    model = MODELS[name]()
    inputs, labels = torch.randn(NUM_SAMPLES, 12), torch.randint(5, (NUM_SAMPLES,))
    exact = hm.Problem(model, "cross_entropy", inputs, labels, dtype=torch.float64)
    truth = hm.loss_hessian(exact)
    chosen = vectors_of(exact, seed)
    lines = []
    for precision in PRECISIONS:
        own = rounded(model) if precision == "bfloat16" else model
        dtype = torch.float64 if precision == "float64" else torch.float32
        for kind, vector in chosen:
            problem = hm.Problem(own, "cross_entropy", inputs, labels, dtype=dtype, products="finite_difference")
            found = (hm.loss_hessian(problem) @ vector.to(dtype)).double()
            expected = truth @ vector
            error = float((found - expected).norm() / expected.norm())
            lines.append(
                {
                    "model": name,
                    "precision": precision,
                    "vector": kind,
                    "error": error,
                    "reported": problem.difference_error,
                }
            )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=len(MODELS))
    chosen = list(MODELS)[: parser.parse_args().models]
    where = environment()
    lines = [line for seed, name in enumerate(chosen) for line in products_of(name, seed)]
    summary = {}
    for precision in PRECISIONS:
        own = [line for line in lines if line["precision"] == precision]
        within = sum(line["error"] <= 2 * line["reported"] for line in own)
        errors = sorted(line["error"] for line in own)
        reported = sorted(line["reported"] for line in own)
        middle = len(own) // 2
        summary[precision] = {
            "products": len(own),
            "within_twice": within,
            "median_error": errors[middle],
            "median_reported": reported[middle],
            "largest_error": errors[-1],
        }
        print(precision, summary[precision])
    for line in lines:
        if line["error"] > 2 * line["reported"]:
            print("missed", line)
    write("finite_differences", where, [{"precision": name, **found} for name, found in summary.items()] + lines)


if __name__ == "__main__":
    main()
