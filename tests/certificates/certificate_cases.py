"""What the tests of certificates share: a fit that takes a second, networks trained in less, and some of all kinds."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hessmap.datasets import Data
from hessmap.networks import FullyConnected
from hessmap.training import train

QUICK = {
    "iterations": 60,
    "num_draws": 2_000,
    "batch_size": 32,
    "deviation_learning_rate": 0.1,
    "refresh_every": 20,
    "basis_samples": 50,
}
TINY = QUICK | {"iterations": 4, "num_draws": 100, "refresh_every": 2}


def trained(data: Data, widths: tuple[int, ...], epochs: int = 10, seed: int = 0) -> tuple[nn.Module, nn.Module]:
    initial = FullyConnected(widths, bias=True, activation="relu").build(seed=seed)
    model = copy.deepcopy(initial)
    train(model, data, epochs=epochs, learning_rate=0.1, record_every=epochs)
    return model, initial


def started(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Weights that do not depend on the tests before, and the same a little further."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(0.1)
    return moved, model


def vectors(num_samples: int = 30) -> Data:
    inputs = torch.randn(num_samples, 6, generator=torch.Generator().manual_seed(0))
    return Data(inputs, (inputs.sum(1) > 0).long())


def images(num_samples: int = 30) -> Data:
    inputs = torch.randn(num_samples, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    return Data(inputs, (inputs.mean((1, 2, 3)) > 0).long())


def tokens(num_samples: int = 30) -> Data:
    inputs = torch.randint(0, 7, (num_samples, 5), generator=torch.Generator().manual_seed(0))
    return Data(inputs, (inputs.sum(1) > 15).long())


class Composed(nn.Module):
    """Named parts, and a function that puts them together."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.function = function

    def forward(self, inputs: Tensor) -> Tensor:
        return self.function(self, inputs)


def two(function: Callable[[Any, Tensor], Tensor], hidden: int = 4, inputs: int = 6) -> Composed:
    return Composed(function, a=nn.Linear(6, hidden), b=nn.Linear(inputs, 2))


def weight_in_a_list() -> nn.Module:
    layer = nn.Linear(6, 4)
    return Composed(lambda m, x: m.b(m.a(x).relu() @ m.held[0]), a=layer, b=nn.Linear(6, 2), held=[layer.weight])


def shared_module() -> nn.Module:
    layer = nn.Linear(6, 6)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(6, 2))


def tied_weight() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 2))
    model[2].weight = model[0].weight
    return model


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].register_forward_hook(lambda module, inputs, outputs: outputs * 2)
    return model


def other_forward() -> nn.Module:
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].forward = types.MethodType(lambda self, x: 3 * F.linear(x, self.weight, self.bias), model[0])
    return model


def weight_norm() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 4)), nn.ReLU(), nn.Linear(4, 2))


