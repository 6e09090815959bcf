"""Networks with a weight that is stored as inputs x outputs (embeddings, bags of them, plain parameters)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import hessmap as hm

NUMBERS = torch.randint(0, 6, (25, 4), generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(25) % 3


class Words(nn.Module):
    def __init__(self, embedding: nn.Module, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.words, self.last, self.activation = embedding, nn.Linear(5, 3), activation

    def forward(self, numbers: Tensor) -> Tensor:
        hidden = self.activation(self.words(numbers))
        return self.last(hidden if hidden.ndim == 2 else hidden.mean(1))


class Projection(nn.Module):
    """A weight that is stored as inputs x outputs, with its bias."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.shift, self.last = (
            nn.Parameter(torch.randn(4, 5)),
            nn.Parameter(torch.randn(5)),
            nn.Linear(5, 3),
        )

    def forward(self, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(torch.addmm(self.shift, numbers.to(self.shift.dtype), self.words)))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.between = nn.Embedding(6, 5), nn.Linear(5, 5)
        self.last = nn.Linear(5, 6, bias=False)
        self.last.weight = self.words.weight

    def forward(self, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(self.between(self.words(numbers).mean(1))))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(6, 5), nn.Linear(5, 3)

    def forward(self, numbers: Tensor) -> Tensor:
        return self.last(torch.tanh(self.words(numbers[:, 0]) + self.words(numbers[:, 1])))


BUILDS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: Words(nn.Embedding(6, 5), torch.tanh),
    "piecewise linear": lambda: Words(nn.Embedding(6, 5), torch.relu),
    "padding": lambda: Words(nn.Embedding(6, 5, padding_idx=1), torch.tanh),
    "bag of means": lambda: Words(nn.EmbeddingBag(6, 5, mode="mean"), torch.tanh),
    "bag of sums": lambda: Words(nn.EmbeddingBag(6, 5, mode="sum"), torch.sigmoid),
    "bag of maxima": lambda: Words(nn.EmbeddingBag(6, 5, mode="max"), torch.relu),
    "projection": Projection,
}
REPEATED: dict[str, Callable[[], nn.Module]] = {"tied": Tied, "twice": Twice}


def problem_of(build: Callable[[], nn.Module], **options: object) -> hm.Problem:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = build().double()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.7)
    return hm.Problem(model, "cross_entropy", NUMBERS, LABELS, **options)
