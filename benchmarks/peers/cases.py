"""The networks of the comparison with the samples that their risk is taken over: four in float64, after a short
training, and two of ten million random weights in float32."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).parent.parent))

from language_model import GPT2, VOCABULARY
from sharpness_of_resnet import resnet18

from hessmap.datasets import cifar10, digits, mnist
from hessmap_research.instruments.zoo import zoo_network


@dataclass(frozen=True, eq=False)
class Case:
    """A network in evaluation mode and its samples, in one number format; the loss is the mean cross-entropy."""

    name: str
    model: nn.Module
    inputs: Tensor
    labels: Tensor

    @property
    def dtype(self) -> torch.dtype:
        return next(self.model.parameters()).dtype

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.model.parameters())


class TokenEncoder(nn.Module):
    """The rows of an 8x8 image as 8 tokens; two encoder layers; the mean token is classified."""

    def __init__(self, width: int = 64, num_layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, width)
        self.position = nn.Parameter(0.1 * torch.randn(8, width))
        layers = [
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, activation="gelu", batch_first=True)
            for _ in range(num_layers)
        ]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.embedding(images.reshape(len(images), 8, 8)) + self.position
        return self.head(self.layers(tokens).mean(1))


def small_mlp() -> nn.Module:
    """64-18-11-10 without biases: 1,460 parameters."""
    layers = [nn.Linear(64, 18, bias=False), nn.Tanh(), nn.Linear(18, 11, bias=False), nn.Tanh()]
    return nn.Sequential(*layers, nn.Linear(11, 10, bias=False))


# Network, data, samples, epochs, learning rate.
_Recipe = tuple[Callable[[], nn.Module], Callable[..., tuple[Tensor, Tensor]], int, int, float]
CASES: dict[str, _Recipe] = {
    "MLP, digits": (small_mlp, digits, 600, 30, 0.1),
    "F-200^2, MNIST": (lambda: zoo_network("F-200^2"), mnist, 5000, 5, 0.05),
    "LeNet5, CIFAR-10": (lambda: zoo_network("LeNet5", (3, 32, 32)), partial(cifar10, grayscale=False), 2000, 10, 0.02),
    "transformer, digits": (TokenEncoder, digits, 1000, 10, 0.05),
}


# Network in float32 with random weights, and a draw of so many samples.
_Draw = Callable[[int], tuple[Tensor, Tensor]]
LARGE_CASES: dict[str, tuple[Callable[[], nn.Module], _Draw, int]] = {
    "ResNet18, random images": (
        resnet18,
        lambda count: (torch.randn(count, 3, 32, 32), torch.randint(10, (count,))),
        32,
    ),
    "GPT-2, random tokens": (
        GPT2,
        lambda count: (torch.randint(VOCABULARY, (count, 128)), torch.randint(VOCABULARY, (count, 128))),
        8,
    ),
}


def case(name: str, num_samples: int | None = None) -> Case:
    """The network of that name; the data set of a trained one raises where its files are absent."""
    if name in LARGE_CASES:
        build, draw, count = LARGE_CASES[name]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return Case(name, build().float().eval(), *draw(min(count, num_samples or count)))
    made, data, wanted, epochs, rate = CASES[name]
    inputs, labels = (torch.as_tensor(part)[: num_samples or wanted] for part in data())
    inputs = inputs.double()
    inputs = (inputs - inputs.mean()) / inputs.std()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = made().float()
        _train(model, inputs.float(), labels, epochs, rate)
    return Case(name, model.double().eval(), inputs.contiguous(), labels)


def _train(model: nn.Module, inputs: Tensor, labels: Tensor, epochs: int, rate: float) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for _ in range(epochs):
        for chosen in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(inputs[chosen]), labels[chosen]).backward()
            optimiser.step()