class Experts(nn.Module):
    """Two layers, each for the samples that a third sends there."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.last = nn.Linear(6, 2), nn.Linear(4, 2)
        self.experts = nn.ModuleList([nn.Linear(6, 4), nn.Linear(6, 4)])

    def forward(self, inputs: Tensor) -> Tensor:
        chosen, hidden = self.gate(inputs).argmax(1), inputs.new_zeros(len(inputs), 4)
        for number, expert in enumerate(self.experts):
            hidden[chosen == number] = expert(inputs[chosen == number])
        return self.last(hidden)


def folded(model: Any, inputs: Tensor) -> Tensor:
    """Three tokens of two numbers, stacked into the batch."""
    return model.b(model.a(inputs.reshape(-1, 2)).relu().reshape(len(inputs), 3, 4).mean(1))


def attention(model: Any, inputs: Tensor) -> Tensor:
    words = inputs.reshape(-1, 3, 2)
    return model.b(model.a(words, words, words)[0].mean(1))


# Networks in which every weight is used by one call of its own layer on one sample.
PLAIN: dict[str, tuple[Callable[[], nn.Module], Callable[[], Data]]] = {
    "fully connected": (lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), vectors),
    "one layer": (lambda: nn.Linear(6, 2), vectors),
    "residual": (lambda: two(lambda m, x: m.b(x + m.a(x).relu()), hidden=6), vectors),
    "backwards": (lambda: Composed(lambda m, x: m.z(m.y(x).relu()), z=nn.Linear(4, 2), y=nn.Linear(6, 4)), vectors),
    "writes into its inputs": (lambda: two(lambda m, x: m.b(m.a(x.mul_(2)).relu_()), inputs=4), vectors),
    "one token": (lambda: two(lambda m, x: m.b(m.a(x.reshape(-1, 6)).relu()), inputs=4), vectors),
    "same padding": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding="same"), nn.Flatten(), nn.Linear(72, 2)),
        images,
    ),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 2)), images),
    "no bias": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.Flatten(), nn.Linear(32, 2, bias=False)),
        images,
    ),
    "groups, circular": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3),
            nn.Tanh(),
            nn.Conv2d(2, 4, 3, padding=1, groups=2, padding_mode="circular"),
            nn.Flatten(),
            nn.Linear(64, 2),
        ),
        images,
    ),
    "frozen statistics": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 2)),
        vectors,
    ),
}

# Networks that do something else with a weight; they are drawn as a whole.
WHOLE: dict[str, tuple[Callable[[], nn.Module], Callable[[], Data]]] = {
    "decoder by the transpose": (lambda: two(lambda m, x: m.b(m.a(x).relu() @ m.a.weight)), vectors),
    "detached": (lambda: two(lambda m, x: m.b(m.a(x).relu() @ m.a.weight.detach())), vectors),
    "data": (lambda: two(lambda m, x: m.b(m.a(x).relu() @ m.a.weight.data)), vectors),
    "numpy": (
        lambda: two(lambda m, x: m.b(m.a(x).relu() @ torch.from_numpy(m.a.weight.detach().numpy()))),
        vectors,
    ),
    "slice": (lambda: two(lambda m, x: m.b(m.a(x)[:, :2] @ m.a.weight[:2])), vectors),
    "einsum": (lambda: two(lambda m, x: m.b(torch.einsum("bi,oi->bo", x, m.a.weight) + m.a(x)), inputs=4), vectors),
    "functional": (lambda: two(lambda m, x: m.b(F.linear(x, m.a.weight, m.a.bias)), inputs=4), vectors),
    "bias again": (lambda: two(lambda m, x: m.b(m.a(x) + m.a.bias), inputs=4), vectors),
    "a second use that is off": (
        lambda: two(lambda m, x: m.b(m.a(x)) + (x @ m.a.weight.T - 1e9).relu()[:, :2], inputs=4),
        vectors,
    ),
    "weight in a list": (weight_in_a_list, vectors),
    "shared module": (shared_module, vectors),
    "tied weight": (tied_weight, vectors),
    "hook": (hooked, vectors),
    "forward of its own": (other_forward, vectors),
    "weight norm": (weight_norm, vectors),
    "folded tokens": (lambda: Composed(folded, a=nn.Linear(2, 4), b=nn.Linear(4, 2)), vectors),
    "tokens": (
        lambda: Composed(
            lambda m, x: m.b(m.a(x.reshape(-1, 3, 2)).relu().mean(1)), a=nn.Linear(2, 4), b=nn.Linear(4, 2)
        ),
        vectors,
    ),
    "folded convolution": (
        lambda: Composed(
            lambda m, x: m.b(m.a(x.reshape(-1, 1, 3)).reshape(len(x), -1)), a=nn.Conv1d(1, 2, 2), b=nn.Linear(8, 2)
        ),
        vectors,
    ),
    "layer norm": (lambda: nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2)), vectors),
    "group norm": (
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Flatten(), nn.Linear(32, 2)),
        images,
    ),
    "frozen batch-norm": (lambda: nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), vectors),
    "attention": (
        lambda: Composed(attention, a=nn.MultiheadAttention(2, 1, batch_first=True), b=nn.Linear(2, 2)),
        vectors,
    ),
    "recurrent": (
        lambda: Composed(
            lambda m, x: m.b(m.a(x.reshape(-1, 3, 2))[0][:, -1]), a=nn.LSTM(2, 3, batch_first=True), b=nn.Linear(3, 2)
        ),
        vectors,
    ),
    "embedding": (
        lambda: Composed(lambda m, x: m.b(m.a(x).mean(1)), a=nn.Embedding(7, 3), b=nn.Linear(3, 2)),
        tokens,
    ),
    "calls again on the way back": (
        lambda: two(lambda m, x: m.b(checkpoint(m.a, x, use_reentrant=False)), inputs=4),
        vectors,
    ),
    "experts by the samples": (Experts, vectors),
    "low-rank correction": (
        lambda: Composed(
            lambda m, x: m.b(F.linear(x, m.a.weight + m.c.T @ m.c[:, :6], m.a.bias)),
            a=nn.Linear(6, 6),
            b=nn.Linear(6, 2),
            c=nn.Parameter(torch.zeros(2, 6)),
        ),
        vectors,
    ),
    "number": (
        lambda: Composed(lambda m, x: m.a(x) * m.scale, a=nn.Linear(6, 2), scale=nn.Parameter(torch.tensor(1.0))),
        vectors,
    ),
    "nothing": (lambda: Composed(lambda m, x: m.a(x), a=nn.Linear(6, 2), none=nn.Parameter(torch.zeros(0))), vectors),
    "unused": (lambda: Composed(lambda m, x: m.a(x), a=nn.Linear(6, 2), other=nn.Linear(2, 2)), vectors),
    "rows twice": (
        lambda: two(lambda m, x: m.b(m.a(torch.cat([x, x])).reshape(2, len(x), 4).mean(0)), inputs=4),
        vectors,
    ),
    "one sample after another": (
        lambda: two(lambda m, x: torch.stack([m.b(m.a(one)) for one in x]), inputs=4),
        vectors,
    ),
    "a branch by the samples": (
        lambda: two(lambda m, x: m.b(m.a(x)) if float(x.sum()) < 1e9 else m.b(-m.a(x)), inputs=4),
        vectors,
    ),
}
